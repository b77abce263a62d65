// read_capture: any capture file that Lanekeeper knows, by its content: NCCL topology XML or nvidia-smi topo -m text.
// Fails with InputError, one line, when the file cannot be read or is neither.
#pragma once

#include <string>
#include <string_view>

#include "control/topology/model.hpp"

namespace lk {

NodeTopology read_capture(const std::string& path);
// `source` names the text in messages.
NodeTopology parse_capture(std::string_view bytes, const std::string& source);

}  // namespace lk

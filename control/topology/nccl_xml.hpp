// Reader of NCCL topology XML (NCCL_TOPO_DUMP_FILE, files that clouds ship), also cut or pasted with prompts, line
// numbers or quote signs. Pure. Keeps what the file says: a link width of 0, a NUMA id of -1 and a stand-in switch
// are facts of a VM, not faults. InputError when there is no XML element at all.
#pragma once

#include <string>
#include <string_view>

#include "control/topology/model.hpp"

namespace lk {

// True when text looks like XML rather than a table.
bool looks_like_xml(std::string_view bytes) noexcept;
NodeTopology read_nccl_xml(std::string_view bytes, const std::string& source);

}  // namespace lk

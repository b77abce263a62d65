// Reader of `nvidia-smi topo -m` text, also as people paste it: wrapped, without tabs, quoted, commented, in a fence or
// a table, without header or legend, cut. Pure. What can be read is read and the damage is noted as an anomaly; what
// cannot be read is an InputError: one line with the file, the row and its line, and why.
#pragma once

#include <string>
#include <string_view>

#include "control/topology/model.hpp"

namespace lk {

NodeTopology read_topo_matrix(std::string_view bytes, const std::string& source);

}  // namespace lk

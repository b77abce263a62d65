// Which NICs of a node are rails, and how each GPU stands to each of them. A step of plan_node. Pure; InputError when
// an option names a NIC that the capture does not have.
#pragma once

#include <string>
#include <vector>

#include "control/topology/machines.hpp"
#include "control/topology/model.hpp"
#include "control/topology/node_plan.hpp"

namespace lk {

struct RailChoice {
  std::size_t nic = 0;  // index in NodeTopology::nics
  std::size_t home = 0;
  std::vector<RailView> view;
};

// `named`: NICs that options ask for, in rail order; empty: by nearness. `coherent`: distances cost nothing.
std::vector<RailChoice> choose_rails(const NodeTopology& topology, const Machines& machines,
                                     const std::vector<std::string>& named, bool coherent);

}  // namespace lk

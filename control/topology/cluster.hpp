// build_cluster: the ClusterSpec (dataplane/api/cluster.hpp) of nodes whose plans are known: links, NVLink domains, and
// a trunk with its ladder of lanes for each pair of GPUs that may talk. Pure, set-up only; InputError on an impossible
// request (a domain over several nodes without NVSwitch, more GPUs than an id can number).
#pragma once

#include <string>
#include <vector>

#include "control/topology/node_plan.hpp"
#include "dataplane/api/cluster.hpp"

namespace lk {

// Which GPUs of different domains get a trunk.
enum class Pairs : std::uint8_t {
  kAuto,        // kAll up to 32 GPUs, else kSameColumn
  kSameColumn,  // column i with column i; in a smaller domain with i modulo its size
  kAll
};

struct NodeGroup {
  NodePlan plan;
  unsigned nodes = 1;         // that many nodes alike
  unsigned domain_nodes = 1;  // nodes that one NVLink domain spans
};

ClusterSpec build_cluster(const std::string& profile, const std::vector<NodeGroup>& groups, const Machines& machines,
                          Pairs pairs = Pairs::kAuto);

}  // namespace lk

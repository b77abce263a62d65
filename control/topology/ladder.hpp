// Ladder: the lanes between two GPUs, best first. In a domain: nvlink, relay, pcie, host. Between: own NIC, a neighbour
// GPU's NIC over NVLink, another NIC over PCIe, tcp. A step of build_cluster. Pure, never fails.
#pragma once

#include <vector>

#include "control/topology/node_plan.hpp"
#include "dataplane/api/cluster.hpp"

namespace lk {

// Where one node's links are in ClusterSpec::links; kNoId where there is none.
struct NodeLinks {
  const NodePlan* plan = nullptr;
  std::vector<LinkId> to_switch;  // by GPU
  std::vector<LinkId> bundle;     // [a * gpus + b]
  std::vector<LinkId> gpu_slot;   // by GPU
  std::vector<LinkId> nic_slot;   // by NIC
  std::vector<LinkId> port;       // by rail
  LinkId netdev = kNoId;
};

class Ladder {
 public:
  Ladder(const ClusterSpec& spec, const std::vector<NodeLinks>& nodes, const Machines& machines)
      : spec_(spec), nodes_(nodes), machines_(machines) {}

  // All lanes between a < b, by rung. `trunk` is left to the caller.
  std::vector<LaneSpec> lanes(EndpointId a, EndpointId b) const;

 private:
  struct Side;
  void add_nvlink(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const;
  void add_relays(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const;
  void add_pcie(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const;
  void add_rails(EndpointId a, EndpointId b, std::uint16_t first_rung, std::vector<LaneSpec>& out) const;
  void add_tcp(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const;
  Side rail_side(EndpointId gpu, std::size_t rail) const;
  LaneSpec start(LaneKind kind, EndpointId a, EndpointId b, std::uint16_t rung) const;
  void finish(LaneSpec& lane, GBps limit, std::vector<LaneSpec>& out) const;
  bool nvlink_hops(const NodeLinks& node, std::size_t from, std::size_t to, std::vector<Hop>& out) const;
  const NodeLinks& node_of(EndpointId e) const { return nodes_[spec_.gpus[e].node]; }

  const ClusterSpec& spec_;
  const std::vector<NodeLinks>& nodes_;
  const Machines& machines_;
};

}  // namespace lk

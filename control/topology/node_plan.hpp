// NodePlan: one node with every number filled in: what its capture says, completed by options, then by the table of
// machines, then by guesses. Each guess is a line in `assumed`. Also decides which NICs are rails: those at PIX or PXB
// from a GPU, in the order of their GPU; others only when options name them. Pure; InputError when options name what
// the node does not have. Rates are payload rates of one direction.
#pragma once

#include <string>
#include <vector>

#include "control/topology/machines.hpp"
#include "control/topology/model.hpp"

namespace lk {

struct NodeOptions {
  std::string gpu, nic;            // rows of machines.toml; empty: from the capture, else guessed
  std::vector<std::string> rails;  // NICs by column or device name, in rail order; empty: by nearness
  unsigned ports_per_nic = 1;      // each port is a rail of its own and all share the NIC's slot
  GBps tcp_GBps = 0;               // 0: as a 25GbE port
};

struct NicPlan {
  std::string device;
  GBps slot_GBps = 0;
  std::uint16_t slot_lanes = 0;
};

// How one GPU stands to a rail.
struct RailView {
  bool own = false;   // its first choice
  bool near = false;  // no socket or host bridge between: worth using directly
  bool same_socket = false;
  double share = 1;  // of the GPU's slot, for what is between
};

struct RailPlan {
  std::size_t nic = 0;  // index in NodePlan::nics
  unsigned port = 1;
  GBps port_GBps = 0;
  std::size_t home = 0;        // the GPU whose order gives the rail its place
  std::vector<RailView> view;  // by GPU
};

struct NodePlan {
  std::size_t gpus = 0;
  std::string gpu_name;
  Fabric fabric = Fabric::kNone;
  std::uint16_t switch_planes = 0;
  GBps nvlink_GBps = 0;                     // one link
  std::vector<std::uint16_t> switch_links;  // by GPU, to the switch; 0 without a switch
  std::vector<std::uint16_t> bundles;       // [a * gpus + b] links of a direct bundle
  std::vector<double> pcie_share;           // [a * gpus + b] share of a slot that peer traffic reaches
  std::vector<GBps> slot_GBps;              // by GPU
  std::vector<std::uint16_t> slot_lanes;    // by GPU
  std::vector<NicPlan> nics;                // those that carry rails
  std::vector<RailPlan> rails;
  std::string netdev = "eth0";
  GBps tcp_GBps = 0;
  std::vector<std::string> assumed;

  std::uint16_t bundle(std::size_t a, std::size_t b) const noexcept { return bundles[a * gpus + b]; }
};

NodePlan plan_node(const NodeTopology& topology, const Machines& machines, const NodeOptions& options);

}  // namespace lk

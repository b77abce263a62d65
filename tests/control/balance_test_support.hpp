// Clusters for the tests of control/balance, built by hand: small, with every kind of lane, and independent of
// control/topology. Rates are payload GB/s, one direction.
#pragma once

#include <utility>
#include <vector>

#include "control/balance/balance.hpp"

namespace lk::balance_test {

struct Board {
  int nodes = 1;
  int gpus = 1;
  bool nvswitch = false;                    // every GPU to one switch
  std::vector<std::array<int, 3>> bundles;  // direct NVLink: gpu, gpu, links
  bool one_domain = false;                  // NVLink joins all nodes
  std::vector<int> gpu_of_nic;              // the GPU beside each NIC; rail i is NIC i
  GBps nvlink_GBps = 25;                    // one NVLink of a bundle
  GBps switch_GBps = 300;                   // GPU to switch
  GBps pcie_GBps = 25;                      // every slot
  GBps port_GBps = 24.3;
  GBps netdev_GBps = 2.5;
};

Board dgx_a100(int nodes);
Board dgx1_v100(int nodes);
Board mesh_4gpu(int nodes);
Board hgx_h100(int nodes);
Board pcie_8gpu(int nodes);
Board nvl72(int nodes);

ClusterSpec build(const Board& board);

std::vector<EndpointId> everyone(const ClusterSpec& cluster);
LinkId link_named(const ClusterSpec& cluster, const std::string& name);
// The first lane of this kind between the two, which must exist.
LaneId lane_between(const ClusterSpec& cluster, EndpointId a, EndpointId b, LaneKind kind);

}  // namespace lk::balance_test

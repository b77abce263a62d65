// ClusterSpec: what there is. Nodes, GPUs, NVLink domains, physical links, lanes and trunks of all nodes that this
// agent knows, as plain tables. Built once by control/topology, then immutable and shared by every thread. What is
// going on (state, weight, rate now) is elsewhere: api/route_table.hpp, api/snapshot.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class LinkKind : std::uint8_t { kNvlink, kPcie, kPort, kTcp };
enum class LaneKind : std::uint8_t { kNvlink, kPcie, kRelay, kHost, kRdma, kTcp };

constexpr const char* name_of(LinkKind k) noexcept {
  constexpr const char* kNames[] = {"nvlink", "pcie", "port", "tcp"};
  return kNames[static_cast<unsigned>(k)];
}
constexpr const char* name_of(LaneKind k) noexcept {
  constexpr const char* kNames[] = {"nvlink", "pcie", "relay", "host", "rdma", "tcp"};
  return kNames[static_cast<unsigned>(k)];
}

// One physical connection with one capacity per direction. Forward is: GPU a → GPU b for a direct NVLink bundle (a <
// b); GPU → NVSwitch; device → root for a PCIe slot; NIC → wire for a port and for the tcp netdev.
struct LinkSpec {
  std::string name;  // n0.gpu0.nvlink (to a switch), n0.gpu0-gpu3.nvlink, n0.gpu0.pcie, n0.mlx5_0.pcie,
                     // n0.mlx5_0.port1, n0.eth0
  LinkKind kind{};
  NodeId node = 0;                // the node whose agent watches it
  std::uint16_t width = 0;        // NVLinks in the bundle; PCIe lanes; 1 for a port
  GBps nominal_GBps = 0;          // one direction, payload rate that the data path can reach
  EndpointId gpu = kNoId16;       // GPU at the near end (NVLink, GPU's PCIe slot)
  EndpointId peer_gpu = kNoId16;  // GPU at the far end of a direct NVLink bundle
  std::string device;             // NIC name for its slot, its port or its netdev
  std::uint16_t rail = kNoId16;   // of a port
};

struct Hop {
  LinkId link = kNoId;
  Direction direction{};
};

// One way for chunks between endpoints a < b, both directions. A message lane is one queue pair: fencing it fences
// both.
struct LaneSpec {
  LaneKind kind{};
  TrunkId trunk = kNoId;
  EndpointId a = 0, b = 0;
  std::uint16_t rung = 0;      // place in the ladder of its trunk, 0 is the best; equal rungs share load
  bool addressable = false;    // read directly; else a message lane with landing slots
  std::vector<Hop> near_hops;  // hops owned by a's node, in the order a → b
  std::vector<Hop> far_hops;   // hops owned by b's node, in the order a → b; empty when both are on one node
  EndpointId via_a = kNoId16;  // relay neighbour, or the GPU of a's node beside the NIC that is used
  EndpointId via_b = kNoId16;  // same on b's node
  LinkId port_a = kNoId, port_b = kNoId;  // NIC ports of an rdma lane
  Nanos latency_ns = 0;                   // one way
  GBps nominal_GBps = 0;                  // least of its links' nominal rates (and the kind's own limit)
  std::string name;                       // n0.gpu0-n1.gpu0.rdma.mlx5_0, n0.gpu0-n0.gpu3.relay.gpu1
};

struct TrunkSpec {
  EndpointId a = 0, b = 0;  // a < b
  LaneId first_lane = 0;
  std::uint32_t lane_count = 0;  // lanes first_lane .. first_lane + lane_count - 1, by rung
};

struct GpuSpec {
  NodeId node = 0;
  std::uint16_t index = 0;  // on its node
  DomainId domain = 0;
  std::uint16_t column = 0;  // place among its domain's GPUs; between domains column i talks to column i
};

struct NodeSpec {
  std::string name;  // n0, n1, …, or the host name
  EndpointId first_gpu = 0;
  std::uint16_t gpu_count = 0;
  std::uint16_t rail_count = 0;
};

struct DomainSpec {
  std::vector<EndpointId> gpus;     // in order
  std::uint16_t switch_planes = 0;  // NVSwitch planes of one node's fabric; 0 when there is no switch
};

struct ClusterSpec {
  std::string profile;  // where it came from: "dgx-a100", a capture's file name
  std::vector<NodeSpec> nodes;
  std::vector<GpuSpec> gpus;
  std::vector<DomainSpec> domains;
  std::vector<LinkSpec> links;
  std::vector<LaneSpec> lanes;
  std::vector<TrunkSpec> trunks;
  std::unordered_map<std::uint32_t, TrunkId> trunk_of_pair;  // key: (a << 16) | b, a < b
  std::vector<std::string> assumed;  // one line for each fact that no capture gave, as printed to the user

  TrunkId trunk_between(EndpointId x, EndpointId y) const noexcept {
    const std::uint32_t key = x < y ? (std::uint32_t{x} << 16 | y) : (std::uint32_t{y} << 16 | x);
    const auto it = trunk_of_pair.find(key);
    return it == trunk_of_pair.end() ? kNoId : it->second;
  }
};

}  // namespace lk

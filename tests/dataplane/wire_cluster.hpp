// A small cluster for tests of the wires, and ports over it: two nodes of two GPUs. Rates in GB/s are small round
// numbers, so that expected times can be worked out by hand: nvlink 10, slots 8, ports 4, tcp 1; latency 1 µs in a
// node, 5 µs between nodes. Single thread, owned clock.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/lane/loopback/port.hpp"
#include "dataplane/lane/loopback/rates.hpp"
#include "dataplane/memory/slots.hpp"

namespace lk::test {

enum : LaneId { kNvlinkLane, kHostLane, kRail0, kRail1, kRail0Too, kTcpLane, kNvlinkLaneOfN1, kLaneCount };
enum : LinkId { kNvlink, kSlot, kPort0, kPort1, kTcp, kLinksPerNode };

inline LinkId link_of(NodeId node, LinkId which) { return node * kLinksPerNode + which; }

inline ClusterSpec wire_cluster(GBps port_of_n1 = 4) {
  ClusterSpec c;
  for (NodeId n = 0; n < 2; ++n) {
    const std::string name = "n" + std::to_string(n);
    const auto gpu = static_cast<EndpointId>(n * 2);
    c.nodes.push_back({name, gpu, 2, 2});
    for (std::uint16_t g = 0; g < 2; ++g) c.gpus.push_back({n, g, n, g});
    c.domains.push_back({{gpu, static_cast<EndpointId>(gpu + 1)}, 0});
    c.links.push_back(
        {name + ".gpu0-gpu1.nvlink", LinkKind::kNvlink, n, 1, 10, gpu, static_cast<EndpointId>(gpu + 1), ""});
    c.links.push_back({name + ".gpu0.pcie", LinkKind::kPcie, n, 16, 8, gpu, kNoId16, ""});
    for (unsigned p = 0; p < 2; ++p) {
      const std::string device = "mlx5_" + std::to_string(p);
      std::string port = name;
      port.append(".").append(device).append(".port1");
      c.links.push_back({port, LinkKind::kPort, n, 1, n == 1 ? port_of_n1 : 4, kNoId16, kNoId16, device});
    }
    c.links.push_back({name + ".eth0", LinkKind::kTcp, n, 1, 1, kNoId16, kNoId16, "eth0"});
  }
  const auto local = [&](LaneKind kind, NodeId n, bool addressable, LinkId link, GBps rate, const char* name) {
    LaneSpec l;
    l.kind = kind;
    l.a = static_cast<EndpointId>(n * 2);
    l.b = static_cast<EndpointId>(n * 2 + 1);
    l.addressable = addressable;
    l.near_hops = {{link_of(n, link), Direction::kForward}};
    l.latency_ns = 1 * kMicro;
    l.nominal_GBps = rate;
    l.name = "n" + std::to_string(n) + ".gpu0-n" + std::to_string(n) + ".gpu1." + name;
    c.lanes.push_back(l);
  };
  const auto rail = [&](LaneKind kind, EndpointId gpu, LinkId link, GBps rate, const char* name) {
    LaneSpec l;
    l.kind = kind;
    l.a = gpu;
    l.b = static_cast<EndpointId>(gpu + 2);
    l.near_hops = {{link_of(0, link), Direction::kForward}};
    l.far_hops = {{link_of(1, link), Direction::kBackward}};
    l.latency_ns = 5 * kMicro;
    l.nominal_GBps = rate;
    l.name = "n0.gpu" + std::to_string(gpu) + "-n1.gpu" + std::to_string(gpu) + "." + name;
    c.lanes.push_back(l);
  };
  const GBps port = port_of_n1 < 4 ? port_of_n1 : 4;
  local(LaneKind::kNvlink, 0, true, kNvlink, 10, "nvlink");
  local(LaneKind::kHost, 0, false, kSlot, 8, "host");
  rail(LaneKind::kRdma, 0, kPort0, port, "rdma.mlx5_0");
  rail(LaneKind::kRdma, 1, kPort1, port, "rdma.mlx5_1");
  rail(LaneKind::kRdma, 1, kPort0, port, "rdma.mlx5_0");
  rail(LaneKind::kTcp, 0, kTcp, 1, "tcp");
  local(LaneKind::kNvlink, 1, true, kNvlink, 10, "nvlink");
  return c;
}

// Both nodes' ports over one net, each under a FaultWire, stepped by hand.
struct WirePair {
  explicit WirePair(bool payload = true, GBps port_of_n1 = 4, unsigned staging = 64)
      : cluster(wire_cluster(port_of_n1)), net(cluster, options(payload, staging), {}) {
    FaultOptions faults;
    faults.payload = payload;
    for (NodeId n = 0; n < 2; ++n) {
      slots.push_back(std::make_unique<SlotTable>(256, kSlotBytes));
      ports.push_back(std::make_unique<LoopbackPort>(net, n, slots[n]->memory()));
      rates.push_back(std::make_unique<LoopbackRates>(*ports[n]));
      wires.push_back(std::make_unique<FaultWire>(cluster, n, *ports[n], slots[n]->memory(), rates[n].get(), faults));
    }
  }
  static constexpr Bytes kSlotBytes = 65536;
  static LoopbackOptions options(bool payload, unsigned staging) {
    LoopbackOptions o;
    o.payload = payload;
    o.staging_bytes = kSlotBytes;
    o.staging_count = staging;
    return o;
  }
  // One request over `lane`; far ones go from node 0 when `d` is forward.
  static WorkRequest request(const ClusterSpec& c, LaneId lane, Direction d, std::uint64_t id, std::uint32_t bytes,
                             std::uint32_t slot = 0, const std::byte* payload = nullptr, std::uint32_t epoch = 1) {
    WorkRequest q;
    q.id = id;
    q.lane = lane;
    q.epoch = epoch;
    q.direction = d;
    q.kind = c.lanes[lane].addressable ? RequestKind::kRead : RequestKind::kWrite;
    q.slot = slot;
    q.immediate = slot << 16 | 1;
    q.bytes = bytes;
    q.payload = payload;
    q.header.token = id;
    q.header.length = bytes;
    return q;
  }
  struct Seen {
    Nanos at;
    NodeId node;
    Completion c;
  };
  // Steps both nodes from event to event until `end`; everything that comes out, with its time.
  std::vector<Seen> run_to(Nanos end) {
    std::vector<Seen> all;
    while (true) {
      for (NodeId n = 0; n < 2; ++n) {
        Completion out[16];
        for (unsigned k = 16; k == 16;) {
          k = wires[n]->poll(out, now);
          for (unsigned i = 0; i < k; ++i) all.push_back({now, n, out[i]});
        }
      }
      // A message in the other's inbox is seen by asking again: a node that was just polled may have sent one.
      Nanos next = kNever;
      for (NodeId n = 0; n < 2; ++n) {
        Completion out[16];
        const unsigned k = wires[n]->poll(out, now);
        for (unsigned i = 0; i < k; ++i) all.push_back({now, n, out[i]});
        next = std::min(next, wires[n]->next_time(now));
      }
      if (next > end) break;
      if (next > now) now = next;
    }
    now = end;
    return all;
  }
  std::size_t free_staging(NodeId node) {  // empties the pool: the last question of a test
    std::size_t n = 0;
    while (net.take_staging(node) != kNoId) ++n;
    return n;
  }

  ClusterSpec cluster;
  LoopbackNet net;
  std::vector<std::unique_ptr<SlotTable>> slots;
  std::vector<std::unique_ptr<LoopbackPort>> ports;
  std::vector<std::unique_ptr<LoopbackRates>> rates;
  std::vector<std::unique_ptr<FaultWire>> wires;
  Nanos now = 0;
};

inline std::vector<WirePair::Seen> only(const std::vector<WirePair::Seen>& all, CompletionKind kind) {
  std::vector<WirePair::Seen> some;
  for (const auto& s : all) {
    if (s.c.kind == kind) some.push_back(s);
  }
  return some;
}

}  // namespace lk::test

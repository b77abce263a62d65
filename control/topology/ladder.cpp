#include "control/topology/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace lk {
namespace {

constexpr std::uint16_t kNvlinkRung = 0, kRelayRung = 1, kPcieRung = 2, kHostRung = 3, kTcpRung = 9;
constexpr GBps kNoLimit = std::numeric_limits<GBps>::infinity();
constexpr Direction kOut = Direction::kForward, kIn = Direction::kBackward;

}  // namespace

// How a GPU reaches a rail's port.
struct Ladder::Side {
  std::uint16_t rung = 0;  // 0 own NIC, 1 a neighbour's, 2 over PCIe on one socket, 3 across sockets
  std::vector<Hop> hops;   // GPU → wire
  EndpointId via = kNoId16;
  Nanos more_ns = 0;
  GBps limit = kNoLimit;
};

LaneSpec Ladder::start(LaneKind kind, EndpointId a, EndpointId b, std::uint16_t rung) const {
  LaneSpec lane;
  lane.kind = kind;
  lane.a = a;
  lane.b = b;
  lane.rung = rung;
  lane.latency_ns = machines_.lane(lk::name_of(kind)).latency_ns;
  const GpuSpec& x = spec_.gpus[a];
  const GpuSpec& y = spec_.gpus[b];
  lane.name = fmt::format("{}.gpu{}-{}.gpu{}.{}", spec_.nodes[x.node].name, x.index, spec_.nodes[y.node].name, y.index,
                          lk::name_of(kind));
  return lane;
}

void Ladder::finish(LaneSpec& lane, GBps limit, std::vector<LaneSpec>& out) const {
  GBps rate = kNoLimit;
  for (const Hop& hop : lane.near_hops) rate = std::min(rate, spec_.links[hop.link].nominal_GBps);
  for (const Hop& hop : lane.far_hops) rate = std::min(rate, spec_.links[hop.link].nominal_GBps);
  lane.nominal_GBps = std::min(rate * machines_.lane(lk::name_of(lane.kind)).share, limit);
  out.push_back(std::move(lane));
}

// GPU to GPU of one node over NVLink, direct or through the switch. False when there is no such way.
bool Ladder::nvlink_hops(const NodeLinks& node, std::size_t from, std::size_t to, std::vector<Hop>& out) const {
  if (node.to_switch[from] != kNoId && node.to_switch[to] != kNoId) {
    out.push_back({node.to_switch[from], kOut});
    out.push_back({node.to_switch[to], kIn});
    return true;
  }
  const LinkId bundle = node.bundle[from * node.plan->gpus + to];
  if (bundle == kNoId) return false;
  out.push_back({bundle, from < to ? kOut : kIn});
  return true;
}

void Ladder::add_nvlink(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const {
  const GpuSpec& x = spec_.gpus[a];
  const GpuSpec& y = spec_.gpus[b];
  LaneSpec lane = start(LaneKind::kNvlink, a, b, kNvlinkRung);
  if (x.node == y.node) {
    lane.addressable = true;
    if (!nvlink_hops(node_of(a), x.index, y.index, lane.near_hops)) return;
  } else {
    // The GPU of another node is not mapped here: chunks go as messages.
    const LinkId near = node_of(a).to_switch[x.index];
    const LinkId far = node_of(b).to_switch[y.index];
    if (near == kNoId || far == kNoId) return;
    lane.near_hops = {{near, kOut}};
    lane.far_hops = {{far, kIn}};
  }
  finish(lane, kNoLimit, out);
}

void Ladder::add_relays(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const {
  const NodeLinks& node = node_of(a);
  const std::size_t x = spec_.gpus[a].index;
  const std::size_t y = spec_.gpus[b].index;
  if (node.to_switch[x] != kNoId) return;  // all ways through a switch are the same way
  for (std::size_t r = 0; r < node.plan->gpus; ++r) {
    LaneSpec lane = start(LaneKind::kRelay, a, b, kRelayRung);
    if (r == x || r == y || !nvlink_hops(node, x, r, lane.near_hops) || !nvlink_hops(node, r, y, lane.near_hops))
      continue;
    lane.via_a = static_cast<EndpointId>(spec_.nodes[spec_.gpus[a].node].first_gpu + r);
    lane.name += fmt::format(".gpu{}", r);
    finish(lane, kNoLimit, out);
  }
}

void Ladder::add_pcie(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const {
  const NodeLinks& node = node_of(a);
  const std::size_t x = spec_.gpus[a].index;
  const std::size_t y = spec_.gpus[b].index;
  const GBps slot = std::min(node.plan->slot_GBps[x], node.plan->slot_GBps[y]);
  const GBps peer = slot * node.plan->pcie_share[x * node.plan->gpus + y];
  LaneSpec pcie = start(LaneKind::kPcie, a, b, kPcieRung);
  pcie.addressable = true;
  pcie.near_hops = {{node.gpu_slot[x], kOut}, {node.gpu_slot[y], kIn}};
  LaneSpec host = start(LaneKind::kHost, a, b, kHostRung);
  host.near_hops = pcie.near_hops;
  finish(pcie, peer, out);
  finish(host, peer, out);
}

Ladder::Side Ladder::rail_side(EndpointId gpu, std::size_t rail) const {
  const NodeLinks& node = node_of(gpu);
  const std::size_t own = spec_.gpus[gpu].index;
  const RailPlan& plan = node.plan->rails[rail];
  Side side;
  std::size_t slot = own;  // the GPU whose PCIe slot is used
  if (!plan.view[own].own && !plan.view[own].near) {
    std::size_t best = node.plan->gpus;
    unsigned widest = 0;
    for (std::size_t g = 0; g < node.plan->gpus; ++g) {
      std::vector<Hop> hops;
      if (g == own || !(plan.view[g].near || plan.view[g].own) || !nvlink_hops(node, own, g, hops)) continue;
      unsigned width = std::numeric_limits<unsigned>::max();
      for (const Hop& hop : hops) width = std::min<unsigned>(width, spec_.links[hop.link].width);
      if (width < widest || (width == widest && g != plan.home)) continue;
      widest = width;
      best = g;
    }
    if (best < node.plan->gpus) {
      nvlink_hops(node, own, best, side.hops);
      slot = best;
      side.via = static_cast<EndpointId>(spec_.nodes[spec_.gpus[gpu].node].first_gpu + best);
      side.more_ns = machines_.lane("neighbour").latency_ns;
      side.rung = 1;
    } else {
      side.rung = plan.view[own].same_socket ? 2 : 3;
    }
  } else if (!plan.view[own].own) {
    side.rung = 1;  // a neighbour's NIC behind the same PCIe switch
  }
  side.limit = node.plan->slot_GBps[slot] * plan.view[slot].share;
  side.hops.push_back({node.gpu_slot[slot], kOut});
  side.hops.push_back({node.nic_slot[plan.nic], kIn});
  side.hops.push_back({node.port[rail], kOut});
  return side;
}

void Ladder::add_rails(EndpointId a, EndpointId b, std::uint16_t first_rung, std::vector<LaneSpec>& out) const {
  const NodeLinks& near = node_of(a);
  const NodeLinks& far = node_of(b);
  const std::size_t rails = std::min(near.plan->rails.size(), far.plan->rails.size());
  std::vector<LaneSpec> lanes;
  for (std::size_t rail = 0; rail < rails; ++rail) {
    Side x = rail_side(a, rail);
    Side y = rail_side(b, rail);
    LaneSpec lane = start(LaneKind::kRdma, a, b, static_cast<std::uint16_t>(first_rung + std::max(x.rung, y.rung)));
    lane.near_hops = std::move(x.hops);
    // The far side is the same way, walked from the wire to the GPU.
    for (auto hop = y.hops.rbegin(); hop != y.hops.rend(); ++hop)
      lane.far_hops.push_back({hop->link, opposite(hop->direction)});
    lane.via_a = x.via;
    lane.via_b = y.via;
    lane.port_a = near.port[rail];
    lane.port_b = far.port[rail];
    lane.latency_ns += x.more_ns + y.more_ns;
    const RailPlan& plan = near.plan->rails[rail];
    lane.name += fmt::format(".{}", near.plan->nics[plan.nic].device);
    if (near.plan->rails.size() > near.plan->nics.size()) lane.name += fmt::format(".port{}", plan.port);
    finish(lane, std::min(x.limit, y.limit), lanes);
  }
  std::stable_sort(lanes.begin(), lanes.end(), [](const LaneSpec& l, const LaneSpec& r) { return l.rung < r.rung; });
  for (LaneSpec& lane : lanes) out.push_back(std::move(lane));
}

void Ladder::add_tcp(EndpointId a, EndpointId b, std::vector<LaneSpec>& out) const {
  LaneSpec lane = start(LaneKind::kTcp, a, b, kTcpRung);
  lane.near_hops = {{node_of(a).gpu_slot[spec_.gpus[a].index], kOut}, {node_of(a).netdev, kOut}};
  lane.far_hops = {{node_of(b).netdev, kIn}, {node_of(b).gpu_slot[spec_.gpus[b].index], kIn}};
  finish(lane, kNoLimit, out);
}

std::vector<LaneSpec> Ladder::lanes(EndpointId a, EndpointId b) const {
  std::vector<LaneSpec> out;
  const bool one_domain = spec_.gpus[a].domain == spec_.gpus[b].domain;
  if (one_domain) add_nvlink(a, b, out);
  if (spec_.gpus[a].node == spec_.gpus[b].node) {
    add_relays(a, b, out);
    add_pcie(a, b, out);
    return out;
  }
  add_rails(a, b, one_domain ? 1 : 0, out);
  add_tcp(a, b, out);
  return out;
}

}  // namespace lk

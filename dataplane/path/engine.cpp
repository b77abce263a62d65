// Set-up of an engine and its turn.
#include "dataplane/path/engine.hpp"

#include <algorithm>

namespace lk {

Engine::Engine(const ClusterSpec& cluster, NodeId node, const EngineOptions& options, Wire& wire, SlotTable& slots,
               Incarnation incarnation)
    : cluster_(cluster), node_(node), options_(options), wire_(wire), slots_(slots), incarnation_(incarnation) {
  peers_ = std::make_unique<Peer[]>(cluster.nodes.size());
  transfers_.reserve(options.transfers);
  posted_.reserve(options.transfers);
  relay_free_.assign(cluster.gpus.size(), options.relay_buffers);
  link_queued_.assign(cluster.links.size() * 2, 0);
  for (const LinkSpec& link : cluster.links) {
    link_rate_.push_back(link.nominal_GBps);
    link_rate_.push_back(link.nominal_GBps);
  }
  build_sides();
  next_heartbeat_ = options.heartbeat_ns;
}

Engine::~Engine() = default;

void Engine::build_sides() {
  const NodeSpec& me = cluster_.nodes[node_];
  sides_.resize(cluster_.lanes.size() * 2);
  trunk_index_.assign(std::size_t{me.gpu_count} * cluster_.gpus.size(), kNoId);
  for (LaneId id = 0; id < cluster_.lanes.size(); ++id) {
    const LaneSpec& lane = cluster_.lanes[id];
    for (unsigned d = 0; d < 2; ++d) {
      const bool forward = d == 0;
      LaneSide& s = sides_[id * 2 + d];
      s.lane = id;
      s.direction = static_cast<Direction>(d);
      s.from = forward ? lane.a : lane.b;
      s.to = forward ? lane.b : lane.a;
      s.far = !lane.far_hops.empty();
      s.addressable = lane.addressable;
      s.ours = cluster_.gpus[s.from].node == node_;
      s.peer = cluster_.gpus[s.to].node;
      s.relay = s.far ? (forward ? lane.via_a : lane.via_b) : lane.via_a;
      s.rung = lane.rung;
      s.kind = lane.kind;
      s.latency_ns = lane.latency_ns;
      s.nominal_GBps = s.standby_GBps = lane.nominal_GBps;
      if (!s.ours) continue;
      const std::size_t key = std::size_t{s.from} - me.first_gpu;
      std::uint32_t& trunk = trunk_index_[key * cluster_.gpus.size() + s.to];
      if (trunk == kNoId) {
        trunk = static_cast<std::uint32_t>(trunks_.size());
        trunks_.emplace_back();
        trunks_.back().from = s.from;
        trunks_.back().to = s.to;
        trunks_.back().far = s.far;
      }
      s.trunk = trunk;
      s.missing.reserve(kLaneRequests);
      ours_.push_back(id * 2 + d);
      trunks_[trunk].sides.push_back(id * 2 + d);
      if (s.far) peers_[s.peer].sides.push_back(id * 2 + d);
    }
  }
  const auto by_rung = [this](std::uint32_t x, std::uint32_t y) { return sides_[x].rung < sides_[y].rung; };
  for (Trunk& t : trunks_) std::stable_sort(t.sides.begin(), t.sides.end(), by_rung);
  for (std::size_t n = 0; n < cluster_.nodes.size(); ++n) {
    std::stable_sort(peers_[n].sides.begin(), peers_[n].sides.end(), by_rung);
  }
}

std::uint32_t Engine::find_trunk(EndpointId from, EndpointId to) const noexcept {
  const std::size_t key = std::size_t{from} - cluster_.nodes[node_].first_gpu;
  return trunk_index_[key * cluster_.gpus.size() + to];
}

std::uint32_t Engine::our_side(LaneId lane, Direction d) const noexcept {
  const std::uint32_t side = side_index(lane, d);
  return sides_[side].far && !sides_[side].ours ? side ^ 1U : side;
}

// The order of a turn: what the control plane asks first, so that a verdict is in force before anything is sent; then
// what arrived, which frees lanes and slots; then new ops; then the lanes are fed; last, what is due by time.
unsigned Engine::poll(Nanos now) noexcept {
  ++turn_;
  unsigned work = take_commands(now);
  work += take_signals(now);
  work += take_completions(now);
  work += take_requests(now);
  work += run_dirty(now);
  if (now >= next_tick_) tick(now);
  deliver_failed_all(now);
  flush_credits(now);
  flush_acks(now);
  work += deliver_late_results();
  ++counters_[work != 0 ? Counter::turn_busy : Counter::turn_idle];
  return work;
}

Nanos Engine::next_time(Nanos now) const noexcept {
  if (!dirty_.empty() || !late_results_.empty()) return now;
  return std::min(std::min(next_tick_, next_heartbeat_), wire_.next_time(now));
}

}  // namespace lk

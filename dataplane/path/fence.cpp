// Fence: a lane fails. Its chunks are sent again at once into fresh slots elsewhere; the slots that it may still write
// are in quarantine until both ends have reset their queue pair and said so. The fence guards the reuse of memory,
// never the failover. Fence(lane, epoch) may be repeated and may cross; it ends both directions.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {
namespace {
constexpr std::uint64_t kNoToken = ~std::uint64_t{0};  // a slot whose chunk got through another way
}

void Engine::fail_side(std::uint32_t side, Cause cause, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  if (s.state == LaneState::kFencing || s.state == LaneState::kDown || s.state == LaneState::kOff) return;
  const bool was_probing = s.state == LaneState::kProbing;
  if (s.state == LaneState::kUp) ailing_.push_back(side);
  s.failed_at = now;
  s.orphan_reported = false;
  ++s.failures;
  ++counters_[Counter::lane_failed];
  s.fence_count = 0;
  s.state = s.far ? LaneState::kFencing : LaneState::kDown;
  s.fence_acknowledged = false;
  wire_.reset(s.lane, s.direction);
  if (!was_probing) emit_lane(EventKind::kLaneDown, s, cause, 0, now);
  take_orphans(side, cause, now);
  mark_dirty(s.trunk);
  if (!other_live(s)) {
    // Another suspected lane may owe only what was told over this one: it is judged anew.
    for (const std::uint32_t i : trunks_[s.trunk].sides) {
      if (sides_[i].state == LaneState::kStalled) sides_[i].stalled_at = now;
    }
    keep_last_way(trunks_[s.trunk], now);
  }
  if (!s.far) {
    for (const MissingSlot& m : s.missing) free_missing(m.word);
    s.missing.clear();
    return schedule_probe(s, now);
  }
  Event e;
  e.kind = EventKind::kFenceStarted;
  e.lane = s.lane;
  e.direction = s.direction;
  e.cause = cause;
  emit(e, now);
  counters_[Counter::slot_quarantined] += s.fence_count;
  if (peers_[s.peer].dead) return finish_fence(side, now);
  send_fence(s, now);
  tell_again(s.peer, now);
}

// What was under way on the lane goes elsewhere at once; its slots are remembered for the fence.
void Engine::take_orphans(std::uint32_t side, Cause cause, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  std::uint32_t ri = s.tail;
  while (ri != kNoId) {
    const std::uint32_t previous = posted_[ri].previous;
    Request& r = posted_[ri];
    const std::uint32_t xi = r.transfer;
    Transfer& x = transfers_[xi];
    if (s.far && r.slot != kNoId && s.fence_count < kLaneRequests) {
      s.fence_slots[s.fence_count] = r.slot;
      s.fence_tokens[s.fence_count++] = std::uint64_t{x.generation} << 32 | xi;
    }
    if (!x.retired && !x.cancelled && !x.queued && x.last_side == side) {
      x.resend = true;
      x.hedge = cause == Cause::kStall;
      x.orphaned_at = cause == Cause::kStall ? r.posted_at : now;
      enqueue(xi, true);
    }
    if (r.reaped) settle(ri, now);
    ri = previous;
  }
  if (!s.far) return;
  for (const MissingSlot& m : s.missing) {
    if (s.fence_count == kLaneRequests) break;
    s.fence_slots[s.fence_count] = m.word;
    s.fence_tokens[s.fence_count++] = kNoToken;
  }
  s.missing.clear();
}

void Engine::send_fence(LaneSide& s, Nanos now) noexcept {
  s.fence_retry_at = now + options_.fence_retry_ns;
  arm(s.fence_retry_at);
  Signal f = new_signal(SignalKind::kFence, s.peer);
  f.lane = s.lane;
  f.epoch = s.epoch;
  for (unsigned i = 0; i < s.fence_count; ++i) {
    f.words[i / 2] |= std::uint64_t{s.fence_slots[i]} << (i % 2 == 0 ? 0 : 32);
  }
  if (s.fence_count % 2 == 1) f.words[s.fence_count / 2] |= std::uint64_t{0xffffffffU} << 32;
  f.count = static_cast<std::uint8_t>((s.fence_count + 1) / 2);
  send_signal(f, now, s.lane);
}

// The slots that the peer names: what never landed is granted anew, and the bitmap says what did.
std::uint64_t Engine::reclaim(const Signal& f, NodeId peer, Nanos now) noexcept {
  std::uint64_t have = 0;
  for (unsigned i = 0; i < f.count * 2U; ++i) {
    const auto word = static_cast<std::uint32_t>(i % 2 == 0 ? f.words[i / 2] : f.words[i / 2] >> 32);
    const std::uint32_t slot = word >> 16;
    if (word == 0xffffffffU || slot >= slots_.size()) continue;
    const std::uint32_t owner = slots_.owner(slot);
    if (owner == kNoId || cluster_.gpus[flows_[owner].from].node != peer) continue;
    if (slots_.generation(slot) == (word & 0xffff) && slots_.state(slot) == SlotState::kGranted) {
      ++counters_[Counter::slot_reclaimed];
      free_landed(slot);
    } else if (slots_.was_committed(slot, static_cast<std::uint16_t>(word))) {
      have |= std::uint64_t{1} << i;
    }
  }
  flush_credits(now);
  return have;
}

void Engine::on_fence(const Signal& f, Nanos now) noexcept {
  if (f.lane >= cluster_.lanes.size()) return;
  std::uint32_t side = side_index(f.lane, Direction::kForward);
  if (!sides_[side].ours) side ^= 1U;
  LaneSide& s = sides_[side];
  if (!s.ours || !s.far || s.peer != f.from) return;
  if (f.epoch == s.epoch) {
    if (s.state == LaneState::kUp || s.state == LaneState::kStalled || s.state == LaneState::kProbing) {
      fail_side(side, Cause::kFencedByPeer, now);
    }
  } else if (static_cast<std::int32_t>(f.epoch - s.epoch) > 0) {
    return;  // of a life of the lane that has not begun here
  }
  // Our side of that epoch is reset: nothing of the peer's can land any more, its slots may be used again.
  Signal a = new_signal(SignalKind::kFenceAck, f.from);
  a.lane = f.lane;
  a.epoch = f.epoch;
  a.count = 1;
  a.words[0] = reclaim(f, f.from, now);
  send_signal(a, now, f.lane);
}

void Engine::on_fence_ack(const Signal& f, Nanos now) noexcept {
  if (f.lane >= cluster_.lanes.size()) return;
  std::uint32_t side = side_index(f.lane, Direction::kForward);
  if (!sides_[side].ours) side ^= 1U;
  LaneSide& s = sides_[side];
  if (!s.ours || s.peer != f.from || s.state != LaneState::kFencing || f.epoch != s.epoch || s.fence_acknowledged)
    return;
  s.fence_acknowledged = true;
  for (unsigned i = 0; i < s.fence_count; ++i) {
    if ((f.words[0] >> i & 1) == 0 || s.fence_tokens[i] == kNoToken) continue;
    // It has this chunk: the acknowledgement was lost.
    const auto xi = static_cast<std::uint32_t>(s.fence_tokens[i]);
    Transfer& x = transfers_[xi];
    if (x.op == nullptr || x.generation != static_cast<std::uint32_t>(s.fence_tokens[i] >> 32) || x.retired ||
        x.cancelled)
      continue;
    ++counters_[Counter::chunk_acknowledged];
    retire(xi, now);
  }
  // An acknowledgement is only sent by a side that has reset: nothing of the peer's can land here either.
  finish_fence(side, now);
}

void Engine::finish_fence(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  s.state = LaneState::kDown;
  ++counters_[Counter::fence_completed];
  Event e;
  e.kind = EventKind::kFenceDone;
  e.lane = s.lane;
  e.direction = s.direction;
  e.value = s.fence_count;
  emit(e, now);
  s.fence_count = 0;
  schedule_probe(s, now);
  if (!peers_[s.peer].dead) tell_again(s.peer, now);  // what else was lost with the lane
}

// A port or an NVLink of ours said so itself.
void Engine::on_port(LinkId link, bool up, Nanos now) noexcept {
  Event e;
  e.kind = up ? EventKind::kLinkUp : EventKind::kLinkDown;
  e.cause = Cause::kPortEvent;
  e.link = link;
  emit(e, now);
  const NodeId node = cluster_.links[link].node;
  for (const std::uint32_t side : ours_) {
    LaneSide& s = sides_[side];
    bool over = false;
    const LaneSpec& lane = spec_of(s);
    for (const Hop& h : lane.near_hops) over = over || h.link == link;
    for (const Hop& h : lane.far_hops) over = over || (h.link == link && node == node_);
    if (!over) continue;
    s.link_down = !up;
    if (!up) {
      fail_side(side, Cause::kPortEvent, now);
    } else if (s.state == LaneState::kDown) {
      s.probe_at = std::min(s.probe_at, std::max(now, s.held_until));
      arm(s.probe_at);
    }
  }
}

// A dead node: its lanes are reset here, so nothing of it can land; it loses its slots; nothing is probed.
void Engine::forget_peer(NodeId node, Nanos now) noexcept {
  Peer& p = peers_[node];
  p.dead = true;
  p.told = {};
  for (const std::uint32_t side : p.sides) {
    if (sides_[side].state == LaneState::kFencing)
      finish_fence(side, now);
    else
      fail_side(side, Cause::kPeerDead, now);
    sides_[side].probe_at = kNever;
    wire_.reset(sides_[side].lane, sides_[side].direction);
  }
  for (auto& g : groups_) {
    if (g == nullptr || g->ended) continue;
    if (std::find(g->nodes.begin(), g->nodes.end(), node) == g->nodes.end()) continue;
    Rank lost = kNoId16;
    for (Rank r = 0; r < g->spec->members.size() && lost == kNoId16; ++r) {
      if (cluster_.gpus[g->spec->members[r]].node == node) lost = r;
    }
    for (auto& op : g->ops) {
      if (op != nullptr && op->open) fail_op(*op, Status::kNodeLost, node, lost, true, now);
    }
    g->hold_from = 0;  // nothing starts before the group has shrunk or ended
  }
  for (Flow& f : flows_) {
    const EndpointId other = f.outgoing ? f.to : f.from;
    if (cluster_.gpus[other].node != node) continue;
    f.active = false;
    f.remote.clear();
    f.to_advertise.clear();
    for (const std::uint32_t slot : f.granted) {
      if (slots_.state(slot) == SlotState::kGranted) slots_.give_back(slot);
    }
    std::erase_if(f.granted, [&](std::uint32_t slot) { return slots_.owner(slot) == kNoId; });
  }
}

}  // namespace lk

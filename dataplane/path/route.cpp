// Route: a transfer takes the lane of its trunk that will finish it first, as far as its weight, the bytes queued
// before it and the rates of the links on its way tell.
#include <algorithm>
#include <limits>

#include "dataplane/path/engine.hpp"

namespace lk {

void Engine::mark_dirty(std::uint32_t trunk) noexcept {
  if (trunks_[trunk].dirty) return;
  trunks_[trunk].dirty = true;
  dirty_.push_back(trunk);
}

// Feeds every trunk that has something to send and may have got room. One chunk a trunk and round, so that trunks that
// share a link share it evenly.
unsigned Engine::run_dirty(Nanos now) noexcept {
  unsigned work = 0;
  for (unsigned round = 0; round < 64 && !dirty_.empty(); ++round) {
    const std::size_t n = dirty_.size();
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t trunk = dirty_[i];
      trunks_[trunk].dirty = false;
      if (pump(trunk, now)) {
        ++work;
        mark_dirty(trunk);
      }
    }
    dirty_.erase(dirty_.begin(), dirty_.begin() + static_cast<std::ptrdiff_t>(n));
  }
  return work;
}

// Posts one transfer of the trunk; false when none can go now.
bool Engine::pump(std::uint32_t index, Nanos now) noexcept {
  Trunk& trunk = trunks_[index];
  for (std::size_t tried = 0; tried < trunk.flows.size(); ++tried) {
    Flow& flow = flows_[trunk.flows[(trunk.next_flow + tried) % trunk.flows.size()]];
    while (flow.head != kNoId && (transfers_[flow.head].retired || transfers_[flow.head].cancelled)) {
      const std::uint32_t gone = flow.head;
      flow.head = transfers_[gone].next;
      if (flow.head == kNoId) flow.tail = kNoId;
      --flow.waiting;
      transfers_[gone].queued = false;
      free_transfer_if_done(gone);
    }
    if (flow.head == kNoId) continue;
    const std::uint32_t index_of_head = flow.head;
    Transfer& x = transfers_[index_of_head];
    if (trunk.far && (x.op->number > flow.granted_op || free_slot(flow, x) == nullptr)) continue;
    const std::uint32_t side = choose_side(trunk, x, now);
    if (side == kNoId) return false;  // the lanes are the trunk's, another flow has no other
    if (!post(index_of_head, side, now)) {
      if (std::find(starved_.begin(), starved_.end(), index) == starved_.end()) starved_.push_back(index);
      return false;
    }
    flow.head = x.next;
    if (flow.head == kNoId) flow.tail = kNoId;
    --flow.waiting;
    x.next = kNoId;
    x.queued = false;
    note_rung(trunk, sides_[side], now);
    trunk.next_flow = (trunk.next_flow + tried + 1) % trunk.flows.size();
    return true;
  }
  return false;
}

// What a lane may carry while the table in force does not count on it. One that came back a moment ago, and whose
// return the table has not seen, begins with an eighth.
GBps Engine::standby_of(const LaneSide& s) const noexcept {
  return s.fresh ? s.standby_GBps : std::min(s.standby_GBps > 0 ? s.standby_GBps : s.nominal_GBps, s.nominal_GBps) / 8;
}

double Engine::cost_ns(const LaneSide& s, Bytes bytes, GBps rate) const noexcept {
  double cost = static_cast<double>(s.queued_bytes + bytes) / rate;
  each_hop(s, [&](std::size_t hop) {
    const GBps r = link_rate_[hop];
    cost = std::max(cost, r > 0 ? static_cast<double>(link_queued_[hop] + bytes) / r : 1e15);
  });
  return cost + static_cast<double>(s.latency_ns);
}

// A few chunks a lane: enough to keep all links of its way busy, few enough to be sent again quickly.
bool Engine::has_room(const LaneSide& s, Bytes bytes) const noexcept {
  constexpr Bytes kWindowChunks = 12;
  const auto way = static_cast<Bytes>(s.nominal_GBps * 2.0 * static_cast<double>(s.latency_ns));
  return s.queued_bytes + bytes <= std::max(kWindowChunks * bytes, bytes + way) && s.request_count + 8 <= kLaneRequests;
}

// Lanes with a rate take turns in proportion to it: the table has shared out the links among all trunks, and a lane
// that took more than its part would take it from another trunk. A lane whose turn it is and that is full is waited
// for, unless it is much slower than the table thinks.
std::uint32_t Engine::choose_by_turn(const Trunk& t, const Transfer& x, bool& live, Nanos now) noexcept {
  std::uint32_t best = kNoId;
  double best_turn = std::numeric_limits<double>::max();
  for (const std::uint32_t i : t.sides) {
    const LaneSide& s = sides_[i];
    const GBps rate = rate_of(s);
    if (s.state != LaneState::kUp || rate <= 0 || (i == x.last_side && x.resend && other_live(s))) continue;
    live = true;
    const bool slow = !has_room(s, x.bytes) && static_cast<double>(now - s.progress_at) * rate > 16.0 * x.bytes;
    if (slow || s.turn_bytes / rate >= best_turn) continue;
    best_turn = s.turn_bytes / rate;
    best = i;
  }
  return best != kNoId && has_room(sides_[best], x.bytes) ? best : kNoId;
}

// No lane with a rate is left: the lowest live rung, and there the lane that will be done first.
std::uint32_t Engine::choose_stand_by(const Trunk& t, const Transfer& x, bool& live) noexcept {
  std::uint32_t best = kNoId;
  double best_cost = std::numeric_limits<double>::max();
  std::uint16_t rung = 0xffff;
  for (const std::uint32_t i : t.sides) {
    const LaneSide& s = sides_[i];
    const GBps rate = standby_of(s);
    if (s.state != LaneState::kUp || rate <= 0 || (i == x.last_side && x.resend && other_live(s))) continue;
    if (live && s.rung > rung) break;
    live = true;
    rung = s.rung;
    if (!has_room(s, x.bytes)) continue;
    const double cost = cost_ns(s, x.bytes, rate);
    if (cost < best_cost) {
      best_cost = cost;
      best = i;
    }
  }
  return best;
}

std::uint32_t Engine::choose_side(const Trunk& t, const Transfer& x, Nanos now) noexcept {
  bool live = false;
  std::uint32_t best = choose_by_turn(t, x, live, now);
  if (live) return best;
  best = choose_stand_by(t, x, live);
  if (live || !x.resend) return best;
  for (const std::uint32_t i : t.sides) {  // nothing else is left: again on a lane that is only suspected
    if (sides_[i].state == LaneState::kStalled && sides_[i].request_count + 1 < kLaneRequests) return i;
  }
  return kNoId;
}

// Every step down or up the ladder is an event.
void Engine::note_rung(Trunk& t, const LaneSide& s, Nanos now) noexcept {
  if (t.last_rung == s.rung) return;
  const auto best = sides_[t.sides.front()].rung;
  const bool first_use = t.last_rung == 0xff;
  const std::uint64_t steps = std::uint64_t{first_use ? best : std::uint16_t{t.last_rung}} << 8 | s.rung;
  t.last_rung = static_cast<std::uint8_t>(s.rung);
  if (first_use && s.rung == best) return;
  Event e;
  e.kind = EventKind::kRungStep;
  e.lane = s.lane;
  e.direction = s.direction;
  e.value = steps;
  emit(e, now);
}

}  // namespace lk

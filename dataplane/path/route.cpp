// Route: a transfer takes the lane of its trunk that will finish it first, as far as its weight, the bytes queued
// before it and the rates of the links on its way tell.
#include <algorithm>
#include <limits>

#include "dataplane/path/engine.hpp"

namespace lk {
namespace {

constexpr double kLeadNs = 1e6;  // how far ahead of its turn a lane may be, in the time that its rate needs for it

}  // namespace

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
    const std::uint32_t side = choose_side(trunk, x);
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
    note_rung(trunk, now);
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

// How much may be queued on a lane: as much as keeps all links of its way busy (a fraction of a millisecond at its
// rate), little enough not to tie up an op's window where the lane is slow, and to be sent again quickly. A relay
// without a free buffer has no room either.
bool Engine::has_room(const LaneSide& s, Bytes bytes, GBps rate) const noexcept {
  constexpr double kQueueNs = 1e6;
  const auto way = static_cast<Bytes>(s.nominal_GBps * 2.0 * static_cast<double>(s.latency_ns));
  const auto queue = std::clamp(static_cast<Bytes>(rate * kQueueNs), 2 * bytes, 12 * bytes);
  if (s.relay != kNoId16 && relay_free_[s.relay] == 0) return false;
  return s.queued_bytes + bytes <= std::max(queue, bytes + way) && s.held_requests() + 8 <= kLaneRequests;
}

// Lanes with a rate take turns in proportion to it: the table has shared out the links among all trunks, and a lane
// that took more than its part would take it from another trunk. While the lane whose turn it is has no room, others go
// on, but only so far ahead: in the long run the parts are as the table says.
std::uint32_t Engine::choose_by_turn(const Trunk& t, const Transfer& x, bool& live) noexcept {
  std::uint32_t best = kNoId;
  double best_turn = std::numeric_limits<double>::max(), least_turn = best_turn;
  for (const std::uint32_t i : t.sides) {
    const LaneSide& s = sides_[i];
    const GBps rate = rate_of(s);
    if (s.state != LaneState::kUp || rate <= 0 || (i == x.last_side && x.resend && other_live(s))) continue;
    live = true;
    const double turn = s.turn_bytes / rate;
    least_turn = std::min(least_turn, turn);
    if (turn >= best_turn || !has_room(s, x.bytes, rate)) continue;
    best_turn = turn;
    best = i;
  }
  return best_turn <= least_turn + kLeadNs ? best : kNoId;
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
    if (!has_room(s, x.bytes, rate)) continue;
    const double cost = cost_ns(s, x.bytes, rate);
    if (cost < best_cost) {
      best_cost = cost;
      best = i;
    }
  }
  return best;
}

std::uint32_t Engine::choose_side(const Trunk& t, const Transfer& x) noexcept {
  bool live = false;
  std::uint32_t best = choose_by_turn(t, x, live);
  if (live) return best;
  best = choose_stand_by(t, x, live);
  if (live || !x.resend) return best;
  for (const std::uint32_t i : t.sides) {  // nothing else is left: again on a lane that is only suspected
    if (sides_[i].state == LaneState::kStalled && sides_[i].held_requests() + 1 < kLaneRequests) return i;
  }
  return kNoId;
}

// Where a lane stands among the turns of its trunk when it gets a rate, or another one: with those that are behind, so
// that it neither makes up for the past nor waits.
void Engine::take_turn(LaneSide& s, GBps rate) noexcept {
  double least = std::numeric_limits<double>::max();
  for (const std::uint32_t i : trunks_[s.trunk].sides) {
    const LaneSide& o = sides_[i];
    if (&o != &s && o.state == LaneState::kUp && rate_of(o) > 0) least = std::min(least, o.turn_bytes / rate_of(o));
  }
  const double old = s.rate_GBps > 0 ? s.turn_bytes / s.rate_GBps : 0;
  s.rate_GBps = rate;
  if (least == std::numeric_limits<double>::max()) least = old;
  s.turn_bytes = std::clamp(old, least, least + kLeadNs) * rate;
}

// Every step down or up the ladder is an event: the best rung that the trunk may use now is another one.
void Engine::note_rung(Trunk& t, Nanos now) noexcept {
  const LaneSide* best = nullptr;
  for (unsigned tier = 0; tier < 2 && best == nullptr; ++tier) {
    for (const std::uint32_t i : t.sides) {
      const LaneSide& s = sides_[i];
      if (s.state != LaneState::kUp || (tier == 0 ? rate_of(s) : standby_of(s)) <= 0) continue;
      best = &s;
      break;
    }
  }
  if (best == nullptr || t.last_rung == best->rung) return;
  const auto first = sides_[t.sides.front()].rung;
  const bool first_use = t.last_rung == 0xff;
  const std::uint64_t from = first_use ? first : std::uint16_t{t.last_rung};
  t.last_rung = static_cast<std::uint8_t>(best->rung);
  if (first_use) return;  // where it begins is no step
  Event e;
  e.kind = EventKind::kRungStep;
  e.lane = best->lane;
  e.direction = best->direction;
  e.value = from << 8 | best->rung;
  emit(e, now);
}

}  // namespace lk

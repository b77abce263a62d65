// Stall: what time alone tells. A chunk later than it can be is a suspicion: its lane gets no new chunks and the late
// ones are also sent elsewhere. The lane is fenced when something proves that the other end is well and this lane is
// not; the last live lane of a trunk is never fenced on suspicion. Also here: heartbeats and op deadlines.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {

void Engine::tick(Nanos now) noexcept {
  next_tick_ = kNever;
  scan_.assign(busy_.begin(), busy_.end());  // a copy: what is found changes the list
  for (const std::uint32_t side : scan_) watch_side(side, now);
  watch_losses(now);
  scan_.assign(ailing_.begin(), ailing_.end());
  for (const std::uint32_t side : scan_) {
    LaneSide& s = sides_[side];
    if (s.state == LaneState::kFencing) {
      if (now >= s.fence_retry_at && !peers_[s.peer].dead) send_fence(s, now);
      arm(s.fence_retry_at);
    } else if (s.state == LaneState::kDown) {
      if (now >= s.probe_at) send_probe(side, now);
      if (s.state == LaneState::kDown) arm(s.probe_at);
    }
    if (s.state == LaneState::kStalled && s.head == kNoId) settle_doubt(side, now);
    if (s.state == LaneState::kProbing) {
      if (now >= s.probe_deadline)
        probe_failed(side, now);
      else
        arm(s.probe_deadline);
    }
  }
  std::vector<std::pair<const GroupSpec*, const PlanSpec*>> shrinks;
  shrinks.swap(shrinks_);
  for (const auto& [spec, plan] : shrinks) shrink_group(spec, plan, now);
  watch_ops(now);
  if (now >= next_heartbeat_) heartbeat(now);
  for (auto& g : groups_) {
    if (g != nullptr) start_ready(*g, now);
  }
  arm(next_heartbeat_);
}

// All that a suspected lane owed got through another way. If a slot of it is missing, that proves the suspicion; if
// not, only its acknowledgements were lost.
void Engine::settle_doubt(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  const Nanos judged_at = s.stalled_at + std::max<Nanos>(options_.stall_least_ns, 4 * s.latency_ns);
  if (other_live(s) && !s.missing.empty()) {
    if (now >= judged_at) return fail_side(side, Cause::kStall, now);
    return arm(judged_at);
  }
  resume(side, now);
}

void Engine::resume(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  s.state = LaneState::kUp;
  std::erase(ailing_, side);
  emit_lane(EventKind::kLaneResumed, s, Cause::kStall, 0, now);
  mark_dirty(s.trunk);
}

void Engine::watch_side(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  if (s.head == kNoId || (s.state != LaneState::kUp && s.state != LaneState::kStalled)) return;
  const Request& head = posted_[s.head];
  if (s.state == LaneState::kUp) {
    // Late, and nothing of this lane has moved for as long as one chunk may take.
    const Nanos quiet =
        std::max(options_.stall_least_ns,
                 static_cast<Nanos>(options_.stall_factor * static_cast<double>(head.bytes) / s.nominal_GBps));
    const Nanos due = std::max(head.deadline, s.progress_at + quiet);
    if (now < due) return arm(due);
    s.state = LaneState::kStalled;
    s.stalled_at = now;
    s.orphan_reported = false;
    ailing_.push_back(side);
    ++counters_[Counter::lane_stalled];
    emit_lane(EventKind::kLaneStalled, s, Cause::kStall, static_cast<std::uint64_t>(now - head.posted_at), now);
    if (!other_live(s)) keep_last_way(trunks_[s.trunk], now);
    if (s.far) tell_again(s.peer, now);
  }
  hedge_late(side, now);
  if (s.state != LaneState::kStalled) return;
  const Nanos patience = std::max<Nanos>(options_.stall_least_ns, 4 * s.latency_ns);
  const bool peer_moves = s.far ? peers_[s.peer].turn_moved_at > s.stalled_at : now - s.stalled_at >= patience;
  bool proved = false;
  for (std::uint32_t ri = s.head; ri != kNoId && !proved; ri = posted_[ri].next) {
    const Transfer& x = transfers_[posted_[ri].transfer];
    proved = x.retired;  // the same chunk got through another way
  }
  // With another lane left, even a suspected one, that is enough. The last one is only given up when it carries small
  // messages, and still not what was posted before them.
  const bool carries = s.proved_at > s.stalled_at + patience;
  if (now - s.stalled_at >= patience && (other_open(s) ? peer_moves || proved : s.far && carries)) {
    return fail_side(side, Cause::kStall, now);
  }
  if (s.state == LaneState::kStalled) arm(std::max(now + kMilli, s.stalled_at + patience));
}

// Sends what is late on a suspected lane over another one too.
void Engine::hedge_late(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  if (!other_live(s)) return repeat_alone(side, now);
  for (std::uint32_t ri = s.tail; ri != kNoId; ri = posted_[ri].previous) {
    const std::uint32_t xi = posted_[ri].transfer;
    Transfer& x = transfers_[xi];
    if (x.retired || x.cancelled || x.queued || x.last_side != side || x.posts() >= kMostPosts) continue;
    x.resend = x.hedge = true;
    x.orphaned_at = posted_[ri].posted_at;
    enqueue(xi, true);
  }
}

// The last live lane: what it took and never delivered is tried on it again, one chunk at a time. If it takes the same
// chunk over and over and the receiver never has it, that is no suspicion any more.
void Engine::repeat_alone(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  const Request& head = posted_[s.head];
  Transfer& x = transfers_[head.transfer];
  if (x.queued || x.retired || x.cancelled || !head.reaped) return;
  if (x.posts() >= kMostPosts) return fail_side(side, Cause::kStall, now);
  Nanos latest = 0;
  for (const std::uint32_t ri : x.request) {
    if (ri != kNoId) latest = std::max(latest, posted_[ri].posted_at);
  }
  const Nanos again = latest + 2 * std::max(options_.stall_least_ns, head.deadline - head.posted_at);
  if (now < again) return arm(again);
  x.resend = x.hedge = true;
  x.orphaned_at = head.posted_at;
  enqueue(head.transfer, true);
}

bool Engine::other_live(const LaneSide& s) const noexcept {
  const Trunk& t = trunks_[s.trunk];
  return std::any_of(t.sides.begin(), t.sides.end(), [&](std::uint32_t i) {
    const LaneSide& o = sides_[i];
    return (o.lane != s.lane) && o.state == LaneState::kUp && (rate_of(o) > 0 || standby_of(o) > 0);
  });
}

// Is there another lane that has not been given up?
bool Engine::other_open(const LaneSide& s) const noexcept {
  const Trunk& t = trunks_[s.trunk];
  return std::any_of(t.sides.begin(), t.sides.end(), [&](std::uint32_t i) {
    const LaneSide& o = sides_[i];
    return o.lane != s.lane && (o.state == LaneState::kUp || o.state == LaneState::kStalled);
  });
}

void Engine::watch_ops(Nanos now) noexcept {
  for (auto& g : groups_) {
    if (g == nullptr) continue;
    for (auto& owned : g->ops) {
      if (owned == nullptr || !owned->open || owned->status != Status::kOk) continue;
      const Nanos deadline = owned->entered_at + options_.op_deadline_ns;
      if (now >= deadline)
        fail_op(*owned, Status::kDeadline, kNoId16, kNoId16, true, now);
      else
        arm(deadline);
    }
  }
}

void Engine::heartbeat(Nanos now) noexcept {
  next_heartbeat_ = now + options_.heartbeat_ns;
  for (NodeId n = 0; n < cluster_.nodes.size(); ++n) {
    Peer& p = peers_[n];
    if (n == node_ || !p.wanted || p.dead) continue;
    Signal s = new_signal(SignalKind::kHeartbeat, n);
    s.count = 1;
    s.words[0] = turn_;
    send_signal(s, now);
    if (p.told.count != p.told.repeated) repeat_acks(n, now);
    p.told.repeated = p.told.count;
    // And over one more lane, another one each time: whether a node lives must not hang on the lane that is best.
    if (!p.sides.empty()) {
      LaneSide& l = sides_[p.sides[static_cast<std::size_t>(now / options_.heartbeat_ns) % p.sides.size()]];
      if (l.state == LaneState::kUp) static_cast<void>(signal_over(l, s, now));
      LaneSide& last = sides_[p.sides.back()];
      if (last.state == LaneState::kUp) static_cast<void>(signal_over(last, s, now));
    }
  }
  // A suspected lane is asked for an answer over itself.
  for (const std::uint32_t side : ailing_) {
    LaneSide& l = sides_[side];
    if (l.state != LaneState::kStalled || !l.far || peers_[l.peer].dead) continue;
    Signal ask = new_signal(SignalKind::kHeartbeat, l.peer);
    ask.count = 2;
    ask.words[0] = turn_;
    ask.words[1] = 1;
    static_cast<void>(signal_over(l, ask, now));
  }
  // Credits and acknowledgements may have been lost with a lane: tell the grants of running groups again.
  for (auto& g : groups_) {
    if (g == nullptr || g->ended || g->running.empty()) continue;
    for (const std::uint32_t f : g->flows_in) {
      send_credit(f, flows_[f].granted_op, 0, true, now);
      ++counters_[Counter::credit_repeated];
    }
  }
}

}  // namespace lk

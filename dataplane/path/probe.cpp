// Probe and return: a lane that is down is tried for as long as it takes: first soon, then less often, up to a cap. It
// is up when data went both ways over it. A lane that fails again and again is held down longer each time, and says so;
// but never the last way between two GPUs: some bytes between two failures are better than none.
// Between nodes the node of the lane's first end (a) begins; the other one may ask it to.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {
namespace {
constexpr Nanos kLastWayProbeNs = 10 * kMilli;
}

void Engine::schedule_probe(LaneSide& s, Nanos now) noexcept {
  if (now - s.first_recent_failure > options_.flap_window_ns) {
    if (now - s.first_recent_failure > 4 * options_.flap_window_ns) s.flap_hold_ns = 0;
    s.first_recent_failure = now;
    s.recent_failures = 0;
  }
  ++s.recent_failures;
  s.probe_wait_ns = options_.probe_first_ns;
  s.held_until = 0;
  if (!other_live(s)) {
    keep_last_way(trunks_[s.trunk], now);
  } else if (s.recent_failures >= options_.flap_limit) {
    s.flap_hold_ns = std::clamp(s.flap_hold_ns * 2, options_.flap_hold_ns, options_.flap_hold_most_ns);
    s.recent_failures = 0;
    emit_lane(EventKind::kLaneFlapping, s, Cause::kNone, static_cast<std::uint64_t>(s.flap_hold_ns), now);
    s.probe_at = s.held_until = now + s.flap_hold_ns;
  } else {
    s.probe_at = now + s.probe_wait_ns;
  }
  arm(s.probe_at);
}

// Nothing is left between two GPUs: every lane between them is tried soon, whatever it did before.
void Engine::keep_last_way(const Trunk& t, Nanos now) noexcept {
  for (const std::uint32_t side : t.sides) {
    LaneSide& s = sides_[side];
    if (s.state != LaneState::kDown || (s.far && peers_[s.peer].dead)) continue;
    s.held_until = 0;
    s.probe_wait_ns = std::min(s.probe_wait_ns, kLastWayProbeNs);
    s.probe_at = std::min(s.probe_at, now + s.probe_wait_ns);
    arm(s.probe_at);
  }
}

void Engine::send_probe(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  if (s.far && peers_[s.peer].dead) {
    s.probe_at = kNever;
    return;
  }
  s.probe_at = now + s.probe_wait_ns;
  s.probe_wait_ns = std::min(s.probe_wait_ns * 2, options_.probe_most_ns);
  s.probe_sent_at = now;
  Signal p = new_signal(s.far ? SignalKind::kProbe : SignalKind::kProbeEcho, s.peer);
  p.lane = s.lane;
  if (s.far && spec_of(s).a != s.from) {  // ask the other end to begin
    p.words[0] = s.epoch;
    p.words[1] = other_live(s) ? 0 : 1;
    p.count = 2;
    send_signal(p, now, s.lane);
    return;
  }
  // A lane may have become slow: each try waits longer than the one before, also where the tries come often.
  const Nanos patience = std::max<Nanos>({20 * s.latency_ns, s.probe_wait_ns / 4, s.probe_patience_ns});
  s.probe_patience_ns = std::min(2 * patience, options_.probe_most_ns / 4);
  ++s.epoch;
  s.state = LaneState::kProbing;
  s.probe_deadline = now + patience;
  arm(s.probe_deadline);
  wire_.open(s.lane, s.direction, s.epoch);
  p.epoch = s.epoch;
  if (s.far) {
    send_signal(p, now, s.lane);
  } else if (wire_.signal(s.lane, s.direction, s.epoch, p, now) != Status::kOk) {
    probe_failed(side, now);
  }
}

// The peer asks us to open with its epoch (or, with epoch 0, to begin a probe ourselves).
void Engine::on_probe(const Signal& p, Nanos now) noexcept {
  if (p.lane >= cluster_.lanes.size()) return;
  std::uint32_t side = side_index(p.lane, Direction::kForward);
  if (!sides_[side].ours) side ^= 1U;
  LaneSide& s = sides_[side];
  if (!s.ours || !s.far || s.peer != p.from) return;
  if (p.epoch == 0) {
    // What we hold down as flapping may be the last way in the other direction, which only the other end can know.
    const bool may = now >= s.held_until || (p.count == 2 && p.words[1] != 0);
    if (s.state == LaneState::kDown && may && spec_of(s).a == s.from) send_probe(side, now);
    // It never heard the end of our last probe, so its end of this life of the lane is closed.
    const bool half_open = s.state == LaneState::kUp || s.state == LaneState::kStalled;
    if (half_open && p.count == 2 && p.words[0] == s.epoch) fail_side(side, Cause::kFencedByPeer, now);
    return;
  }
  if (s.state == LaneState::kUp || s.state == LaneState::kStalled) {
    // It has lost the lane and we do not know yet.
    if (static_cast<std::int32_t>(p.epoch - s.epoch) > 0) fail_side(side, Cause::kFencedByPeer, now);
    return;
  }
  if (s.state == LaneState::kProbing && p.epoch == s.epoch) return;
  if ((s.state != LaneState::kDown && s.state != LaneState::kProbing) ||
      static_cast<std::int32_t>(p.epoch - s.epoch) <= 0)
    return;
  s.epoch = p.epoch;
  s.state = LaneState::kProbing;
  s.probe_deadline = now + std::max<Nanos>(40 * s.latency_ns, std::max(s.probe_wait_ns, options_.probe_first_ns));
  s.probe_sent_at = now;
  arm(s.probe_deadline);
  wire_.reset(s.lane, s.direction);
  wire_.open(s.lane, s.direction, s.epoch);
  Signal echo = new_signal(SignalKind::kProbeEcho, s.peer);
  echo.lane = s.lane;
  echo.epoch = s.epoch;
  static_cast<void>(wire_.signal(s.lane, s.direction, s.epoch, echo, now));
}

// Something came over the lane itself. The second end echoes, the first one answers; then the second one is up and
// answers too, and then the first one is: each end has seen that what it sends arrives.
void Engine::on_echo(const Completion& c, Nanos now) noexcept {
  const std::uint32_t side = our_side(c.lane, c.direction);
  LaneSide& s = sides_[side];
  if (s.state != LaneState::kProbing || s.epoch != c.epoch) return;
  const bool echo = c.signal.kind == SignalKind::kProbeEcho, first_end = spec_of(s).a == s.from;
  const Nanos taken = now - s.probe_sent_at;
  if (s.far && (echo || !first_end)) {
    Signal back = new_signal(SignalKind::kProbeBack, s.peer);
    back.lane = s.lane;
    back.epoch = s.epoch;
    static_cast<void>(wire_.signal(s.lane, s.direction, s.epoch, back, now));
    if (echo) {
      s.probe_sent_at = now;
      s.probe_deadline = std::max(s.probe_deadline, now + 4 * taken);
      return arm(s.probe_deadline);
    }
  }
  s.round_trip_ns = taken;
  lane_returned(side, now);
}

void Engine::lane_returned(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  s.state = LaneState::kUp;
  std::erase(ailing_, side);
  s.probe_at = s.probe_deadline = kNever;
  s.probe_patience_ns = 4 * s.round_trip_ns;
  s.measured_GBps = 0;
  s.unanswered = s.signals_heard = s.signals_echoed = 0;
  s.proved_at = now;
  take_turn(s, s.rate_GBps);
  s.orphan_reported = false;
  ++counters_[Counter::lane_returned];
  emit_lane(EventKind::kLaneUp, s, Cause::kNone, static_cast<std::uint64_t>(now - s.failed_at), now);
  mark_dirty(s.trunk);
}

void Engine::probe_failed(std::uint32_t side, Nanos now) noexcept {
  LaneSide& s = sides_[side];
  wire_.reset(s.lane, s.direction);
  s.state = LaneState::kDown;
  s.probe_deadline = kNever;
  s.probe_at = std::max(s.probe_at == kNever ? now : s.probe_at, now);
  if (s.probe_at == now) s.probe_at = now + s.probe_wait_ns;
  arm(s.probe_at);
}

}  // namespace lk

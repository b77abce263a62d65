// Signal: small messages between engines: acknowledgements, credits, fences, probes, heartbeats, aborts. They take any
// live lane to the node; when none is left, the control channel. Any of them may be lost or come twice.
#include <algorithm>
#include <cstring>

#include "dataplane/path/engine.hpp"

namespace lk {

Signal Engine::new_signal(SignalKind kind, NodeId to) const noexcept {
  Signal s;
  s.kind = kind;
  s.from = node_;
  s.to = to;
  s.incarnation = incarnation_;
  return s;
}

// The lane for a small message: the best rung over which something of ours was lately proved to arrive; else one that
// has not swallowed many yet; else (doubtful) the one that has swallowed least. That a lane brings us things proves
// nothing about the other direction.
std::uint32_t Engine::signal_side(const Peer& p, std::uint32_t avoid_lane, Nanos now) const noexcept {
  std::uint32_t untried = kNoId, least = kNoId;
  for (const std::uint32_t side : p.sides) {
    const LaneSide& l = sides_[side];
    if (l.state != LaneState::kUp || l.lane == avoid_lane) continue;
    if (now - l.proved_at <= kProofLasts && l.unanswered < 16 * kSilentSignals) return side;
    if (untried == kNoId && l.unanswered < kSilentSignals) untried = side;
    if (least == kNoId || l.unanswered < sides_[least].unanswered) least = side;
  }
  if (untried != kNoId || least != kNoId) return untried != kNoId ? untried : least;
  for (const std::uint32_t side : p.sides) {  // nothing but suspected lanes
    const LaneSide& l = sides_[side];
    if (l.state != LaneState::kStalled || l.lane == avoid_lane) continue;
    if (least == kNoId || l.unanswered < sides_[least].unanswered) least = side;
  }
  return least;
}

bool Engine::signal_over(LaneSide& l, Signal& s, Nanos now) noexcept {
  ++l.unanswered;
  s.heard = l.signals_heard;
  if (wire_.signal(l.lane, l.direction, l.epoch, s, now) == Status::kOk) return true;
  l.unanswered += kSilentSignals;
  return false;
}

void Engine::send_signal(Signal& s, Nanos now, std::uint32_t avoid_lane) noexcept {
  Peer& p = peers_[s.to];
  if (p.dead) return;
  for (unsigned tries = 0; tries < 4; ++tries) {
    const std::uint32_t side = signal_side(p, avoid_lane, now);
    if (side == kNoId) break;
    LaneSide& l = sides_[side];
    const bool proved = now - l.proved_at <= kProofLasts, doubtful = !proved && l.unanswered >= kSilentSignals;
    if (!signal_over(l, s, now)) continue;
    ++counters_[Counter::signal_sent];
    if (!doubtful) return;  // else over the next one, and the control channel, too: what is said twice does no harm
  }
  if (!signals_out_.push(s)) ++counters_[Counter::signal_lost];
}

void Engine::flush_acks(Nanos now) noexcept {
  for (const NodeId n : acks_due_) {
    if (peers_[n].acks.count != 0) send_signal(peers_[n].acks, now);
    peers_[n].acks.count = 0;
  }
  acks_due_.clear();
}

// A lost acknowledgement makes a chunk late on a lane that is well, a lost credit a slot look missing. So when a lane
// is doubted, and with the heartbeat, they are told once more, over what is the best lane then.
void Engine::tell_again(NodeId to, Nanos now) noexcept {
  repeat_acks(to, now);
  for (std::uint32_t f = 0; f < flows_.size(); ++f) {
    const Flow& flow = flows_[f];
    if (flow.active && !flow.outgoing && cluster_.gpus[flow.from].node == to)
      send_credit(f, flow.granted_op, 0, true, now);
  }
}

void Engine::repeat_acks(NodeId to, Nanos now) noexcept {
  ToldAcks& told = peers_[to].told;
  Signal s = new_signal(SignalKind::kAck, to);
  for (std::uint32_t i = told.count - std::min(told.count, ToldAcks::kMost); i < told.count; ++i) {
    s.words[s.count++] = told.words[i % ToldAcks::kMost * std::size_t{2}];
    s.words[s.count++] = told.words[i % ToldAcks::kMost * std::size_t{2} + 1];
    if (s.count + 2U <= kSignalWords && i + 1 < told.count) continue;
    send_signal(s, now);
    s.count = 0;
  }
}

// Signals by the control channel, and the control plane's own messages that want to go in band.
unsigned Engine::take_signals(Nanos now) noexcept {
  unsigned n = 0;
  Signal s;
  for (; n < 64 && signals_in_.pop(s); ++n) handle_signal(s, now);
  PeerMessage m;
  for (unsigned i = 0; i < 16 && peer_out_.pop(m); ++i, ++n) {
    Signal carrier = new_signal(SignalKind::kPeer, m.to);
    static_assert(sizeof(PeerMessage) <= sizeof(carrier.words));
    std::memcpy(carrier.words, &m, sizeof(m));
    carrier.count = static_cast<std::uint8_t>(sizeof(m) / 8);
    send_signal(carrier, now);
  }
  return n;
}

void Engine::on_signal(const Completion& c, Nanos now) noexcept {
  const std::uint32_t side = our_side(c.lane, c.direction);
  LaneSide& s = sides_[side];
  if (s.epoch == c.epoch) {
    ++s.signals_heard;
    if (static_cast<std::int32_t>(c.signal.heard - s.signals_echoed) > 0) {
      s.signals_echoed = c.signal.heard;
      s.unanswered = 0;
      s.proved_at = now;
    }
  }
  if (c.signal.kind == SignalKind::kProbeEcho || c.signal.kind == SignalKind::kProbeBack) {
    if (!s.far || hear(c.signal.from, c.signal.incarnation, now)) on_echo(c, now);
    return;
  }
  if (s.far && s.ours && c.signal.kind == SignalKind::kHeartbeat && c.signal.count == 2 && s.epoch == c.epoch &&
      (s.state == LaneState::kUp || s.state == LaneState::kStalled) && c.signal.from == s.peer) {
    Signal answer = new_signal(SignalKind::kHeartbeat, s.peer);
    answer.count = 1;
    answer.words[0] = turn_;
    static_cast<void>(signal_over(s, answer, now));
  }
  // Only an end that has the lane up sends anything else over it: that proves it.
  if (s.far && s.state == LaneState::kProbing && s.epoch == c.epoch) lane_returned(side, now);
  handle_signal(c.signal, now);
}

// False: of an older life of that node, or of one that is dead to us.
bool Engine::hear(NodeId node, Incarnation incarnation, Nanos now) noexcept {
  Peer& p = peers_[node];
  if (p.incarnation != incarnation) {
    if (p.incarnation == 0 && !p.dead) {
      p.incarnation = incarnation;
    } else {
      Event e;
      e.kind = EventKind::kPeerRestarted;
      e.peer = node;
      e.value = incarnation;
      if (p.last_heard.load(std::memory_order_relaxed) != now) emit(e, now);
      p.last_heard.store(now, std::memory_order_relaxed);
      return false;
    }
  }
  if (p.dead) return false;
  p.last_heard.store(now, std::memory_order_relaxed);
  return true;
}

void Engine::handle_signal(const Signal& s, Nanos now) noexcept {
  if (s.from >= cluster_.nodes.size() || s.from == node_ || !hear(s.from, s.incarnation, now)) return;
  switch (s.kind) {
    case SignalKind::kAck:
      return on_ack(s, now);
    case SignalKind::kCredit:
      return on_credit(s, now);
    case SignalKind::kFence:
      return on_fence(s, now);
    case SignalKind::kFenceAck:
      return on_fence_ack(s, now);
    case SignalKind::kProbe:
      return on_probe(s, now);
    case SignalKind::kHeartbeat: {
      Peer& p = peers_[s.from];
      if (s.words[0] > p.turn) p.turn_moved_at = now;
      p.turn = s.words[0];
      return;
    }
    case SignalKind::kAbort:
      return on_abort(s, now);
    case SignalKind::kPeer: {
      PeerMessage m;
      std::memcpy(&m, s.words, sizeof(m));
      if (!peer_in_.push(m)) ++counters_[Counter::signal_lost];
      return;
    }
    case SignalKind::kProbeEcho:
    case SignalKind::kProbeBack:
      return;
  }
}

void Engine::send_abort(const OpState& op, Nanos now) noexcept {
  const EngineGroup& g = *op.group;
  for (const NodeId n : g.nodes) {
    Signal s = new_signal(SignalKind::kAbort, n);
    s.group = g.spec->id;
    s.membership = g.spec->membership;
    s.count = 5;
    s.words[0] = op.number;
    s.words[1] = static_cast<std::uint64_t>(op.status);
    s.words[2] = g.local.front();
    s.words[3] = op.other_rank;
    s.words[4] = op.lost_node;
    send_signal(s, now);
  }
}

void Engine::on_abort(const Signal& s, Nanos now) noexcept {
  EngineGroup* g = group(s.group);
  if (g == nullptr || g->ended || s.membership != g->spec->membership || s.count < 5) return;
  const auto status = static_cast<Status>(s.words[1]);
  const auto lost = static_cast<NodeId>(s.words[4]);
  // Who disagrees with us: the rank that the sender blames, unless that is one of ours; then the sender itself.
  auto other = static_cast<Rank>(s.words[3]);
  if (other < g->local_place.size() && g->local_place[other] != kNoId16) other = static_cast<Rank>(s.words[2]);
  const OpNumber number = s.words[0];
  if (OpState* op = g->find(number); op != nullptr) return fail_op(*op, status, lost, other, false, now);
  auto& closed = g->closed[number % kOpWindow];
  if (number >= g->next_start && closed.number != number) {
    closed = {number, 0, status, lost};  // our ranks have not entered it yet: they get the error when they do
    arm(now);
  }
}

void Engine::emit(Event e, Nanos now) noexcept {
  e.number = ++event_number_;
  e.at = now;
  if (!events_.push(e)) ++counters_[Counter::event_lost];
}

void Engine::emit_lane(EventKind kind, LaneSide& s, Cause cause, std::uint64_t value, Nanos now) noexcept {
  Event e;
  e.kind = kind;
  e.cause = cause;
  e.lane = s.lane;
  e.direction = s.direction;
  e.peer = s.peer;
  e.value = value;
  emit(e, now);
  if (kind != EventKind::kLaneDown && kind != EventKind::kLaneUp) return;
  // Until a table has seen this, our own verdict stands.
  s.last_event = event_number_;
  s.fresh = false;
}

}  // namespace lk

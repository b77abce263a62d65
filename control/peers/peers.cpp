#include "control/peers/peers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {
namespace {

constexpr std::size_t kRetiredKept = 16;
constexpr Nanos kRefusalInterval = 100 * kMilli;
constexpr unsigned kPatience = 2;  // attempts over a bus that seems well before the lanes are tried too

}  // namespace

Peers::Peers(const ClusterSpec& cluster, NodeId self, Incarnation incarnation, const Thresholds& thresholds,
             PeerBus& bus, const Liveness& liveness, Ring<PeerMessage>& in_band)
    : self_(self),
      incarnation_(incarnation),
      thresholds_(thresholds),
      bus_(bus),
      liveness_(liveness),
      in_band_(in_band) {
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    peers_.emplace_back(PeerChannel(self, static_cast<NodeId>(n), incarnation));
  }
}

void Peers::receive(const PeerMessage& message, Nanos now, bool in_band) {
  if (message.from >= peers_.size() || message.from == self_ || message.to != self_) return;
  Peer& peer = peers_[message.from];
  const auto header = PeerChannel::header_of(message);
  if (!header) return;
  if (message.kind == static_cast<std::uint16_t>(PeerMessageKind::kRefused)) {
    // Only the incarnation that refuses counts: an old refusal of an earlier life of this node names another addressee.
    if (header->addressee == incarnation_ && message.incarnation == peer.channel.peer_incarnation()) {
      declare_dead(message.from, "it has declared this node dead");
      notices_.push_back({NoticeKind::kRefused, message.from, 0, {}, {}});
    }
    return;
  }
  if (!admit(peer, message.from, message.incarnation, now)) {
    if (header->addressee == incarnation_) refuse(peer, message, now, in_band);
    return;
  }
  (in_band ? peer.in_band_heard_at : peer.bus_heard_at) = now;
  if (!in_band && peer.bus_silent) {
    peer.bus_silent = false;
    notices_.push_back({NoticeKind::kBusBack, message.from, 0, {}, {}});
  }
  records_.clear();
  peer.channel.take(message, now, records_);
  for (Record& r : records_) notices_.push_back({NoticeKind::kRecord, message.from, 0, {}, std::move(r)});
}

void Peers::heard_incarnation(NodeId node, Incarnation incarnation, Nanos now) {
  if (node < peers_.size() && node != self_ && admit(peers_[node], node, incarnation, now)) {
    peers_[node].in_band_heard_at = now;
  }
}

// Whether that incarnation is the node's present one. A new one replaces the present, which is then dead.
bool Peers::admit(Peer& peer, NodeId node, Incarnation incarnation, Nanos now) {
  if (incarnation == 0) return false;
  if (incarnation == peer.channel.peer_incarnation()) return true;
  if (std::find(peer.retired.begin(), peer.retired.end(), incarnation) != peer.retired.end()) return false;
  if (peer.channel.is_open()) declare_dead(node, "it has been restarted");
  come_alive(peer, node, incarnation, now);
  return true;
}

void Peers::come_alive(Peer& peer, NodeId node, Incarnation incarnation, Nanos now) {
  peer.channel.open(incarnation);
  peer.state = PeerState::kAlive;
  peer.alive_at = peer.bus_heard_at = now;
  peer.in_band_heard_at = 0;
  peer.bus_silent = false;
  peer.heartbeat_at = now;  // it should learn our incarnation without waiting
  notices_.push_back({NoticeKind::kAlive, node, incarnation, {}, {}});
}

void Peers::retire(Peer& peer) {
  peer.retired.push_back(peer.channel.peer_incarnation());
  if (peer.retired.size() > kRetiredKept) peer.retired.pop_front();
  peer.channel.close();
}

void Peers::repeat(NodeId from, const Record& record) {
  notices_.push_back({NoticeKind::kRecord, from, 0, {}, record});
}

bool Peers::declare_dead(NodeId node, const std::string& reason) {
  Peer& peer = peers_[node];
  if (node == self_ || !peer.channel.is_open()) return false;
  retire(peer);
  peer.state = PeerState::kDead;
  notices_.push_back({NoticeKind::kDead, node, 0, reason, {}});
  return true;
}

// Told to the incarnation that was declared dead and does not know it.
void Peers::refuse(Peer& peer, const PeerMessage& refused, Nanos now, bool in_band) {
  if (now - peer.refused_at < kRefusalInterval) return;
  peer.refused_at = now;
  PeerChannel voice(self_, refused.from, incarnation_);
  voice.open(refused.incarnation);
  const PeerMessage message = voice.control_message(PeerMessageKind::kRefused);
  if (in_band || !bus_.send(message)) in_band_.push(message);
  ++messages_sent_;
}

Nanos Peers::heard_at(const Peer& peer, NodeId node) const noexcept {
  const Nanos engine = liveness_.last_heard(node);
  return std::max({peer.bus_heard_at, peer.in_band_heard_at, engine >= peer.alive_at ? engine : Nanos{0}});
}

void Peers::judge(Peer& peer, NodeId node, Nanos now) {
  if (peer.state != PeerState::kAlive && peer.state != PeerState::kSuspect) return;
  if (!peer.bus_silent && now - peer.bus_heard_at >= thresholds_.suspect_ns) {
    peer.bus_silent = true;
    notices_.push_back({NoticeKind::kBusLost, node, 0, {}, {}});
  }
  const Nanos silent = now - heard_at(peer, node);
  if (silent >= thresholds_.dead_ns) {
    declare_dead(node,
                 fmt::format("not heard for {} ms, neither on the control channel nor over any lane", silent / kMilli));
    return;
  }
  const PeerState state = silent >= thresholds_.suspect_ns ? PeerState::kSuspect : PeerState::kAlive;
  if (state == peer.state) return;
  peer.state = state;
  notices_.push_back({state == PeerState::kSuspect ? NoticeKind::kSuspect : NoticeKind::kTrusted, node, 0, {}, {}});
}

void Peers::transmit(Peer& peer, const PeerMessage& message, unsigned attempt) {
  ++messages_sent_;
  peer.bus_refuses = !bus_.send(message);
  if (peer.bus_refuses || peer.bus_silent || attempt >= kPatience) in_band_.push(message);
}

void Peers::tick(Nanos now) {
  // While this thread did not run nobody could be heard: that time does not count.
  const Nanos pause = last_tick_ >= 0 && now - last_tick_ > thresholds_.suspect_ns ? now - last_tick_ : 0;
  last_tick_ = now;
  for (std::size_t n = 0; n < peers_.size(); ++n) {
    const auto node = static_cast<NodeId>(n);
    if (node == self_) continue;
    Peer& peer = peers_[n];
    peer.bus_heard_at = std::min(now, peer.bus_heard_at + pause);
    judge(peer, node, now);
    // A dead node must not go on hearing this one: it would wait for it for ever. Its next life speaks first.
    if (peer.state == PeerState::kDead) continue;
    if (now >= peer.heartbeat_at) {
      // A silent bus may be cut without saying so: then the lanes carry the word that this control plane lives.
      const PeerMessage beat = peer.channel.control_message(PeerMessageKind::kHeartbeat);
      transmit(peer, beat, 0);
      peer.heartbeat_at = now + thresholds_.heartbeat_ns;
    }
  }
}

void Peers::flush(Nanos now) {
  for (Peer& peer : peers_) {
    due_.clear();
    peer.channel.collect(now, thresholds_.retransmit_ns, due_);
    for (const PeerChannel::Due& due : due_) transmit(peer, due.message, due.attempt);
  }
}

Nanos Peers::next_time(Nanos now) const noexcept {
  if (!notices_.empty()) return now;
  Nanos next = kNever;
  for (std::size_t n = 0; n < peers_.size(); ++n) {
    const Peer& peer = peers_[n];
    if (static_cast<NodeId>(n) == self_ || peer.state == PeerState::kDead) continue;
    next = std::min({next, peer.heartbeat_at, peer.channel.next_time(now, thresholds_.retransmit_ns)});
  }
  return std::max(next, now);
}

void Peers::send(NodeId to, RecordKind kind, const Bytestring& body) { peers_[to].channel.queue(kind, body); }

}  // namespace lk

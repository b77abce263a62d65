// Peers: the control planes of the other nodes: who is alive, what they say, and the two ways to them.
//   bus       the control channel; send() may say that it is cut, and may lose messages without a word
//   in band   the engine's lanes: used for what the bus did not take or was not answered, and while the bus is silent
// Heartbeats go over the bus; the engine's own tell whether a node lives when the bus is cut (Liveness). A node is
// suspect after `suspect` and dead after `dead` without a word on either way. Death is final for an incarnation: its
// messages are refused, and it is told so. A lost control channel alone is a notice, no more.
// Owner: the control thread. Nothing fails. A long pause of this thread itself is nobody's death.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "control/health/thresholds.hpp"
#include "control/peers/channel.hpp"
#include "dataplane/api/cluster.hpp"
#include "dataplane/base/ring.hpp"

namespace lk {

class PeerBus {
 public:
  virtual ~PeerBus() = default;
  virtual bool send(const PeerMessage& message) = 0;  // false: known to be cut
};

class Liveness {
 public:
  virtual ~Liveness() = default;
  virtual Nanos last_heard(NodeId node) const = 0;  // in band; -1: never
};

enum class PeerState : std::uint8_t { kUnseen, kAlive, kSuspect, kDead };

constexpr const char* name_of(PeerState s) noexcept {
  constexpr const char* kNames[] = {"unseen", "alive", "suspect", "dead"};
  return kNames[static_cast<unsigned>(s)];
}

enum class NoticeKind : std::uint8_t { kAlive, kSuspect, kTrusted, kDead, kBusLost, kBusBack, kRefused, kRecord };

struct Notice {
  NoticeKind kind{};
  NodeId node = 0;
  Incarnation incarnation = 0;  // kAlive
  std::string reason;           // kDead
  Record record;                // kRecord
};

class Peers {
 public:
  Peers(const ClusterSpec& cluster, NodeId self, Incarnation incarnation, const Thresholds& thresholds, PeerBus& bus,
        const Liveness& liveness, Ring<PeerMessage>& in_band);

  void receive(const PeerMessage& message, Nanos now, bool in_band);
  // The engine heard a new incarnation of that node in band.
  void heard_incarnation(NodeId node, Incarnation incarnation, Nanos now);
  void tick(Nanos now);   // judges who lives, and lets them know that this one does
  void flush(Nanos now);  // sends what was queued, and again what was not acknowledged
  Nanos next_time(Nanos now) const noexcept;

  // To a node that is alive or suspect, once and in order; dropped otherwise.
  void send(NodeId to, RecordKind kind, const Bytestring& body);
  bool declare_dead(NodeId node, const std::string& reason);  // false: it was not alive
  void repeat(NodeId from, const Record& record);             // noticed again after what is waiting now

  // What happened since the last call, in order.
  std::deque<Notice>& notices() noexcept { return notices_; }

  PeerState state(NodeId node) const noexcept { return peers_[node].state; }
  bool present(NodeId node) const noexcept {  // alive as far as anybody knows, this node included
    return node == self_ || peers_[node].state == PeerState::kAlive || peers_[node].state == PeerState::kSuspect;
  }
  bool bus_silent(NodeId node) const noexcept { return peers_[node].bus_silent; }
  Incarnation incarnation_of(NodeId node) const noexcept { return peers_[node].channel.peer_incarnation(); }
  Incarnation incarnation() const noexcept { return incarnation_; }
  std::uint64_t messages_sent() const noexcept { return messages_sent_; }

 private:
  struct Peer {
    explicit Peer(PeerChannel c) : channel(std::move(c)) {}
    PeerChannel channel;
    PeerState state = PeerState::kUnseen;
    std::deque<Incarnation> retired;  // dead or replaced, newest last
    Nanos alive_at = 0, bus_heard_at = 0, in_band_heard_at = 0;
    Nanos heartbeat_at = 0;
    bool bus_silent = false, bus_refuses = false;
    Nanos refused_at = -kSecond;
  };

  bool admit(Peer& peer, NodeId node, Incarnation incarnation, Nanos now);
  void come_alive(Peer& peer, NodeId node, Incarnation incarnation, Nanos now);
  void retire(Peer& peer);
  void refuse(Peer& peer, const PeerMessage& refused, Nanos now, bool in_band);
  void judge(Peer& peer, NodeId node, Nanos now);
  void transmit(Peer& peer, const PeerMessage& message, unsigned attempt);
  Nanos heard_at(const Peer& peer, NodeId node) const noexcept;

  NodeId self_;
  Incarnation incarnation_;
  const Thresholds& thresholds_;
  PeerBus& bus_;
  const Liveness& liveness_;
  Ring<PeerMessage>& in_band_;
  std::vector<Peer> peers_;
  std::deque<Notice> notices_;
  std::vector<Record> records_;
  std::vector<PeerChannel::Due> due_;
  Nanos last_tick_ = -1;
  std::uint64_t messages_sent_ = 0;
};

}  // namespace lk

// PeerChannel: records to and from one peer, each once and in order, over messages that may be lost, come twice, late
// or over another way. A stream belongs to a pair of incarnations: when the peer has a new one both directions begin
// anew and what was not delivered is dropped (those who care say it again to the new one). Every message carries the
// sender's acknowledgement of the other direction. What is not acknowledged is repeated. Owner: the control thread.
// Nothing fails; a peer that sends nonsense is not acknowledged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "control/peers/record.hpp"
#include "dataplane/api/peer_message.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class PeerMessageKind : std::uint16_t { kHeartbeat = 1, kData = 2, kRefused = 3 };

struct Record {
  RecordKind kind{};
  Bytestring body;
};

// What one message says beside its record bytes.
struct PeerHeader {
  Incarnation addressee = 0;  // the receiver's incarnation as the sender knows it; 0: not known
  std::uint64_t acknowledged = 0;
};

class PeerChannel {
 public:
  PeerChannel(NodeId self, NodeId peer, Incarnation incarnation)
      : self_(self), peer_(peer), incarnation_(incarnation) {}

  void open(Incarnation peer_incarnation);  // begin anew with this one
  void close();                             // nothing is sent or kept until the next open()
  bool is_open() const noexcept { return peer_incarnation_ != 0; }
  Incarnation peer_incarnation() const noexcept { return peer_incarnation_; }

  void queue(RecordKind kind, const Bytestring& body);
  // Of the peer's present incarnation only. Completed records are appended to `out`.
  void take(const PeerMessage& message, Nanos now, std::vector<Record>& out);

  struct Due {
    PeerMessage message;
    unsigned attempt = 0;  // 0: sent for the first time
  };
  // What is to be sent now: new fragments up to the window, those whose time has come again, an acknowledgement alone.
  void collect(Nanos now, Nanos retransmit_ns, std::vector<Due>& out);
  Nanos next_time(Nanos now, Nanos retransmit_ns) const noexcept;

  PeerMessage control_message(PeerMessageKind kind);  // heartbeat or refusal, with the acknowledgement of now
  bool idle() const noexcept { return pending_.empty(); }

  static std::optional<PeerHeader> header_of(const PeerMessage& message);

 private:
  struct Fragment {
    PeerMessage message;
    Nanos sent_at = 0;
    unsigned attempts = 0;
  };

  void fill_header(PeerMessage& message) const;
  void accept(const PeerMessage& message, std::vector<Record>& out);

  NodeId self_, peer_;
  Incarnation incarnation_, peer_incarnation_ = 0;
  std::deque<Fragment> pending_;  // not acknowledged, by sequence
  std::uint64_t next_sequence_ = 1;
  std::uint64_t taken_ = 0;  // highest of the peer's that came without a gap
  std::map<std::uint64_t, PeerMessage> early_;
  Record partial_;
  bool ack_due_ = false;
};

}  // namespace lk

// ScriptNet: a wire between two nodes whose every packet the test decides on: it passes, is lost, held, doubled, or
// ends with an error, at a time that can be worked out by hand (bytes / rate of the lane, one after the other, then its
// latency). It keeps the contract at the head of dataplane/lane/wire.hpp and is as mean as that allows: a write that
// left its node is not called back by a reset there, so it can land for as long as the receiver's end is open.
// ScriptWire: one node's end of it. Single thread; times are those that are passed in, in ns.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/lane/wire.hpp"
#include "dataplane/memory/slots.hpp"

namespace lk::test {

enum class Fate : std::uint8_t {
  kPass,      // lands, and completes
  kLose,      // completes, never lands
  kHold,      // neither, until it is released
  kLate,      // completes, lands when it is released
  kTwice,     // lands twice
  kFail,      // completes with an error, never lands
  kFailLate,  // completes with an error, lands when it is released
};

struct Packet {
  NodeId from = 0, to = 0;
  bool chunk = false;     // else a small message
  bool done = false;      // its sender has had the completion
  bool lands = true;      // at the receiver
  WorkRequest request{};  // lane, direction and epoch also of a small message
  std::vector<std::byte> payload;
  Signal signal{};
  Nanos sent_at = 0, due = 0;

  bool is(SignalKind k) const noexcept { return !chunk && signal.kind == k; }
  bool on(LaneId lane) const noexcept { return request.lane == lane; }
};
using PacketPtr = std::shared_ptr<Packet>;

class ScriptNet {
 public:
  explicit ScriptNet(const ClusterSpec& cluster);

  std::function<Fate(Packet&)> fate;  // asked when a packet leaves; may change it; none: all pass
  std::vector<PacketPtr> held;        // in the order of leaving
  std::vector<Packet> log;            // all that left, without payload
  std::uint64_t refused = 0;          // arrived at an end that was closed or in another epoch

  void release(const std::function<bool(const Packet&)>& which, Nanos now);  // of those that are held
  void release_all(Nanos now);
  void fail(const PacketPtr& p) { complete(*p, WorkStatus::kError); }  // a held one; it may still land when released
  // A write's notice without the write, to the packet's receiver, whatever the epoch of its end: what an engine must
  // survive from a wire that checks less.
  void tell(const Packet& packet, std::uint32_t epoch, std::uint32_t immediate);
  void tell_port(NodeId node, LinkId link, bool up);
  std::size_t count(const std::function<bool(const Packet&)>& which) const;  // in the log

 private:
  friend class ScriptWire;
  struct End {  // of a lane at a node; inside a node of each direction
    bool open = true;
    std::uint32_t epoch = 1;
  };
  End& end(NodeId node, LaneId lane, Direction d);
  void send(const PacketPtr& p, Nanos now);
  void fly(const PacketPtr& p);
  void advance(Nanos now);
  void land(const Packet& p);
  void complete(Packet& p, WorkStatus status);

  const ClusterSpec& cluster_;
  std::vector<End> ends_;  // by (node × lanes + lane) × 2 + direction
  std::vector<Nanos> busy_until_;
  std::deque<PacketPtr> flying_;  // by due
  std::vector<std::deque<Completion>> inbox_;
  std::vector<LandingMemory> landing_;
};

class ScriptWire final : public Wire {
 public:
  ScriptWire(ScriptNet& net, NodeId node, LandingMemory landing);

  Status post(const WorkRequest& request, Nanos now) noexcept override;
  unsigned poll(std::span<Completion> out, Nanos now) noexcept override;
  Status signal(LaneId lane, Direction direction, std::uint32_t epoch, const Signal& s, Nanos now) noexcept override;
  void open(LaneId lane, Direction direction, std::uint32_t epoch) noexcept override;
  void reset(LaneId lane, Direction direction) noexcept override;
  Nanos next_time(Nanos now) const noexcept override;

 private:
  PacketPtr packet(LaneId lane, Direction direction, std::uint32_t epoch, Nanos now) const;

  ScriptNet& net_;
  const NodeId node_;
};

}  // namespace lk::test

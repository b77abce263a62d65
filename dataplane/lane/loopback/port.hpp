// LoopbackPort: the Wire of one emulated node. Every link has a rate per direction and every lane a latency; a chunk
// takes the time that its path gives it (link_server.hpp). Payload really moves: into a landing slot for message lanes;
// addressable lanes are read by the engine itself once their time has passed.
// Owner: the node's reactor. Nothing allocates after set-up except that tables grow to the largest load seen.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "dataplane/lane/loopback/link_server.hpp"
#include "dataplane/lane/loopback/net.hpp"
#include "dataplane/lane/wire.hpp"
#include "dataplane/memory/slots.hpp"

namespace lk {

class LoopbackPort final : public Wire {
 public:
  LoopbackPort(LoopbackNet& net, NodeId node, LandingMemory landing);

  Status post(const WorkRequest& request, Nanos now) noexcept override;
  unsigned poll(std::span<Completion> out, Nanos now) noexcept override;
  Status signal(LaneId lane, Direction direction, std::uint32_t epoch, const Signal& s, Nanos now) noexcept override;
  void open(LaneId lane, Direction direction, std::uint32_t epoch) noexcept override;
  void reset(LaneId lane, Direction direction) noexcept override;
  Nanos next_time(Nanos now) const noexcept override;

  // Emulation only: the link now runs at `fraction` of its nominal rate in that direction.
  void set_rate(LinkId link, Direction direction, double fraction, Nanos now) noexcept;
  double rate_fraction(LinkId link, Direction direction) const noexcept {
    return fraction_[server_of(link, direction)];
  }

 private:
  static constexpr unsigned kMaxHops = 7;
  enum class Stage : std::uint8_t { kFree, kSending, kAwaiting, kAnswered, kReceiving, kSignal };

  struct Record {  // one request or message under way at this port
    Stage stage = Stage::kFree;
    std::uint8_t hop_count = 0;
    bool far = false;  // leaves the node
    std::uint32_t generation = 0;
    std::uint32_t server[kMaxHops] = {};
    double position[kMaxHops] = {};
    Nanos not_before = 0;
    std::uint64_t id = 0;
    const std::byte* payload = nullptr;  // of a local write: stays put until kSendDone
    WireMessage message{};
    RequestKind request{};
  };
  struct Due {
    Nanos at;
    std::uint64_t sequence;
    std::uint32_t record;
    std::uint32_t generation;
    bool operator<(const Due& o) const noexcept { return at != o.at ? at > o.at : sequence > o.sequence; }
  };

  static std::size_t server_of(LinkId link, Direction d) noexcept {
    return std::size_t{link} * 2 + static_cast<std::size_t>(d);
  }
  static std::size_t side_of(LaneId lane, Direction d) noexcept {
    return std::size_t{lane} * 2 + static_cast<std::size_t>(d);
  }
  bool is_far(const LaneSpec& lane) const noexcept { return !lane.far_hops.empty(); }
  NodeId far_node(const LaneSpec& lane, Direction travel) const noexcept;
  void occupy(Record& r, LaneId lane, Direction d, Bytes bytes, Nanos from, bool far_part) noexcept;
  std::uint32_t new_record() noexcept;
  void free_record(std::uint32_t index) noexcept;
  void schedule(std::uint32_t index, Nanos now) noexcept;
  void arrive(const WireMessage& m, Nanos now) noexcept;
  void finish(std::uint32_t index, Nanos now) noexcept;
  void land(const Record& r) noexcept;
  void send_out(NodeId to, const WireMessage& m) noexcept;
  void send_unsent() noexcept;
  void complete(const Record& r, WorkStatus status) noexcept;
  void flush_side(LaneId lane, Direction d) noexcept;
  void forget_received(std::size_t side) noexcept;

  LoopbackNet& net_;
  const ClusterSpec& cluster_;
  NodeId node_;
  LandingMemory landing_;
  std::vector<LinkServer> servers_;      // links × 2, then one per lane side whose own limit is below its links'
  std::vector<double> fraction_;         // by link server
  std::vector<std::uint32_t> lane_cap_;  // by lane side: server index or kNoId
  std::vector<std::uint32_t> tx_epoch_, rx_epoch_;  // by lane side; 0: closed
  std::vector<Record> records_;
  std::vector<std::uint32_t> free_;
  std::vector<Due> heap_;
  std::vector<Completion> done_;  // FIFO from done_head_
  std::size_t done_head_ = 0;
  std::vector<std::deque<WireMessage>> unsent_;  // by node: for its inbox, which was full
  std::size_t unsent_count_ = 0;
  std::uint64_t sequence_ = 0;
};

}  // namespace lk

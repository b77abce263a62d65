// FaultWire: faults over any Wire. A decorated lane is the production lane plus the fault; a lane without one costs a
// table look-up. Faults come as FaultRow values on a ring and begin, end and flap by the time that is passed in. All
// chance is seeded: the same rows and the same calls give the same decisions.
//
// Every node's wire gets every row. Of a lane's path it applies what its own part suffers: to what it sends over its
// own links (requests end with errors, stall or wait), to what arrives over them (swallowed, altered, repeated), and to
// what it sends over a link at the far end, which then does not complete, as behind any switch.
// Owner: the node's reactor, but for rows(), whose other end is the control thread. noexcept; times in ns. Nothing
// allocates after set-up except that tables grow to the largest load seen and when a fault begins or ends.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/base/random.hpp"
#include "dataplane/base/ring.hpp"
#include "dataplane/lane/fault_row.hpp"
#include "dataplane/lane/wire.hpp"
#include "dataplane/memory/slots.hpp"

namespace lk {

// Lets a degrade reach the emulated links below. Loopback's is loopback/rates.hpp.
class RateControl {
 public:
  virtual ~RateControl() = default;
  virtual void set_rate(LinkId link, Direction direction, double fraction, Nanos now) noexcept = 0;
};

struct FaultOptions {
  bool payload = true;       // false: landing slots hold headers only
  unsigned rows = 1024;      // room in the ring
  unsigned late_copies = 8;  // chunks that late faults hold at once; more of them come in time
};

struct FaultCounters {
  std::uint64_t edges = 0;           // times at which a fault came or went
  std::uint64_t pair_killed = 0;     // lane sides that a cut put in error
  std::uint64_t request_failed = 0;  // requests ended with kError
  std::uint64_t request_held = 0;    // requests that a stall keeps
  std::uint64_t request_delayed = 0;
  std::uint64_t receive_swallowed = 0;  // lost to a cut or a stall
  std::uint64_t receive_dropped = 0;    // lost to a drop
  std::uint64_t receive_corrupted = 0;
  std::uint64_t receive_duplicated = 0;
  std::uint64_t replayed = 0;  // the transport's own check caught it
  std::uint64_t late_written = 0;
  std::uint64_t late_after_reset = 0;  // told, not written
  std::uint64_t signal_lost = 0;
};

class FaultWire final : public Wire {
 public:
  // `rates` may be null: degrades then do nothing.
  FaultWire(const ClusterSpec& cluster, NodeId node, Wire& inner, LandingMemory landing, RateControl* rates,
            const FaultOptions& options = {});

  Ring<FaultRow>& rows() noexcept { return incoming_; }
  const FaultCounters& counters() const noexcept { return counters_; }

  Status post(const WorkRequest& request, Nanos now) noexcept override;
  unsigned poll(std::span<Completion> out, Nanos now) noexcept override;
  Status signal(LaneId lane, Direction direction, std::uint32_t epoch, const Signal& s, Nanos now) noexcept override;
  void open(LaneId lane, Direction direction, std::uint32_t epoch) noexcept override;
  void reset(LaneId lane, Direction direction) noexcept override;
  Nanos next_time(Nanos now) const noexcept override;

 private:
  struct Side {                            // of a lane, by direction of travel
    bool sends = false, receives = false;  // here
    bool dead = false;                     // in error since a cut, until reset or open
    bool flush_is_error = false;
    std::uint32_t epoch = 1;
    std::uint32_t outstanding = 0;  // requests in the inner wire
    std::uint32_t waiting = 0;      // of its requests, kept here
    std::uint32_t delayed = 0;      // of those, posts and signals not yet forwarded
    std::uint32_t effect = kNoId, previous = kNoId;
    Nanos last_release = 0;
  };
  struct Effect {  // what the active rows do to one side
    std::uint32_t side = kNoId;
    bool cut = false, stall = false;
    double drop = 0, corrupt = 0, duplicate = 0, late = 0, bad = 0;
    Nanos delay = 0, late_by = 0;
    std::uint64_t seed = 0;
    Random random{0};
  };
  struct LinkSide {
    double fraction = 1, lost = 0, set = 1;
    bool loud_cut = false, touched = false;
  };
  struct Touch {  // a lane side that uses a link direction
    std::uint32_t side;
    bool far;
  };
  enum class Kept : std::uint8_t { kNothing, kHeldSend, kSlowSend, kPost, kSignal, kReceive, kLate };
  struct Item {
    Kept kept = Kept::kNothing;
    bool closed = false;  // kLate: its lane was reset
    std::uint32_t generation = 0;
    std::uint32_t copy = kNoId;
    Completion completion{};
    WorkRequest request{};
  };
  struct Due {
    Nanos at;
    std::uint64_t sequence;
    std::uint32_t item, generation;
    bool operator<(const Due& o) const noexcept { return at != o.at ? at > o.at : sequence > o.sequence; }
  };

  static std::uint32_t side_of(LaneId lane, Direction d) noexcept { return lane * 2 + static_cast<std::uint32_t>(d); }
  std::uint32_t receiving_side(LaneId lane, Direction d) const noexcept {
    return side_of(lane, cluster_.lanes[lane].far_hops.empty() ? d : opposite(d));
  }
  Effect* effect_of(const Side& s) noexcept { return s.effect == kNoId ? nullptr : &effects_[s.effect]; }

  // fault_edges.cpp: which rows act on what, and what happens when that changes
  void map_links();
  void advance(Nanos now) noexcept;
  bool take_rows(Nanos now) noexcept;
  void recompute(Nanos t) noexcept;
  void apply(const FaultRow& row) noexcept;
  void merge(std::uint32_t side, const FaultRow& row, bool far) noexcept;
  void touch_link(const FaultRow& row, std::uint32_t link_side) noexcept;
  void settle_sides() noexcept;
  void settle_links(Nanos t) noexcept;

  // fault.cpp
  void kill(std::uint32_t side) noexcept;
  void end_waiting(std::uint32_t side, WorkStatus status) noexcept;
  void close_receiving(std::uint32_t side) noexcept;
  void finish(const WorkRequest& request, WorkStatus status) noexcept;
  void keep_post(const WorkRequest& request, Side& s, Nanos delay, Nanos now) noexcept;
  std::uint32_t keep(Kept kept, const Completion& c) noexcept;
  std::uint32_t keep_until(Kept kept, const Completion& c, Nanos at) noexcept;
  void wake(std::uint32_t item, Nanos at) noexcept;
  void let_go(std::uint32_t item) noexcept;
  void release_due(Nanos now) noexcept;
  bool forward(Item& item, Nanos now) noexcept;  // false: the wire has no room now
  unsigned take_ready(std::span<Completion> out) noexcept;

  // fault_judge.cpp: what happens to what the inner wire says
  bool judge(Completion& c, Nanos now) noexcept;  // false: swallowed, or kept for later
  bool judge_send(Completion& c, Nanos now) noexcept;
  bool judge_receive(Completion& c, Effect& e, Nanos now) noexcept;
  void flip_bit(const Completion& c, Effect& e) noexcept;
  bool keep_late(const Completion& c, const Effect& e, Nanos now) noexcept;
  void release_receive(Item& item) noexcept;

  const ClusterSpec& cluster_;
  NodeId node_;
  Wire& inner_;
  LandingMemory landing_;
  RateControl* rates_;
  FaultOptions options_;
  Ring<FaultRow> incoming_;
  std::vector<FaultRow> rows_;  // not yet over
  std::vector<Side> sides_;
  std::vector<Effect> effects_, previous_;
  std::vector<std::uint32_t> own_sides_;
  std::vector<std::vector<Touch>> touches_;  // by link side
  std::vector<LinkSide> link_sides_;
  std::vector<std::uint32_t> touched_;  // link sides
  std::vector<bool> link_down_;
  Nanos next_edge_ = kNever;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_items_;
  std::vector<Due> due_;
  std::uint64_t sequence_ = 0;
  Nanos blocked_until_ = 0;
  std::unique_ptr<std::byte[]> copies_;  // of late chunks, made when the first late fault arrives
  std::vector<std::uint32_t> free_copies_;
  std::vector<Completion> ready_;  // FIFO from ready_head_
  std::size_t ready_head_ = 0;
  FaultCounters counters_;
};

}  // namespace lk

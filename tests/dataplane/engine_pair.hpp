// EnginePair: two real engines over a ScriptNet, stepped from event to event on an owned clock, with a control channel
// that the test may cut. All GPUs of the cluster are one group. Work: one collective of all its ranks, its buffers, and
// what must come out by tests/dataplane/reference.hpp. A node can be left out (`plays`): then the test speaks for it.
// Single thread; times in ns. Everything that comes out of the engines is kept.
#pragma once

#include <boost/test/unit_test.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/path/engine.hpp"
#include "tests/dataplane/script_wire.hpp"

namespace lk::test {

inline constexpr Bytes kChunk = 16 * kKiB;
inline constexpr std::size_t kChunkFloats = kChunk / 4;
inline constexpr Nanos kLatency = 5 * kMicro;

// Two nodes of one GPU. Lanes 0 … rails - 1: rdma, rung 0, a link of its own at each end (link i of node 0, link lanes
// + i of node 1); one more on rung 1: tcp, the only one with a checksum. All as fast as said.
ClusterSpec rail_cluster(unsigned rails, bool tcp = false, GBps rate = 4);

struct Work {
  Work(const GroupSpec& group, OpNumber number, std::size_t count, Collective kind = Collective::kAllReduce,
       bool in_place = false);
  OpRequest request(Rank r);
  std::vector<std::byte> expected() const;
  bool untouched(Rank r) const;  // nothing was written for it

  const GroupSpec& group;
  OpNumber number;
  std::size_t count;
  Collective kind;
  RedOp redop = RedOp::kSum;
  Rank root = 0;
  bool in_place;
  std::uint16_t membership = 0;
  std::vector<std::vector<std::byte>> given;  // by rank; never changed
  std::vector<std::vector<std::byte>> in, out, scratch;
};

struct EnginePair {
  // Home of all chunks: domain 0, so that rank 0 gets rank 1's values (cross) and gives back the sum (return).
  explicit EnginePair(ClusterSpec spec, const EngineOptions& options = small(), std::uint16_t plan_of_n1 = 1);
  static EngineOptions small();

  void rates(const std::vector<GBps>& by_lane);  // a new route table, both directions; 0: stand-by
  void command(NodeId n, const Command& c);
  void enter(Work& w, Rank r);
  void enter(Work& w);  // all ranks
  void step();          // all that can be done now
  void run_to(Nanos end);
  void run_for(Nanos span) { run_to(now + span); }
  bool run_until(const std::function<bool()>& what, Nanos limit);  // false: not within that span
  bool run_until_done(const Work& w, Nanos limit);

  std::vector<OpResult> results_of(OpNumber number, Rank r) const;
  bool done(const Work& w) const;
  void check(const Work& w) const;  // each rank: one result, ok, the right bits, and what it gave unharmed
  void ends_well(const Work& w, Nanos limit);
  void plays_well(Work& w, Nanos limit);           // entered, and ended well
  void plays_well(Work& a, Work& b, Nanos limit);  // both at a time
  void heal();  // nothing happens to packets any more, and those that were held arrive
  LaneSnapshot lane(NodeId n, LaneId lane);
  LaneState state(NodeId n, LaneId l) { return lane(n, l).state; }
  std::uint64_t count(NodeId n, Counter c) const { return engines[n]->counters()[c]; }
  std::vector<Event> events_of(NodeId n, EventKind kind) const;
  bool is_lane_event(NodeId n, EventKind kind, LaneId lane) const;
  void deliver(const Signal& s);  // to its node, as the control channel would

  ClusterSpec cluster;
  GroupSpec group;
  PlanSpec plan[2];
  ScriptNet net;
  std::vector<std::unique_ptr<SlotTable>> slots;
  std::vector<std::unique_ptr<ScriptWire>> wires;
  std::vector<std::unique_ptr<Engine>> engines;
  bool plays[2] = {true, true};
  bool control_up = true;
  std::vector<Signal> control_log;  // asked of the control channel
  std::vector<std::pair<NodeId, OpResult>> results;
  std::vector<std::pair<NodeId, Event>> events;
  Nanos now = 0;

 private:
  void make_group(std::uint16_t plan_of_n1);
  Nanos next_time() const;

  std::deque<RouteTable> tables_;
  std::deque<std::pair<Nanos, Signal>> control_;
};

// Fates that come up again and again.
inline bool is_chunk_on(const Packet& p, LaneId lane) { return p.chunk && p.on(lane); }

}  // namespace lk::test

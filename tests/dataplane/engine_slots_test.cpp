// Small messages that are lost or come twice, and who may write which landing slot when (DESIGN sections 2 and 3;
// dataplane/path/README.md, "Who owns which buffer when").
#include <algorithm>
#include <set>

#include "tests/dataplane/engine_pair.hpp"
#include "tests/dataplane/wire_cluster.hpp"

using namespace lk;
using namespace lk::test;

namespace {

struct Lost {
  SignalKind kind;
  unsigned every;  // one of so many; 1: all
};
constexpr Lost kLost[] = {{SignalKind::kAck, 1},
                          {SignalKind::kAck, 2},
                          {SignalKind::kAck, 3},
                          {SignalKind::kCredit, 2},
                          {SignalKind::kCredit, 3}};

// GPUs 0 and 1 of node 0 alone: an NVLink that is read, and a host lane that writes into landing slots.
ClusterSpec one_node() {
  ClusterSpec c = wire_cluster();
  c.lanes.resize(kHostLane + 1);
  c.lanes[kHostLane].rung = 1;
  c.gpus.resize(2);
  c.domains.resize(1);
  c.nodes[1].gpu_count = 0;
  return c;
}

std::uint64_t landed(const EnginePair& p, NodeId n) {
  return p.count(n, Counter::chunk_committed) + p.count(n, Counter::chunk_duplicate_dropped) +
         p.count(n, Counter::chunk_stale_rejected) + p.count(n, Counter::chunk_unknown_rejected);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_slots)

BOOST_AUTO_TEST_CASE(lost_small_messages_lose_no_op_and_count_no_chunk_twice) {
  for (const Lost& lost : kLost) {
    BOOST_TEST_CONTEXT("kind " << static_cast<int>(lost.kind) << ", one of " << lost.every) {
      EnginePair p(rail_cluster(2));
      unsigned n = 0;
      p.net.fate = [&](Packet& x) {
        return p.now < 300 * kMilli && x.is(lost.kind) && ++n % lost.every == 0 ? Fate::kLose : Fate::kPass;
      };
      Work a(p.group, 1, 40 * kChunkFloats), b(p.group, 2, 40 * kChunkFloats, Collective::kBroadcast);
      p.enter(a);
      p.enter(b);
      BOOST_TEST(p.run_until([&] { return p.done(a) && p.done(b); }, kSecond));
      BOOST_TEST(n > 0U);
      p.check(a);
      p.check(b);
      BOOST_TEST(p.count(0, Counter::chunk_committed) == 40U);  // cross
      BOOST_TEST(p.count(1, Counter::chunk_committed) == 80U);  // return, and the broadcast
    }
  }
}

BOOST_AUTO_TEST_CASE(a_lost_credit_is_told_again_with_the_heartbeat) {
  EnginePair p(rail_cluster(1));
  const EngineOptions o;
  p.net.fate = [&](Packet& x) {
    return x.is(SignalKind::kCredit) && x.from == 1 && p.now < kMilli ? Fate::kLose : Fate::kPass;
  };
  Work w(p.group, 1, 4 * kChunkFloats, Collective::kBroadcast);
  p.enter(w);
  p.run_to(kMilli);
  BOOST_TEST(p.net.count([](const Packet& x) { return x.chunk; }) == 0U);  // nothing was granted
  p.ends_well(w, o.heartbeat_ns);
  BOOST_TEST(p.now < o.heartbeat_ns + kMilli);
  BOOST_TEST(p.count(0, Counter::chunk_posted) == 4U);
}

BOOST_AUTO_TEST_CASE(a_lost_acknowledgement_is_told_again_with_the_heartbeat) {
  EngineOptions o = EnginePair::small();
  o.stall_least_ns = kSecond;  // so that no chunk is sent again before
  EnginePair p(rail_cluster(1), o);
  p.net.fate = [&](Packet& x) { return x.is(SignalKind::kAck) && p.now < kMilli ? Fate::kLose : Fate::kPass; };
  Work w(p.group, 1, 20 * kChunkFloats, Collective::kBroadcast);
  p.plays_well(w, o.heartbeat_ns + kMilli);
  BOOST_TEST(p.count(0, Counter::chunk_posted) == 20U);
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_for_an_op_that_the_receiver_has_not_entered) {
  EnginePair p(rail_cluster(1));
  Work a(p.group, 1, 4 * kChunkFloats, Collective::kBroadcast), b(p.group, 2, 4 * kChunkFloats, Collective::kBroadcast);
  p.enter(a);
  p.enter(b, 0);  // there are slots left, but not for this op
  p.run_to(200 * kMilli);
  BOOST_TEST(p.net.count([](const Packet& x) { return x.chunk; }) == 4U);
  BOOST_TEST(p.count(1, Counter::chunk_unknown_rejected) == 0U);
  p.enter(b, 1);
  BOOST_TEST(p.run_until_done(b, kMilli));
  p.check(a);
  p.check(b);
}

BOOST_AUTO_TEST_CASE(everything_told_twice_changes_nothing) {
  EnginePair p(rail_cluster(2));
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kPass : Fate::kTwice; };
  Work a(p.group, 1, 40 * kChunkFloats), b(p.group, 2, 40 * kChunkFloats);
  p.plays_well(a, b, 20 * kMilli);
  for (const NodeId n : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST(p.count(n, Counter::chunk_posted) == 80U);
    BOOST_TEST(p.count(n, Counter::chunk_acknowledged) == 80U);
    BOOST_TEST(p.count(n, Counter::chunk_committed) == 80U);
    BOOST_TEST(landed(p, n) == 80U);
  }
}

BOOST_AUTO_TEST_CASE(an_old_acknowledgement_retires_no_later_chunk) {
  EnginePair p(rail_cluster(1));
  Work a(p.group, 1, 8 * kChunkFloats, Collective::kBroadcast), b(p.group, 2, 8 * kChunkFloats, Collective::kBroadcast);
  p.enter(a);
  BOOST_REQUIRE(p.run_until_done(a, kMilli));
  std::vector<Signal> old;
  for (const Packet& x : p.net.log) {
    if (x.is(SignalKind::kAck)) old.push_back(x.signal);
  }
  BOOST_REQUIRE(!old.empty());
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kLate : Fate::kPass; };  // posted and completed, not landed
  p.enter(b);
  p.run_for(100 * kMicro);
  BOOST_TEST(p.net.held.size() == 8U);
  for (const Signal& s : old) p.deliver(s);
  p.run_for(100 * kMicro);
  BOOST_TEST(p.count(0, Counter::chunk_acknowledged) == 8U);  // those of the first op
  BOOST_TEST(p.results_of(2, 0).empty());
  p.heal();
  p.ends_well(b, kMilli);
}

BOOST_AUTO_TEST_CASE(an_old_credit_frees_no_slot_that_is_in_use) {
  EnginePair p(rail_cluster(1));
  Work a(p.group, 1, 8 * kChunkFloats, Collective::kBroadcast),
      b(p.group, 2, 40 * kChunkFloats, Collective::kBroadcast);
  p.enter(a);
  BOOST_REQUIRE(p.run_until_done(a, kMilli));
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kLate : Fate::kPass; };
  p.enter(b);
  p.run_for(100 * kMicro);
  std::set<std::uint32_t> under_way;
  for (const PacketPtr& x : p.net.held) BOOST_TEST(under_way.insert(x->request.slot).second);
  BOOST_TEST(under_way.size() >= 8U);
  const std::vector<Packet> log = p.net.log;
  for (const Packet& x : log) {
    if (x.is(SignalKind::kCredit) && x.to == 0) p.deliver(x.signal);
  }
  p.run_for(100 * kMicro);
  BOOST_TEST(p.net.held.size() == under_way.size());  // no slot was used twice
  p.heal();
  p.ends_well(b, 10 * kMilli);
}

BOOST_AUTO_TEST_CASE(a_chunk_that_arrives_twice_is_counted_once) {
  EnginePair p(rail_cluster(2, true));
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kTwice : Fate::kPass; };
  Work a(p.group, 1, 30 * kChunkFloats), b(p.group, 2, 30 * kChunkFloats, Collective::kAllReduce, true);
  p.plays_well(a, b, 20 * kMilli);
  for (const NodeId n : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST(p.count(n, Counter::chunk_committed) == 60U);
    BOOST_TEST(landed(p, n) == 120U);  // each copy is refused and counted, and only once
    BOOST_TEST(p.count(n, Counter::lane_failed) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(no_two_writes_to_one_granted_slot) {
  EnginePair p(rail_cluster(2));
  unsigned n = 0;
  p.net.fate = [&n](Packet& x) { return x.chunk && ++n % 41 == 0 ? Fate::kFail : Fate::kPass; };
  Work a(p.group, 1, 60 * kChunkFloats), b(p.group, 2, 60 * kChunkFloats);
  p.plays_well(a, b, 5 * kSecond);
  std::set<std::pair<NodeId, std::uint32_t>> written;
  for (const Packet& x : p.net.log) {
    if (x.chunk) BOOST_TEST(written.insert({x.to, x.request.immediate}).second);
  }
}

// A host lane takes a chunk, completes it and does not write it; the chunk gets through over NVLink. Until the lane is
// reset it may still write that slot.
BOOST_AUTO_TEST_CASE(a_local_slot_is_not_given_back_before_a_late_write_could_land) {
  for (const bool lands : {true, false}) {
    BOOST_TEST_CONTEXT((lands ? "it lands" : "it never lands")) {
      EnginePair p(one_node());
      p.rates({0, 8});
      p.net.fate = [](Packet& x) { return is_chunk_on(x, kHostLane) ? Fate::kLate : Fate::kPass; };
      Work w(p.group, 1, kChunkFloats);
      p.enter(w);
      BOOST_REQUIRE(p.run_until_done(w, 20 * kMilli));
      p.check(w);
      BOOST_TEST_REQUIRE(p.net.held.size() >= 1U);
      // Each direction inside a node is a lane of its own: written slots are safe from that one when it was reset.
      Snapshot s;
      s.lanes.reserve(8);
      p.engines[0]->fill_snapshot(s, p.now);
      for (const PacketPtr& x : p.net.held) {
        const auto of_it = [&](const LaneSnapshot& l) {
          return l.lane == kHostLane && l.direction == static_cast<std::uint8_t>(x->request.direction);
        };
        const auto side = std::find_if(s.lanes.begin(), s.lanes.end(), of_it);
        BOOST_TEST((side->failures != 0 || p.slots[0]->state(x->request.slot) == SlotState::kGranted));
      }
      p.net.fate = nullptr;
      if (lands) p.net.release_all(p.now);
      Work more(p.group, 2, 30 * kChunkFloats);
      p.enter(more);
      BOOST_REQUIRE(p.run_until_done(more, 20 * kMilli));
      p.check(more);
      p.run_for(2 * kSecond);
      BOOST_TEST(p.slots[0]->count(SlotState::kFree) == p.slots[0]->size());  // at last all come back
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

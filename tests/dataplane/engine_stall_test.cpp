// What time alone tells (DESIGN section 3): a chunk later than max(2 ms, 8 × its expected time) makes its lane
// suspected; it is fenced only when the peer's turns move on and the chunk does not; the last lane of a pair not even
// then, without proof. Times are worked out from the lane's rate and latency.
#include <set>

#include "tests/dataplane/engine_pair.hpp"

using namespace lk;
using namespace lk::test;

namespace {

// All lanes named take and hold what goes over them from node 0, small messages too if asked.
auto hold(const std::set<LaneId>& lanes, bool chunks, bool signals, bool both_ways = false) {
  return [=](Packet& p) {
    if ((p.from != 0 && !both_ways) || !lanes.contains(p.request.lane)) return Fate::kPass;
    return (p.chunk ? chunks : signals) ? Fate::kHold : Fate::kPass;
  };
}

Nanos stalled_at(const EnginePair& p, NodeId n) {
  const auto all = p.events_of(n, EventKind::kLaneStalled);
  return all.empty() ? -1 : all.front().at;
}

Nanos first_chunk_at(const EnginePair& p, LaneId lane) {
  for (const Packet& x : p.net.log) {
    if (is_chunk_on(x, lane)) return x.sent_at;
  }
  return -1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_stall)

BOOST_AUTO_TEST_CASE(a_chunk_is_late_after_two_milliseconds_or_eight_times_what_it_should_take) {
  // 16 KiB at 4, 0.1 and 0.01 GB/s take 4 µs, 164 µs and 1.64 ms, and 5 µs of way: late after 2 ms, 2 ms, 13.1 ms. The
  // engine may count the way back, too.
  const std::pair<GBps, Nanos> rows[] = {{4, 2 * kMilli}, {0.1, 2 * kMilli}, {0.01, 8 * (1638400 + kLatency)}};
  for (const auto& [rate, late] : rows) {
    BOOST_TEST_CONTEXT(rate << " GB/s") {
      EnginePair p(rail_cluster(2, false, rate));
      p.rates({rate, 0});
      p.net.fate = hold({0}, true, false);
      Work w(p.group, 1, kChunkFloats, Collective::kBroadcast);
      p.plays_well(w, 100 * kMilli);
      const Nanos waited = stalled_at(p, 0) - first_chunk_at(p, 0);
      BOOST_TEST(waited >= late);
      BOOST_TEST(waited <= late + 8 * kLatency);
      BOOST_TEST(first_chunk_at(p, 1) == stalled_at(p, 0));  // hedged in the same turn
      BOOST_TEST(p.count(0, Counter::chunk_hedged) == 1U);
    }
  }
}

BOOST_AUTO_TEST_CASE(bytes_queued_before_a_chunk_count) {
  // A lane that serves 12 chunks one after the other, each in 1.64 ms: the last takes 20 ms and is not late.
  EnginePair p(rail_cluster(2, false, 0.01));
  p.rates({0.01, 0});
  Work w(p.group, 1, 12 * kChunkFloats, Collective::kBroadcast);
  p.plays_well(w, kSecond);
  BOOST_TEST(p.now > 12 * 1638400);
  BOOST_TEST(p.count(0, Counter::lane_stalled) == 0U);
  BOOST_TEST(p.count(0, Counter::chunk_hedged) == 0U);
}

BOOST_AUTO_TEST_CASE(a_chunk_behind_another_may_take_as_long_as_both) {
  EnginePair p(rail_cluster(2, false, 0.01));
  p.rates({0.01, 0});
  unsigned n = 0;
  p.net.fate = [&n](Packet& x) { return is_chunk_on(x, 0) && ++n == 2 ? Fate::kHold : Fate::kPass; };
  Work w(p.group, 1, 2 * kChunkFloats, Collective::kBroadcast);
  p.plays_well(w, 100 * kMilli);
  BOOST_TEST(stalled_at(p, 0) - first_chunk_at(p, 0) >= 8 * 2 * 1638400);  // both were posted at once
}

BOOST_AUTO_TEST_CASE(a_suspected_lane_is_fenced_only_when_the_peer_moves_on) {
  EnginePair p(rail_cluster(2));
  p.control_up = false;
  p.rates({4, 0});
  Work before(p.group, 1, 2 * kChunkFloats), w(p.group, 2, 4 * kChunkFloats, Collective::kBroadcast);
  p.enter(before);
  p.enter(w, 1);
  BOOST_REQUIRE(p.run_until_done(before, kMilli));
  // No chunk arrives over any lane, and nothing of node 1: perhaps it is the node that is slow, not the lane.
  p.net.fate = [](Packet& x) { return x.chunk || x.from == 1 ? Fate::kHold : Fate::kPass; };
  p.enter(w, 0);
  p.run_for(kSecond);
  BOOST_TEST(name_of(p.state(0, 0)) == "stalled");
  BOOST_TEST(p.count(0, Counter::lane_failed) == 0U);
  BOOST_TEST(p.net.count([](const Packet& x) { return is_chunk_on(x, 0) && x.sent_at > 3 * kMilli; }) == 0U);
  p.control_up = true;
  p.net.fate = [](Packet& x) { return x.chunk || (x.from == 1 && x.on(0)) ? Fate::kHold : Fate::kPass; };
  const EngineOptions o;
  BOOST_TEST(p.run_until([&] { return p.count(0, Counter::lane_failed) != 0; }, 2 * o.heartbeat_ns));
  BOOST_TEST(p.is_lane_event(0, EventKind::kLaneDown, 0));
  p.heal();
  p.ends_well(w, kSecond);
}

BOOST_AUTO_TEST_CASE(a_suspected_lane_gets_no_new_chunks) {
  EnginePair p(rail_cluster(2));
  p.rates({4, 0});
  p.net.fate = hold({0}, true, false);
  Work w(p.group, 1, 4 * kChunkFloats, Collective::kBroadcast), more(p.group, 2, 40 * kChunkFloats);
  p.enter(w);
  BOOST_REQUIRE(p.run_until([&] { return p.state(0, 0) == LaneState::kStalled; }, 3 * kMilli));
  p.enter(more);
  BOOST_TEST(p.run_until([&] { return p.done(w) && p.done(more); }, 10 * kMilli));
  p.check(w);
  p.check(more);
  BOOST_TEST(p.net.count([](const Packet& x) { return is_chunk_on(x, 0) && x.from == 0; }) == 4U);
}

BOOST_AUTO_TEST_CASE(a_stalled_chunk_is_on_another_lane_within_ten_milliseconds_and_the_lane_is_fenced) {
  EnginePair p(rail_cluster(3));
  p.rates({4, 4, 0});
  Work w(p.group, 1, 40 * kChunkFloats);
  p.enter(w);
  p.run_for(20 * kMicro);
  p.net.fate = hold({0}, true, true, true);
  p.ends_well(w, 20 * kMilli);
  for (const NodeId n : {NodeId{0}, NodeId{1}}) {
    const auto moved = p.events_of(n, EventKind::kChunkResent);
    BOOST_TEST_REQUIRE(!moved.empty());
    BOOST_TEST(moved.front().value <= static_cast<std::uint64_t>(10 * kMilli));
  }
  BOOST_TEST(p.run_until([&] { return p.count(0, Counter::fence_completed) == 1; }, 100 * kMilli));
  for (const LaneId l : {LaneId{1}, LaneId{2}}) BOOST_TEST(name_of(p.state(0, l)) == "up");
}

BOOST_AUTO_TEST_CASE(a_lane_that_moves_again_is_taken_back_without_a_fence) {
  EnginePair p(rail_cluster(1));
  p.net.fate = hold({0}, true, true, true);
  Work w(p.group, 1, 8 * kChunkFloats);
  p.enter(w);
  p.run_for(kMilli / 2);
  p.net.release([](const Packet& x) { return !x.chunk; }, p.now);  // grants arrive, then nothing moves
  p.run_for(20 * kMilli);
  BOOST_TEST(name_of(p.state(1, 0)) == "stalled");
  p.heal();
  p.ends_well(w, 100 * kMilli);
  for (const NodeId n : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST(p.count(n, Counter::lane_failed) == 0U);
    BOOST_TEST(p.lane(n, 0).epoch == 1U);
    BOOST_TEST(name_of(p.state(n, 0)) == "up");
  }
}

BOOST_AUTO_TEST_CASE(the_last_lane_is_not_fenced_on_suspicion) {
  EnginePair p(rail_cluster(1));
  Work before(p.group, 1, 2 * kChunkFloats);
  p.enter(before);
  BOOST_REQUIRE(p.run_until_done(before, kMilli));
  p.net.fate = hold({0}, true, true, true);  // nothing passes, nobody is told
  Work w(p.group, 2, 8 * kChunkFloats, Collective::kBroadcast);
  p.enter(w, 1);
  p.run_for(kMilli);
  p.net.release([](const Packet& x) { return !x.chunk; }, p.now);
  p.enter(w, 0);
  p.control_up = true;  // heartbeats of the peer do come, over the control channel
  p.run_for(5 * kSecond);
  BOOST_TEST(name_of(p.state(0, 0)) == "stalled");
  BOOST_TEST(p.count(0, Counter::lane_failed) == 0U);
  p.heal();
  p.ends_well(w, 200 * kMilli);
}

BOOST_AUTO_TEST_CASE(the_last_lane_is_fenced_when_it_carries_small_messages_and_not_the_chunk) {
  EnginePair p(rail_cluster(1));
  p.net.fate = hold({0}, true, false);
  Work w(p.group, 1, 8 * kChunkFloats, Collective::kBroadcast);
  p.enter(w);
  BOOST_TEST(p.run_until([&] { return p.count(0, Counter::lane_failed) == 1; }, kSecond));
  BOOST_TEST(p.now >= 2 * kMilli);
  p.net.fate = nullptr;  // a new queue pair works
  const Nanos failed = p.now;
  BOOST_TEST(p.run_until_done(w, 200 * kMilli));
  BOOST_TEST(p.now - failed < 200 * kMilli);
  p.check(w);
}

BOOST_AUTO_TEST_CASE(when_all_lanes_stall_at_once_nothing_is_lost) {
  for (const Nanos span : {3 * kMilli, 30 * kMilli, 300 * kMilli, 3 * kSecond}) {
    BOOST_TEST_CONTEXT(span << " ns") {
      EnginePair p(rail_cluster(3));
      p.control_up = false;
      Work w(p.group, 1, 60 * kChunkFloats), in_place(p.group, 2, 60 * kChunkFloats, Collective::kAllReduce, true);
      p.enter(w);
      p.enter(in_place);
      p.run_for(30 * kMicro);
      p.net.fate = hold({0, 1, 2}, true, true, true);
      p.run_for(span);
      for (const NodeId n : {NodeId{0}, NodeId{1}})
        BOOST_TEST(p.count(n, Counter::lane_failed) == 0U);  // who is to blame?
      p.heal();
      BOOST_TEST(p.run_until([&] { return p.done(w) && p.done(in_place); }, kSecond));
      p.check(w);
      p.check(in_place);
      for (const NodeId n : {NodeId{0}, NodeId{1}}) BOOST_TEST(p.count(n, Counter::chunk_committed) == 120U);
    }
  }
}

BOOST_AUTO_TEST_CASE(small_messages_leave_a_lane_that_swallows_them) {
  // Lane 0 carries chunks, and from node 1 no small message: acknowledgements, credits, heartbeats.
  EnginePair p(rail_cluster(2));
  p.control_up = false;
  p.rates({4, 4});
  p.net.fate = [](Packet& x) { return !x.chunk && x.on(0) && x.from == 1 ? Fate::kLose : Fate::kPass; };
  Work w(p.group, 1, 60 * kChunkFloats);
  p.plays_well(w, kSecond);
}

BOOST_AUTO_TEST_CASE(small_messages_take_the_control_channel_when_no_lane_brings_them) {
  EnginePair p(rail_cluster(1));
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kPass : Fate::kLose; };
  Work w(p.group, 1, 20 * kChunkFloats);
  p.plays_well(w, 2 * kSecond);
  BOOST_TEST(!p.control_log.empty());
}

BOOST_AUTO_TEST_CASE(a_lane_that_loses_chunks_and_goes_on_gives_its_slots_back) {
  // Every fifth chunk on lane 0 vanishes. Each takes a slot with it; a flow has 28.
  EnginePair p(rail_cluster(2));
  unsigned n = 0;
  p.net.fate = [&n](Packet& x) { return is_chunk_on(x, 0) && ++n % 5 == 0 ? Fate::kLose : Fate::kPass; };
  for (OpNumber op = 1; op <= 20; ++op) {
    Work w(p.group, op, 60 * kChunkFloats);
    p.enter(w);
    BOOST_TEST_REQUIRE(p.run_until_done(w, 5 * kSecond));
    p.check(w);
  }
  BOOST_TEST(p.count(0, Counter::fence_completed) >= 1U);
  p.net.fate = nullptr;
  p.run_for(5 * kSecond);
  Work last(p.group, 21, 60 * kChunkFloats);
  p.enter(last);
  BOOST_TEST(p.run_until_done(last, 5 * kMilli));  // at full speed: no slot is missing
  p.check(last);
}

BOOST_AUTO_TEST_SUITE_END()

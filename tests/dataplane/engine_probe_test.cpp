// How a lane comes back (DESIGN section 3, probe and return): for as long as it takes, first within 200 ms, backed off,
// capped; a flapping one is held down longer each time, but never the last way between two GPUs.
#include <algorithm>

#include "tests/dataplane/engine_pair.hpp"

using namespace lk;
using namespace lk::test;

namespace {

constexpr Nanos kFirst = 200 * kMilli;  // the latest that a first probe may come

bool is_probe(const Packet& p, LaneId lane) { return p.is(SignalKind::kProbe) && p.signal.lane == lane; }

struct Probed : EnginePair {
  explicit Probed(unsigned rails) : EnginePair(rail_cluster(rails)), alive(group, 1, kChunkFloats) {
    enter(alive);  // so that the nodes know each other
    BOOST_REQUIRE(run_until_done(alive, kMilli));
  }
  void fail(LaneId lane) {  // both ends see a port event
    const auto lanes = static_cast<LinkId>(cluster.lanes.size());
    net.tell_port(0, lane, false);
    net.tell_port(1, lanes + lane, false);
    step();
  }
  bool up(LaneId lane) { return state(0, lane) == LaneState::kUp && state(1, lane) == LaneState::kUp; }
  std::vector<Nanos> probes(LaneId lane, Nanos since) const {  // of node 0, which begins
    std::vector<Nanos> all;
    for (const Packet& x : net.log) {
      if (is_probe(x, lane) && x.from == 0 && x.signal.epoch != 0 && x.sent_at >= since) all.push_back(x.sent_at);
    }
    for (const auto& [at, s] : probes_by_control)
      if (s.lane == lane && s.from == 0 && s.epoch != 0 && at >= since) all.push_back(at);
    std::sort(all.begin(), all.end());
    return all;
  }
  // Fails lane 0 each time it is back, until it is held down; how long it was, by the event. -1: it never was.
  Nanos flap(unsigned most) {
    const std::size_t before = events_of(0, EventKind::kLaneFlapping).size();
    for (unsigned i = 0; i < most; ++i) {
      if (!run_until([&] { return up(0); }, 90 * kSecond)) return -1;
      fail(0);
      run_for(kMilli);  // the fence
      const auto held = events_of(0, EventKind::kLaneFlapping);
      if (held.size() > before) return static_cast<Nanos>(held.back().value);
    }
    return -1;
  }

  Work alive;
  std::vector<std::pair<Nanos, Signal>> probes_by_control;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_probe)

BOOST_AUTO_TEST_CASE(a_lane_is_probed_for_as_long_as_it_takes) {
  Probed p(2);
  p.fail(0);
  const Nanos failed = p.now;
  p.net.fate = [](Packet& x) { return x.on(0) ? Fate::kLose : Fate::kPass; };  // the lane itself carries nothing
  p.run_for(60 * kSecond);
  const std::vector<Nanos> at = p.probes(0, failed);
  const EngineOptions o;
  BOOST_TEST_REQUIRE(at.size() >= 10U);
  BOOST_TEST(at.front() - failed <= kFirst);
  for (std::size_t i = 2; i < at.size(); ++i) {
    BOOST_TEST(at[i] - at[i - 1] >= at[i - 1] - at[i - 2] - kMilli);         // backed off …
    BOOST_TEST(at[i] - at[i - 1] <= o.probe_most_ns + o.probe_most_ns / 2);  // … and capped
  }
  BOOST_TEST(at[1] - at[0] < o.probe_most_ns / 4);
  BOOST_TEST(at.back() > 57 * kSecond);  // it never gives up
  p.net.fate = nullptr;
  BOOST_TEST(p.run_until([&] { return p.up(0); }, o.probe_most_ns + o.probe_most_ns / 2));
  BOOST_TEST(p.count(0, Counter::lane_returned) == 1U);
}

BOOST_AUTO_TEST_CASE(a_lane_is_up_only_when_data_went_both_ways_over_it) {
  for (const NodeId mute : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST_CONTEXT("nothing from node " << mute) {
      Probed p(2);
      p.fail(0);
      const Nanos failed = p.now;
      p.net.fate = [mute](Packet& x) { return x.on(0) && x.from == mute ? Fate::kLose : Fate::kPass; };
      p.run_for(5 * kSecond);
      BOOST_TEST(!p.up(0));
      Work w(p.group, 2, 20 * kChunkFloats);
      p.plays_well(w, 100 * kMilli);
      BOOST_TEST(p.net.count(
                     [&](const Packet& x) { return is_chunk_on(x, 0) && x.from == mute && x.sent_at > failed; }) == 0U);
      p.net.fate = nullptr;
      BOOST_TEST(p.run_until([&] { return p.up(0); }, 10 * kSecond));
      BOOST_TEST(p.lane(0, 0).epoch == p.lane(1, 0).epoch);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_end_that_has_the_lane_alone_is_put_right) {
  // The last word of the probe is lost: node 1 has the lane up, node 0 has not.
  Probed p(2);
  p.fail(0);
  p.net.fate = [](Packet& x) {
    return x.on(0) && x.from == 1 && !x.is(SignalKind::kProbeEcho) ? Fate::kLose : Fate::kPass;
  };
  BOOST_REQUIRE(p.run_until([&] { return p.state(1, 0) == LaneState::kUp; }, kSecond));
  BOOST_TEST(name_of(p.state(0, 0)) == "probing");
  BOOST_TEST(p.run_until([&] { return p.state(0, 0) == LaneState::kDown; }, kSecond));
  p.net.fate = nullptr;
  BOOST_TEST(p.run_until([&] { return p.up(0) && p.lane(0, 0).epoch == p.lane(1, 0).epoch; }, 5 * kSecond));
  Work w(p.group, 2, 40 * kChunkFloats);
  p.plays_well(w, 10 * kMilli);
}

BOOST_AUTO_TEST_CASE(an_end_that_still_believes_in_a_life_of_the_lane_gives_it_up) {
  // Node 1 took node 0 for dead for a moment; node 0 never noticed.
  Probed p(2);
  Command c;
  c.kind = CommandKind::kPeerDead;
  c.peer = 0;
  p.command(1, c);
  p.run_for(kMilli);
  for (const LaneId l : {LaneId{0}, LaneId{1}}) {
    BOOST_TEST(name_of(p.state(1, l)) == "down");
    BOOST_TEST(name_of(p.state(0, l)) == "up");
  }
  c.kind = CommandKind::kPeerAlive;
  c.value = 0x1000;
  p.command(1, c);
  for (const LaneId l : {LaneId{0}, LaneId{1}}) {
    BOOST_TEST(p.run_until([&] { return p.up(l) && p.lane(0, l).epoch == p.lane(1, l).epoch; }, kSecond));
    BOOST_TEST(p.lane(0, l).epoch > 1U);
  }
}

BOOST_AUTO_TEST_CASE(a_lane_that_became_slow_returns_at_last) {
  // 5 µs one way by its table, 75 ms now: the first tries do not wait so long.
  Probed p(2);
  p.fail(0);
  p.net.fate = [](Packet& x) {
    if (x.on(0)) x.due += 75 * kMilli;
    return Fate::kPass;
  };
  BOOST_TEST(p.run_until([&] { return p.up(0); }, 20 * kSecond));
  BOOST_TEST(p.probes(0, 0).size() >= 2U);
  const std::uint64_t failures = p.count(0, Counter::lane_failed);
  p.rates({4, 0});
  Work w(p.group, 2, 4 * kChunkFloats);
  p.plays_well(w, 5 * kSecond);
  BOOST_TEST(p.count(0, Counter::lane_failed) == failures);  // that it is slow is known now, and no fault
}

BOOST_AUTO_TEST_CASE(a_lane_that_became_slow_returns_though_it_is_tried_often) {
  // 20 ms one way. The only other lane fails whenever it is back, so this one is tried within 10 ms again each time.
  Probed p(2);
  p.net.fate = [](Packet& x) {
    if (x.on(0)) x.due += 20 * kMilli;
    return Fate::kPass;
  };
  p.fail(0);
  for (unsigned i = 0; i < 60 && !p.up(0); ++i) {
    p.fail(1);
    BOOST_TEST_REQUIRE(p.run_until([&] { return p.up(0) || p.up(1); }, kFirst));
  }
  BOOST_TEST(p.up(0));
  Work w(p.group, 2, 40 * kChunkFloats);
  p.plays_well(w, 5 * kSecond);
}

BOOST_AUTO_TEST_CASE(a_flapping_lane_is_held_down_longer_each_time_and_says_so) {
  Probed p(2);
  const EngineOptions o;
  Nanos last = 0;
  for (unsigned round = 0; round < 6; ++round) {
    const Nanos held = p.flap(o.flap_limit + 1);
    BOOST_TEST_REQUIRE(held >= o.flap_hold_ns);
    BOOST_TEST((held > last || held == o.flap_hold_most_ns));
    BOOST_TEST(held <= o.flap_hold_most_ns);
    const Nanos begun = p.now;
    p.run_for(held - 10 * kMilli);
    BOOST_TEST(p.probes(0, begun).empty());
    BOOST_TEST(p.run_until([&] { return p.up(0); }, o.probe_most_ns));
    last = held;
  }
  BOOST_TEST(name_of(p.state(0, 1)) == "up");
}

BOOST_AUTO_TEST_CASE(a_port_that_comes_up_shortens_the_wait_but_not_the_hold) {
  Probed p(2);
  p.fail(0);
  p.net.fate = [](Packet& x) { return x.on(0) ? Fate::kLose : Fate::kPass; };
  p.run_for(20 * kSecond);  // backed off
  p.net.fate = nullptr;
  BOOST_REQUIRE(p.run_until([&] { return p.state(0, 0) == LaneState::kProbing; }, 5 * kSecond));
  BOOST_REQUIRE(p.run_until([&] { return p.up(0); }, kSecond));
  const Nanos held = p.flap(4);
  BOOST_TEST_REQUIRE(held > 0);
  const Nanos begun = p.now;
  p.net.tell_port(0, 0, true);
  p.net.tell_port(1, 2, true);
  p.run_for(held - 10 * kMilli);
  BOOST_TEST(p.probes(0, begun).empty());
  BOOST_TEST(p.run_until([&] { return p.up(0); }, kSecond));
}

BOOST_AUTO_TEST_CASE(a_port_that_comes_up_is_tried_at_once) {
  Probed p(2);
  p.fail(0);
  p.net.fate = [](Packet& x) { return x.on(0) ? Fate::kLose : Fate::kPass; };
  const Nanos failed = p.now;
  p.run_for(20 * kSecond);
  const std::size_t tries = p.probes(0, failed).size();
  BOOST_REQUIRE(p.run_until([&] { return p.probes(0, failed).size() > tries; }, 5 * kSecond));
  p.run_for(kSecond);  // that one has failed too; the next is due in more than half a second
  BOOST_TEST_REQUIRE(name_of(p.state(0, 0)) == "down");
  p.net.fate = nullptr;
  p.net.tell_port(0, 0, true);
  BOOST_TEST(p.run_until([&] { return p.up(0); }, kMilli));
}

BOOST_AUTO_TEST_CASE(the_last_way_is_never_held_down) {
  Probed p(1);
  for (unsigned i = 0; i < 20; ++i) {
    const Nanos failed = p.now;
    p.fail(0);
    BOOST_TEST_REQUIRE(p.run_until([&] { return p.up(0); }, kFirst));
    BOOST_TEST(p.now - failed <= kFirst);
  }
  for (const NodeId n : {NodeId{0}, NodeId{1}}) BOOST_TEST(p.events_of(n, EventKind::kLaneFlapping).empty());
  Work w(p.group, 2, 20 * kChunkFloats);
  p.plays_well(w, 10 * kMilli);
}

BOOST_AUTO_TEST_CASE(a_held_lane_is_released_when_the_others_fail) {
  Probed p(2);
  BOOST_TEST_REQUIRE(p.flap(4) > 0);
  BOOST_TEST(name_of(p.state(0, 0)) == "down");
  p.run_for(100 * kMilli);
  p.net.fate = [](Packet& x) { return x.on(1) ? Fate::kLose : Fate::kPass; };
  p.fail(1);
  Work w(p.group, 2, 20 * kChunkFloats);
  p.enter(w);
  BOOST_TEST(p.run_until([&] { return p.up(0); }, kFirst));
  p.ends_well(w, 10 * kMilli);
}

BOOST_AUTO_TEST_CASE(a_held_lane_is_released_when_one_end_alone_has_no_other) {
  for (const NodeId stuck : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST_CONTEXT("no chunk from node " << stuck) {
      Probed p(2);
      BOOST_TEST_REQUIRE(p.flap(4) > 0);
      p.net.fate = [stuck](Packet& x) { return x.on(1) && x.from == stuck && x.chunk ? Fate::kHold : Fate::kPass; };
      Work w(p.group, 2, 20 * kChunkFloats);
      p.enter(w);
      BOOST_TEST(p.run_until([&] { return p.up(0); }, 20 * kMilli));  // suspected after 2 ms, tried within 10
      p.ends_well(w, kFirst);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

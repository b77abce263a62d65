#include <boost/test/unit_test.hpp>
#include <string>

#include "control/cluster_view.hpp"
#include "control/health/lane_track.hpp"
#include "control/health/link_health.hpp"
#include "control/health/thresholds.hpp"
#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"

using lk::Direction;
using lk::kMilli;
using lk::kSecond;
using lk::LinkState;

BOOST_AUTO_TEST_SUITE(health)

namespace {

lk::LinkReading up(double fraction) { return {lk::LinkSignal::kUp, {fraction, fraction}, 0}; }

double forward(const lk::LinkHealth& link) { return link.weight(Direction::kForward); }

std::string table_with(const std::string& row, const std::string& body) {
  std::string text;
  const lk::Thresholds defaults;
  const auto rows = lk::threshold_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += std::string("[") + rows[i].name + "]\n";
    if (rows[i].name == row) {
      text += body;
    } else {
      const double value = lk::threshold_value(defaults, i);
      const bool count = std::string(rows[i].unit) == "count";
      text += "value = " + (count ? std::to_string(static_cast<int>(value)) : std::to_string(value)) + "\nunit = \"" +
              rows[i].unit + "\"\nsource = \"test\"\n";
    }
  }
  return text;
}

std::string complaint(const std::string& text) {
  try {
    lk::parse_thresholds(text, "t.toml");
  } catch (const lk::InputError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_shipped_table_is_what_the_code_assumes) {
  const lk::Thresholds shipped = lk::load_thresholds(LK_SOURCE_DIR "/configs/thresholds.toml");
  const lk::Thresholds defaults;
  for (std::size_t i = 0; i < lk::threshold_rows().size(); ++i) {
    BOOST_TEST_CONTEXT(lk::threshold_rows()[i].name) {
      BOOST_TEST(lk::threshold_value(shipped, i) == lk::threshold_value(defaults, i));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_wrong_row_gets_one_line) {
  BOOST_TEST(complaint(table_with("dead", "value = 2000\nunit = \"s\"\nsource = \"x\"\n")) ==
             "t.toml:87: dead: unit is \"s\", expected \"ms\"");
  BOOST_TEST(complaint(table_with("dead", "value = 0\nunit = \"ms\"\nsource = \"x\"\n")) ==
             "t.toml:86: dead: value: expected a number from 1 to 600000 ms");
  BOOST_TEST(complaint(table_with("dead", "value = true\nunit = \"ms\"\nsource = \"x\"\n")) ==
             "t.toml:86: dead: value: expected a number from 1 to 600000 ms");
  BOOST_TEST(complaint(table_with("dead", "value = 2000\nunit = \"ms\"\n")) ==
             "t.toml:85: dead: source is missing, expected a text");
  BOOST_TEST(complaint(table_with("dead", "value = 2000\nunit = \"ms\"\nsource = \"x\"\nlimit = 1\n")) ==
             "t.toml:89: dead: unknown key limit, expected value, unit and source");
  BOOST_TEST(complaint(table_with("", "") + "[later]\nvalue = 1\n") == "t.toml:101: unknown row later");
  BOOST_TEST(complaint(table_with("dead", "value = 200\nunit = \"ms\"\nsource = \"x\"\n")) ==
             "t.toml:81: suspect: expected heartbeat < suspect < dead");
  BOOST_TEST(complaint("[dead]\nvalue = 1\nunit = \"ms\"\nsource = \"x\"\n") ==
             "t.toml: row reading_interval is missing, expected [reading_interval]");
}

BOOST_AUTO_TEST_CASE(half_a_link_is_degraded_at_once_and_whole_after_the_hold) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  BOOST_TEST(!link.take_reading(up(1.0), 0));
  BOOST_TEST(link.take_reading(up(0.5), 100 * kMilli));
  BOOST_TEST((link.state() == LinkState::kDegraded));
  BOOST_TEST(forward(link) == 0.5);
  BOOST_TEST(link.reason() == "signals 0.5 of its nominal rate");
  for (int i = 2; i < 7; ++i) BOOST_TEST(!link.take_reading(up(1.0), i * 100 * kMilli));
  BOOST_TEST(link.take_reading(up(1.0), 700 * kMilli));  // the first better reading was at 200 ms
  BOOST_TEST((link.state() == LinkState::kUp));
  BOOST_TEST(forward(link) == 1.0);
}

BOOST_AUTO_TEST_CASE(one_direction_alone) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  link.take_reading({lk::LinkSignal::kUp, {1.0, 0.0}, 0}, 0);
  BOOST_TEST((link.state() == LinkState::kDegraded));
  BOOST_TEST(forward(link) == 1.0);
  BOOST_TEST(link.weight(Direction::kBackward) == 0.0);
}

BOOST_AUTO_TEST_CASE(a_first_flap_is_forgiven_within_five_seconds) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  BOOST_TEST(link.port_down(kSecond));
  BOOST_TEST((link.state() == LinkState::kDown));
  BOOST_TEST(link.reason() == "port event");
  BOOST_TEST(link.port_up(2 * kSecond));
  BOOST_TEST((link.state() == LinkState::kProbation));
  BOOST_TEST(forward(link) == 0.125);
  double last = 0.125;
  lk::Nanos full_at = 0;
  for (lk::Nanos now = link.next_time(); now != lk::kNever; now = link.next_time()) {
    link.advance(now);
    BOOST_TEST(forward(link) == 2 * last);
    last = forward(link);
    full_at = now;
  }
  BOOST_TEST((link.state() == LinkState::kUp));
  BOOST_TEST(full_at == 2 * kSecond + 1200 * kMilli);
}

BOOST_AUTO_TEST_CASE(the_third_failure_in_the_window_is_held_down_and_longer_each_time) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  lk::Nanos now = 0;
  const auto flap = [&] {
    link.port_down(now += kSecond);
    link.port_up(now += 100 * kMilli);
  };
  flap();
  flap();
  BOOST_TEST((link.state() == LinkState::kProbation));
  flap();
  BOOST_TEST((link.state() == LinkState::kDown));
  BOOST_TEST(link.reason() == "flapping: 3 failures within 10 s, held down for 2 s");
  BOOST_TEST(link.next_time() == 3 * kSecond + 200 * kMilli + 2 * kSecond);  // from the failure, not from the return
  flap();
  BOOST_TEST(link.reason() == "flapping: 4 failures within 10 s, held down for 4 s");
  for (int i = 0; i < 8; ++i) flap();
  BOOST_TEST(link.reason().find("held down for 60 s") != std::string::npos);
  link.advance(now + 61 * kSecond);
  BOOST_TEST((link.state() == LinkState::kProbation));
  // Five quiet minutes later the hold has decayed: two failures are again only two.
  now += 400 * kSecond;
  link.advance(now);
  BOOST_TEST((link.state() == LinkState::kUp));
  flap();
  BOOST_TEST((link.state() == LinkState::kProbation));
}

BOOST_AUTO_TEST_CASE(five_flaps_a_minute_always_come_back) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  for (int i = 0; i < 20; ++i) {
    const lk::Nanos at = i * 12 * kSecond;
    link.port_down(at);
    link.port_up(at + kSecond);
    link.advance(at + 4 * kSecond);
    BOOST_TEST((link.state() == LinkState::kUp));
  }
}

BOOST_AUTO_TEST_CASE(errors_cost_weight_until_they_stop) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  lk::LinkReading reading = up(1.0);
  link.take_reading(reading, 0);
  reading.errors = 50;  // 500/s
  BOOST_TEST(link.take_reading(reading, 100 * kMilli));
  BOOST_TEST(forward(link) == 0.5);
  BOOST_TEST(link.reason() == "500 errors/s, 100 are allowed");
  for (int i = 2; i <= 6; ++i) link.take_reading(reading, i * 100 * kMilli);
  BOOST_TEST(forward(link) == 0.5);
  link.take_reading(reading, 700 * kMilli);
  BOOST_TEST(forward(link) == 1.0);
}

BOOST_AUTO_TEST_CASE(the_operator_drains) {
  const lk::Thresholds t;
  lk::LinkHealth link(t);
  BOOST_TEST(link.set_drained(true, 5));
  BOOST_TEST((link.state() == LinkState::kDrained));
  BOOST_TEST(forward(link) == 0.0);
  link.port_down(6);
  BOOST_TEST((link.state() == LinkState::kDrained));
  link.set_drained(false, 7);
  BOOST_TEST((link.state() == LinkState::kDown));
}

// Whatever a monitor reads: after a fall, no rise for the hold's time.
BOOST_AUTO_TEST_CASE(no_readings_make_a_weight_oscillate) {
  const lk::Thresholds t;
  const lk::Nanos hold = std::min(t.recover_hold_ns, t.probation_step_ns);
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    lk::Random random(seed);
    lk::LinkHealth link(t);
    double last = 1;
    lk::Nanos fell_at = -kSecond, now = 0;
    std::uint64_t errors = 0;
    int falls = 0;
    for (int i = 0; i < 1000; ++i) {
      now += static_cast<lk::Nanos>(random.below(150)) * kMilli;
      const double p = random.unit();
      lk::LinkReading reading = up(random.chance(0.7) ? 1.0 : random.unit());
      if (p < 0.05) reading.signal = lk::LinkSignal::kDown;
      if (p > 0.95) reading.signal = lk::LinkSignal::kUnknown;
      errors += random.chance(0.1) ? random.below(1000) : 0;
      reading.errors = errors;
      link.take_reading(reading, now);
      const double weight = forward(link);
      if (weight > last && now - fell_at < hold) {
        BOOST_FAIL("seed " << seed << ": a weight rose " << (now - fell_at) / kMilli << " ms after it fell");
      }
      if (weight < last) fell_at = now, ++falls;
      last = weight;
    }
    BOOST_TEST(falls > 0);
  }
}

BOOST_AUTO_TEST_CASE(a_lane_returns_by_probation) {
  const lk::Thresholds t;
  lk::LaneTrack lane;
  lk::Event e;
  e.kind = lk::EventKind::kLaneDown;
  e.cause = lk::Cause::kStall;
  e.number = 7;
  BOOST_TEST(lane.take(e, t));
  BOOST_TEST(lane.weight() == 0.0);
  BOOST_TEST(lane.reason() == "stall");
  BOOST_TEST(lane.seen_event() == 7U);
  e.kind = lk::EventKind::kLaneUp;
  e.number = 9;
  e.at = kSecond;
  BOOST_TEST(lane.take(e, t));
  BOOST_TEST(lane.weight() == 0.125);
  BOOST_TEST(lane.next_time(t) == kSecond + 400 * kMilli);
  lane.advance(t, 3 * kSecond);
  BOOST_TEST(lane.weight() == 1.0);
  BOOST_TEST(lane.next_time(t) == lk::kNever);
  BOOST_TEST(lane.set_factor(0.5));
  BOOST_TEST(lane.reason() == "weight 0.5 set by the operator");
}

BOOST_AUTO_TEST_CASE(a_link_and_its_lane_prove_themselves_once) {
  lk::ClusterSpec cluster;
  cluster.nodes = {{"n0", 0, 2, 0}};
  cluster.gpus = {{0, 0, 0, 0}, {0, 1, 0, 1}};
  lk::LinkSpec link;
  link.nominal_GBps = 100;
  cluster.links = {link};
  lk::LaneSpec lane;
  lane.a = 0;
  lane.b = 1;
  lane.near_hops = {{0, Direction::kForward}};
  cluster.lanes = {lane};
  lk::ClusterView view(cluster);
  const std::uint64_t before = view.version();
  const lk::Weight quarter = lk::weight_of(0.25);
  view.set_link(0, {LinkState::kProbation, {quarter, quarter}, quarter});
  view.set_lane(0, Direction::kForward, {lk::weight_of(0.125), false});
  BOOST_TEST(view.version() == before + 2);
  // capacity × health must be 1/8 of 100 GB/s, not 1/4 × 1/8.
  const double reach = view.capacities()[0][0] * view.lane_health({false})[0][0];
  BOOST_TEST(reach == 12.5, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(view.lane_health({true})[0][0] == 0.0);
  BOOST_TEST(!view.forbidden(0));
  view.set_link(0, {LinkState::kDrained, {0, 0}, lk::kWholeWeight});
  BOOST_TEST(view.forbidden(0));
  view.forget(0);
  BOOST_TEST(view.capacities()[0][0] == 100.0);
}

BOOST_AUTO_TEST_SUITE_END()

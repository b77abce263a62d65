#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "dataplane/base/error.hpp"
#include "tests/control/plane_test_support.hpp"

using lk::Direction;
using lk::EventKind;
using lk::kMilli;
using lk::kSecond;
using lk::plane_test::small_cluster;
using lk::plane_test::World;

BOOST_AUTO_TEST_SUITE(plane)

namespace {

lk::LinkId link_named(const lk::ClusterSpec& cluster, const std::string& name) {
  for (lk::LinkId link = 0; link < cluster.links.size(); ++link) {
    if (cluster.links[link].name == name) return link;
  }
  BOOST_FAIL("no link " << name);
  return 0;
}

// The lane of that kind between two GPUs; of rdma: over the sender's port `port`.
lk::LaneId lane_of(const lk::ClusterSpec& cluster, lk::EndpointId a, lk::EndpointId b, lk::LaneKind kind,
                   const std::string& port = "") {
  for (lk::LaneId lane = 0; lane < cluster.lanes.size(); ++lane) {
    const lk::LaneSpec& spec = cluster.lanes[lane];
    if (spec.a != a || spec.b != b || spec.kind != kind) continue;
    bool over = port.empty();
    for (const lk::Hop& hop : spec.near_hops) over = over || cluster.links[hop.link].name == port;
    if (over) return lane;
  }
  BOOST_FAIL("no such lane");
  return 0;
}

bool told(World& world, lk::NodeId node, const std::string& text) {
  for (const std::string& line : world.plane(node).journal().lines()) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

template <typename F>
std::string complaint(F&& f) {
  try {
    f();
  } catch (const lk::InputError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_turn_gives_the_engine_its_routes) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 1);
  world.run(2 * kMilli);
  BOOST_TEST(world.engine(0).tables >= 1U);
  const lk::LaneId nvlink = lane_of(cluster, 0, 1, lk::LaneKind::kNvlink);
  BOOST_TEST(world.engine(0).table.of(nvlink, Direction::kForward).rate_GBps > 0);
  BOOST_TEST(world.engine(0).table.of(nvlink, Direction::kBackward).rate_GBps > 0);
  // Of a lane between nodes only the own sending side.
  const lk::LaneId rail = lane_of(cluster, 0, 2, lk::LaneKind::kRdma);
  BOOST_TEST(world.engine(0).table.of(rail, Direction::kForward).standby_GBps > 0);
  BOOST_TEST(world.engine(0).table.of(rail, Direction::kBackward).standby_GBps == 0);
  BOOST_TEST(world.engine(1).table.of(rail, Direction::kBackward).rate_GBps > 0);
}

BOOST_AUTO_TEST_CASE(a_lane_event_is_in_the_table_of_the_same_turn) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 2);
  world.run(50 * kMilli);
  const lk::LaneId rail = lane_of(cluster, 0, 2, lk::LaneKind::kRdma);
  auto& engine = world.engine(0);
  engine.emit(engine.lane_event(EventKind::kLaneDown, rail, Direction::kForward, lk::Cause::kBadCompletion), world.now);
  world.plane(0).tick(world.now);
  engine.step(world.now);
  const lk::LaneRoute& down = engine.table.of(rail, Direction::kForward);
  BOOST_TEST(down.seen_event > 0U);
  BOOST_TEST(down.rate_GBps == 0);
  BOOST_TEST(down.standby_GBps > 0);  // never forbidden for a failure
  BOOST_TEST(told(world, 0, "down (bad completion) since 0.050 s"));
  // What it carried is on other lanes of the trunk.
  lk::GBps rest = 0;
  const lk::TrunkSpec& trunk = cluster.trunks[cluster.lanes[rail].trunk];
  for (lk::LaneId lane = trunk.first_lane; lane < trunk.first_lane + trunk.lane_count; ++lane) {
    rest += engine.table.of(lane, Direction::kForward).rate_GBps;
  }
  BOOST_TEST(rest > 0);
  const std::uint64_t seen = down.seen_event;
  engine.emit(engine.lane_event(EventKind::kLaneUp, rail, Direction::kForward), world.now);
  world.plane(0).tick(world.now);
  engine.step(world.now);
  BOOST_TEST(engine.table.of(rail, Direction::kForward).seen_event > seen);
  const lk::GBps at_once = engine.table.of(rail, Direction::kForward).standby_GBps;
  world.run(2 * kSecond);
  BOOST_TEST(engine.table.of(rail, Direction::kForward).standby_GBps > 4 * at_once);
  BOOST_TEST(engine.table.of(rail, Direction::kForward).rate_GBps > 0);
}

BOOST_AUTO_TEST_CASE(a_port_event_moves_traffic_on_both_ends) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 3);
  world.run(200 * kMilli);
  const lk::LinkId port = link_named(cluster, "n0.mlx5_0.port1");
  const lk::LaneId rail = lane_of(cluster, 0, 2, lk::LaneKind::kRdma, "n0.mlx5_0.port1");
  const lk::GBps before = world.engine(1).table.of(rail, Direction::kBackward).rate_GBps;
  BOOST_TEST(before > 0);
  lk::Event e;
  e.kind = EventKind::kLinkDown;
  e.link = port;
  world.engine(0).emit(e, world.now);
  world.engine(0).readings[port] = {lk::LinkSignal::kDown, {0, 0}, 0};
  world.run(5 * kMilli);
  BOOST_TEST(world.engine(0).table.of(rail, Direction::kForward).rate_GBps == 0);
  BOOST_TEST(world.engine(1).table.of(rail, Direction::kBackward).rate_GBps == 0);  // told by the peer
  BOOST_TEST(told(world, 0, "n0.mlx5_0.port1 down (port event) since 0.200 s, was up"));
  BOOST_TEST(told(world, 1, "n0 says: n0.mlx5_0.port1 down, was up"));
  e.kind = EventKind::kLinkUp;
  world.engine(0).emit(e, world.now);
  world.engine(0).readings.clear();
  world.run(4 * kSecond);
  BOOST_TEST(world.engine(1).table.of(rail, Direction::kBackward).rate_GBps == before,
             boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(half_a_rail_carries_half) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 4);
  world.run(200 * kMilli);
  const lk::LinkId port = link_named(cluster, "n0.mlx5_0.port1");
  world.engine(0).readings[port] = {lk::LinkSignal::kUp, {0.5, 0.5}, 0};
  world.run(300 * kMilli);
  // All that leaves n0 over that port, by the rates of all trunks over it, is what the port can do.
  lk::GBps sum = 0;
  for (lk::LaneId lane = 0; lane < cluster.lanes.size(); ++lane) {
    for (const lk::Hop& hop : cluster.lanes[lane].near_hops) {
      const bool used =
          cluster.lanes[lane].kind == lk::LaneKind::kRdma && cluster.gpus[cluster.lanes[lane].b].node == 1;
      const bool planned = cluster.lanes[lane].b - cluster.lanes[lane].a == 2;  // the same column
      if (hop.link == port && used && planned) sum += world.engine(0).table.of(lane, Direction::kForward).rate_GBps;
    }
  }
  BOOST_TEST(sum <= 0.5 * cluster.links[port].nominal_GBps * 1.001);
  BOOST_TEST(sum >= 0.5 * cluster.links[port].nominal_GBps * 0.9);
}

BOOST_AUTO_TEST_CASE(the_operator_drains_and_both_ends_stop_using_it) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 5);
  world.run(200 * kMilli);
  const lk::LinkId port = link_named(cluster, "n0.mlx5_0.port1");
  const lk::LaneId rail = lane_of(cluster, 0, 2, lk::LaneKind::kRdma, "n0.mlx5_0.port1");
  world.plane(0).drain_link(port, true, world.now);
  world.run(5 * kMilli);
  for (const auto& [node, d] : {std::pair{lk::NodeId{0}, Direction::kForward}, {lk::NodeId{1}, Direction::kBackward}}) {
    BOOST_TEST(world.engine(node).table.of(rail, d).rate_GBps == 0);
    BOOST_TEST(world.engine(node).table.of(rail, d).standby_GBps == 0);
  }
  BOOST_TEST(world.plane(0).explain_link(port)[1].find("drained by the operator") != std::string::npos);
  BOOST_TEST(complaint([&] { world.plane(1).drain_link(port, true, 0); }) ==
             "n0.mlx5_0.port1 belongs to n0, ask there");
  world.plane(0).drain_link(port, false, world.now);
  world.run(3 * kSecond);
  BOOST_TEST(world.engine(1).table.of(rail, Direction::kBackward).rate_GBps > 0);
}

BOOST_AUTO_TEST_CASE(a_lane_can_be_switched_off_or_weighed_down) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 6);
  world.run(200 * kMilli);
  const lk::LaneId nvlink = lane_of(cluster, 0, 1, lk::LaneKind::kNvlink);
  world.plane(0).set_lane_off(nvlink, true, world.now);
  world.run(5 * kMilli);
  BOOST_TEST(world.engine(0).table.of(nvlink, Direction::kForward).standby_GBps == 0);
  unsigned off = 0;
  for (const lk::Command& c : world.engine(0).log) off += c.kind == lk::CommandKind::kLaneOff ? 1 : 0;
  BOOST_TEST(off == 2U);  // both directions begin here
  const lk::LaneId pcie = lane_of(cluster, 0, 1, lk::LaneKind::kPcie);
  BOOST_TEST(world.engine(0).table.of(pcie, Direction::kForward).rate_GBps > 0);
  world.plane(0).set_lane_off(nvlink, false, world.now);
  world.run(5 * kMilli);
  BOOST_TEST(world.engine(0).table.of(nvlink, Direction::kForward).rate_GBps > 0);

  world.plane(0).set_lane_weight(nvlink, 0.25, world.now);
  world.run(5 * kMilli);
  const lk::GBps quarter = world.engine(0).table.of(nvlink, Direction::kForward).standby_GBps;
  BOOST_TEST(quarter == 0.25 * cluster.lanes[nvlink].nominal_GBps, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(complaint([&] { world.plane(0).set_lane_weight(nvlink, 1.5, 0); }).find("weight 1.5, expected 0 to 1") !=
             std::string::npos);
  BOOST_TEST(complaint([&] { world.plane(1).set_lane_off(nvlink, true, 0); }).find("does not begin on n1") !=
             std::string::npos);
  BOOST_TEST(complaint([&] { world.plane(0).explain_lane(1'000'000); }).find("lane 1000000 is unknown") == 0U);
}

BOOST_AUTO_TEST_CASE(a_policy_forbids_a_rung_for_ever) {
  const lk::ClusterSpec cluster = small_cluster(2);
  lk::ControlOptions options;
  options.policy.never[static_cast<std::size_t>(lk::LaneKind::kTcp)] = true;
  World world(cluster, 7, options);
  world.run(10 * kMilli);
  const lk::LaneId tcp = lane_of(cluster, 0, 2, lk::LaneKind::kTcp);
  BOOST_TEST(world.engine(0).table.of(tcp, Direction::kForward).standby_GBps == 0);
  BOOST_TEST(world.plane(0).explain_lane(tcp)[1] == "not used: the policy forbids tcp");
  World free(cluster, 7);
  free.run(10 * kMilli);
  BOOST_TEST(free.engine(0).table.of(tcp, Direction::kForward).standby_GBps > 0);
}

BOOST_AUTO_TEST_CASE(a_dry_run_changes_nothing_and_says_what_would) {
  const lk::ClusterSpec cluster = small_cluster(2);
  lk::ControlOptions options;
  options.thresholds.route_interval_ns = 3600 * kSecond;  // calm changes wait for ever
  World world(cluster, 8, options);
  world.run(200 * kMilli);
  BOOST_TEST(world.plane(0).rebalance(false, world.now).empty());
  // A link that is back, while its routes still wait.
  const lk::LinkId port = link_named(cluster, "n0.mlx5_0.port1");
  world.engine(0).readings[port] = {lk::LinkSignal::kUp, {0.5, 0.5}, 0};
  world.run(300 * kMilli);
  world.engine(0).readings.clear();
  world.run(2 * kSecond);
  const std::uint64_t version = world.plane(0).routes().version();
  const auto changes = world.plane(0).rebalance(false, world.now);
  BOOST_TEST(!changes.empty());
  BOOST_TEST(!changes.front().reason.empty());
  BOOST_TEST(world.plane(0).routes().version() == version);
  world.plane(0).rebalance(true, world.now);
  world.run(5 * kMilli);
  BOOST_TEST(world.plane(0).routes().version() > version);
  BOOST_TEST(world.plane(0).rebalance(false, world.now).empty());
}

BOOST_AUTO_TEST_CASE(a_group_comes_to_be_on_all_its_nodes) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 9);
  const lk::GroupId id = world.create({2, 4, 3, 0}, "training");
  BOOST_REQUIRE(world.run_until([&] { return world.ready(id); }, kSecond));
  for (lk::NodeId n = 0; n < 3; ++n) {
    const auto& group = world.engine(n).groups.at(id);
    BOOST_TEST(group.spec.members == (std::vector<lk::EndpointId>{2, 4, 3, 0}), boost::test_tools::per_element());
    BOOST_TEST(group.spec.uuid_hi == world.engine(0).groups.at(id).spec.uuid_hi);
    BOOST_TEST(group.plans.front().share == world.engine(0).groups.at(id).plans.front().share,
               boost::test_tools::per_element());
  }
  // The name is taken, here and elsewhere, and the refusal says by whom.
  world.run(3 * kSecond);
  BOOST_TEST(complaint([&] {
               world.create({2, 0}, "training");
             }) == "group training: the name is in use on n1 by tester for 3 s");
  BOOST_TEST(complaint([&] {
               world.plane(0).create_group("x", std::vector<lk::EndpointId>{2, 0}, {}, 0);
             }) == "group x: rank 0 is on n1, which must create it, not n0");
  world.plane(1).end_group(id, world.now);
  world.run(50 * kMilli);
  for (lk::NodeId n = 0; n < 3; ++n) {
    BOOST_TEST(world.engine(n).groups.at(id).ended);
    BOOST_TEST((world.engine(n).groups.at(id).end_status == lk::Status::kCancelled));
  }
  const lk::GroupId again = world.create({2, 4}, "training");
  BOOST_TEST(again != id);
  world.run(200 * kMilli);
  BOOST_TEST((world.plane(2).group(again)->state == lk::GroupState::kReady));
}

BOOST_AUTO_TEST_CASE(another_node_may_refuse_the_name) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 10);
  const lk::GroupId first = world.create({2, 4}, "training");
  world.run(kSecond);
  BOOST_TEST((world.plane(1).group(first)->state == lk::GroupState::kReady));
  const lk::GroupId second = world.create({0, 5}, "training");  // n0 does not know the name, n2 does
  world.run(200 * kMilli);
  BOOST_TEST((world.plane(0).group(second)->state == lk::GroupState::kEnded));
  BOOST_TEST(world.plane(0).group(second)->error.find("n2 refused it: the name is in use on n2 by tester") == 0U);
  BOOST_TEST(!world.engine(2).groups.at(first).ended);
}

BOOST_AUTO_TEST_CASE(a_node_that_is_missing_is_named_at_the_deadline) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 11);
  world.kill(2);
  const lk::GroupId id = world.create({0, 2, 4}, "training");
  world.run(5200 * kMilli);
  BOOST_TEST((world.plane(0).group(id)->state == lk::GroupState::kEnded));
  BOOST_TEST(world.plane(0).group(id)->error == "no answer from n2 before the deadline");
  BOOST_TEST(!world.engine(1).groups.contains(id));
}

BOOST_AUTO_TEST_CASE(reports_have_what_the_operator_asks_for) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World world(cluster, 12);
  const lk::GroupId id = world.create({0, 1, 2, 3}, "training");
  BOOST_REQUIRE(world.run_until([&] { return world.ready(id); }, kSecond));
  const nlohmann::json status = world.plane(0).status(world.now);
  BOOST_TEST(status["node"] == "n0");
  BOOST_TEST(status["groups"] == 1);
  BOOST_TEST(status["peers"][0]["state"] == "alive");
  const nlohmann::json links = world.plane(0).links();
  BOOST_TEST(links.size() > 0U);
  BOOST_TEST(links[0]["state"] == "up");
  const nlohmann::json lanes = world.plane(0).lanes();
  BOOST_TEST(lanes[0]["measured_GBps"].is_null());
  BOOST_TEST(world.plane(0).request_snapshot());
  BOOST_TEST(!world.plane(0).request_snapshot());
  world.run(5 * kMilli);
  BOOST_TEST(world.plane(0).snapshot() != nullptr);
  BOOST_TEST(world.plane(0).request_snapshot());
  bool own = false;
  for (const auto& trunk : world.plane(0).trunks())
    own = own || (trunk["from"] == "n0.gpu0" && trunk["to"] == "n1.gpu0");
  BOOST_TEST(own);
  BOOST_TEST(world.plane(0).groups(world.now)[0]["members"][2] == "n1.gpu0");
  BOOST_TEST(!world.plane(0).events().empty());
  const auto lines = world.plane(0).explain_lane(lane_of(cluster, 0, 2, lk::LaneKind::kRdma));
  BOOST_TEST(lines.size() >= 5U);
  BOOST_TEST(lines[2].find("forward: up since") == 0U);
  BOOST_TEST(lines[3].find("as n1 says") != std::string::npos);
}

// The same seed, the same journal to the letter.
BOOST_AUTO_TEST_CASE(a_run_repeats_itself) {
  const lk::ClusterSpec cluster = small_cluster(3);
  const auto run = [&] {
    World world(cluster, 13);
    world.faults = {0.2, 0.1, 5 * kMilli, 0.3};
    world.create({0, 1, 2, 3, 4, 5});
    world.run(kSecond);
    world.engine(1).readings[link_named(cluster, "n1.mlx5_0.port1")] = {lk::LinkSignal::kUp, {0.3, 0.3}, 0};
    world.run(kSecond);
    world.kill(2);
    world.run(4 * kSecond);
    return world.journals();
  };
  BOOST_TEST(run() == run());
}

BOOST_AUTO_TEST_SUITE_END()

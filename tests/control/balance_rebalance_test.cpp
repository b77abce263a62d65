#include <boost/test/unit_test.hpp>
#include <cmath>

#include "control/balance/rebalance.hpp"
#include "tests/control/balance_test_support.hpp"

namespace lk {
namespace {

using namespace balance_test;
namespace tt = boost::test_tools;

// Two GPUs on two nodes, two NICs beside each: one trunk, two lanes of 25 GB/s.
struct Pair {
  Pair() {
    Board board;
    board.nodes = 2;
    board.gpus = 1;
    board.gpu_of_nic = {0, 0};
    board.port_GBps = 25;
    board.pcie_GBps = 100;
    cluster = build(board);
    capacity = nominal_capacities(cluster);
    health = full_health(cluster);
    members = everyone(cluster);
    in_force = balance(input());
  }
  BalanceInput input() const { return {cluster, capacity, health, members}; }
  void set_port(int nic, GBps rate) {
    capacity[link_named(cluster, "n0.mlx5_" + std::to_string(nic) + ".port1")] = {rate, rate};
  }
  RebalanceDecision decide(Nanos since) const {
    return decide_rebalance(input(), in_force, balance(input()), RebalancePolicy{}, since);
  }

  ClusterSpec cluster;
  LinkCapacities capacity;
  LaneHealth health;
  std::vector<EndpointId> members;
  Balance in_force;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(balance_rebalance)

BOOST_AUTO_TEST_CASE(what_is_predicted_for_a_result_is_what_it_says) {
  const Pair pair;
  BOOST_TEST(predicted_ns_per_byte(pair.input(), pair.in_force.share, pair.in_force.lane_GBps) == 1.0 / 50,
             tt::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(nothing_changed_is_not_worth_a_change) {
  const Pair pair;
  const RebalanceDecision decision = pair.decide(kSecond);
  BOOST_TEST(!decision.apply);
  BOOST_TEST(std::fabs(decision.gain) < 1e-6);
  BOOST_TEST(changes_between(pair.input(), pair.in_force, balance(pair.input())).empty());
}

// One rail at half: halves in force take 0.5 / 12.5, the best take 1 / 37.5: a gain of half. The fractions become 1/3,
// 2/3.
BOOST_AUTO_TEST_CASE(a_large_gain_waits_only_for_the_interval) {
  Pair pair;
  pair.set_port(0, 12.5);
  const RebalanceDecision decision = pair.decide(kSecond);
  BOOST_TEST(decision.apply);
  BOOST_TEST(decision.gain == 0.5, tt::tolerance(1e-6));
  BOOST_TEST(!pair.decide(10 * kMilli).apply);
  const auto changes = changes_between(pair.input(), pair.in_force, balance(pair.input()));
  BOOST_REQUIRE(changes.size() == 4U);
  BOOST_TEST(changes[0].from == 0.5, tt::tolerance(1e-6));
  BOOST_TEST(changes[0].to == 1.0 / 3, tt::tolerance(1e-6));
  BOOST_TEST(changes[0].reason == "carries 33.3 % of its trunk, 12.5 GB/s: n0.mlx5_0.port1 runs at 12.5 of 25 GB/s");
}

BOOST_AUTO_TEST_CASE(a_small_gain_needs_patience) {
  Pair pair;
  pair.set_port(0, 24.75);  // 1 % off: a gain of about half a per cent
  BOOST_TEST(!pair.decide(kSecond).apply);
  BOOST_TEST(pair.decide(3 * kSecond).apply);
}

BOOST_AUTO_TEST_CASE(a_dead_lane_in_use_never_waits) {
  Pair pair;
  pair.set_port(0, 0);
  const RebalanceDecision decision = pair.decide(0);
  BOOST_TEST(decision.apply);
  BOOST_TEST(std::isinf(decision.gain));
}

BOOST_AUTO_TEST_CASE(an_impossible_proposal_is_refused) {
  Pair pair;
  for (auto& both : pair.capacity) both = {0, 0};
  BOOST_TEST(!pair.decide(kSecond).apply);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

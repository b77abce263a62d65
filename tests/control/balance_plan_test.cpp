// Expected times are worked out by hand from the plan (comment at each); tests/control/balance_bound_test.cpp compares
// with another solver.
#include "control/balance/balance.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

#include "dataplane/base/error.hpp"
#include "tests/control/balance_test_support.hpp"

namespace lk {
namespace {

using namespace balance_test;
namespace tt = boost::test_tools;

struct Lab {
  explicit Lab(const Board& board)
      : cluster(build(board)),
        capacity(nominal_capacities(cluster)),
        health(full_health(cluster)),
        members(everyone(cluster)) {}
  BalanceInput input() const { return {cluster, capacity, health, members}; }
  void degrade(const std::string& link, double fraction) {
    for (GBps& c : capacity[link_named(cluster, link)]) c *= fraction;
  }
  void degrade(const std::string& link, Direction d, double fraction) {
    capacity[link_named(cluster, link)][static_cast<std::size_t>(d)] *= fraction;
  }

  ClusterSpec cluster;
  LinkCapacities capacity;
  LaneHealth health;
  std::vector<EndpointId> members;
};

// Two nodes of two GPUs, NVLink so wide that only the two rails of 25 GB/s count.
Board two_rails() {
  Board board;
  board.nodes = 2;
  board.gpus = 2;
  board.nvswitch = true;
  board.switch_GBps = 1000;
  board.gpu_of_nic = {0, 1};
  board.port_GBps = 25;
  board.pcie_GBps = 50;
  return board;
}

double sum_of(const Shares& shares) {
  double sum = 0;
  for (const auto& homes : shares) {
    for (const double share : homes) sum += share;
  }
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(balance_plan)

// Each GPU sends 7/8 to the owners and 7/8 to all: 1.75 bytes a byte over 300 GB/s; a rail 1/8 over 24.3 GB/s is less.
BOOST_AUTO_TEST_CASE(healthy_cluster_has_exactly_equal_shares_on_its_best_lanes) {
  const Lab lab(dgx_a100(2));
  const Balance result = balance(lab.input());
  BOOST_TEST(result.feasible);
  BOOST_TEST(result.exact);
  BOOST_TEST(result.bound_ns_per_byte == 1.75 / 300, tt::tolerance(1e-9));
  BOOST_TEST(result.predicted_ns_per_byte == 1.75 / 300, tt::tolerance(1e-9));
  for (const auto& homes : result.share) {
    for (const double share : homes) BOOST_TEST(share == 1.0 / 16);
  }
  for (const LaneSpec& lane : lab.cluster.lanes) {
    if (lane.rung == 0) continue;
    BOOST_TEST(result.lane_GBps[static_cast<std::size_t>(&lane - lab.cluster.lanes.data())][0] == 0.0);
  }
}

// Eight nodes: a port sends (8 - 2) parts that it is home of, and the column: 14/64 over 24.3 GB/s.
BOOST_AUTO_TEST_CASE(eight_nodes_are_bound_by_their_rails) {
  const Lab lab(dgx_a100(8));
  const Balance result = balance(lab.input());
  BOOST_TEST(result.exact);
  BOOST_TEST(result.bound_ns_per_byte == 14.0 / 64 / 24.3, tt::tolerance(1e-9));
  BOOST_TEST(result.share[3][5] == 1.0 / 64);
}

// All bytes cross between the nodes once in each direction, over both ports of n0 together.
BOOST_AUTO_TEST_CASE(rails_carry_in_proportion_to_what_they_can) {
  for (const double fraction : {1.0, 0.5, 0.25, 0.0}) {
    Lab lab(two_rails());
    lab.degrade("n0.mlx5_0.port1", fraction);
    const Balance result = balance(lab.input());
    BOOST_TEST(result.bound_ns_per_byte == 1 / (25 * (1 + fraction)), tt::tolerance(1e-6));
    BOOST_TEST(result.predicted_ns_per_byte == result.bound_ns_per_byte, tt::tolerance(1e-6));
    BOOST_TEST(sum_of(result.share) == 1.0, tt::tolerance(1e-9));
  }
}

// Shares kept even (a plan in force): rail 0 at a quarter gets its capacity, the rest goes by rail 1.
BOOST_AUTO_TEST_CASE(given_shares_are_kept_and_lanes_make_up_for_it) {
  Lab lab(two_rails());
  lab.degrade("n0.mlx5_0.port1", 0.25);
  const Shares even(2, std::vector<double>(2, 0.25));
  const Balance result = balance_with_shares(lab.input(), even);
  BOOST_TEST(result.share[0][1] == 0.25);
  BOOST_TEST(result.bound_ns_per_byte == 1 / 31.25, tt::tolerance(1e-6));
  const LaneId own = lane_between(lab.cluster, 0, 2, LaneKind::kRdma);
  BOOST_TEST(result.lane_GBps[own][0] == 6.25, tt::tolerance(1e-6));
  BOOST_TEST(result.lane_GBps[own + 1][0] == 31.25 / 2 - 6.25, tt::tolerance(1e-6));
  BOOST_TEST(lane_reason(lab.input(), result, own) ==
             "carries 40 % of its trunk, 6.25 GB/s: n0.mlx5_0.port1 runs at "
             "6.25 of 25 GB/s");
}

// Mesh of four, 100 GB/s a pair, each GPU a quarter: a pair carries 1/2 byte. With pair 0-1 at half, two relays and
// PCIe (25 GB/s) stand by, and the healthy pairs have nothing to spare but what the shares free.
BOOST_AUTO_TEST_CASE(half_an_nvlink_gets_help_from_relays_and_pcie) {
  Lab lab(mesh_4gpu(1));
  lab.degrade("n0.gpu0-gpu1.nvlink", 0.5);
  const Balance result = balance(lab.input());
  BOOST_TEST(result.bound_ns_per_byte > 0.5 / 100);
  BOOST_TEST(result.bound_ns_per_byte < 0.5 / 75);  // PCIe alone would reach that with even shares
  BOOST_TEST(result.lane_GBps[lane_between(lab.cluster, 0, 1, LaneKind::kPcie)][0] > 0.0);
  BOOST_TEST(lane_reason(lab.input(), result, lane_between(lab.cluster, 0, 1, LaneKind::kHost)) ==
             "not used: host is only for a trunk with nothing else left");
  BOOST_TEST(lane_reason(lab.input(), result, lane_between(lab.cluster, 0, 2, LaneKind::kPcie)) ==
             "not used: nvlink of this trunk is healthy");
}

// A relay is a queue pair and needs both directions; PCIe is read directly and needs one.
BOOST_AUTO_TEST_CASE(message_lanes_need_both_directions) {
  Lab lab(mesh_4gpu(1));
  lab.degrade("n0.gpu0-gpu1.nvlink", 0.0);
  lab.degrade("n0.gpu0-gpu2.nvlink", Direction::kBackward, 0.0);
  const Balance result = balance(lab.input());
  const LaneId relay = lane_between(lab.cluster, 0, 1, LaneKind::kRelay);  // by GPU 2
  BOOST_TEST(result.feasible);
  BOOST_TEST(result.lane_GBps[relay][0] == 0.0);
  BOOST_TEST(result.lane_GBps[relay][1] == 0.0);
  BOOST_TEST(
      lane_reason(lab.input(), result, relay, Direction::kForward) ==
      "not used: its other direction is dead (n0.gpu0-gpu2.nvlink carries nothing), and a queue pair needs both");
}

// All ports dead: 2.5 GB/s of each node's netdev carry every byte once in each direction.
BOOST_AUTO_TEST_CASE(tcp_is_the_last_resort) {
  Lab lab(two_rails());
  lab.degrade("n0.mlx5_0.port1", 0.0);
  lab.degrade("n0.mlx5_1.port1", 0.0);
  const Balance result = balance(lab.input());
  BOOST_TEST(result.bound_ns_per_byte == 1 / 2.5, tt::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(says_when_nothing_joins_the_members) {
  Lab lab(two_rails());
  lab.degrade("n0.mlx5_0.port1", 0.0);
  lab.degrade("n0.mlx5_1.port1", 0.0);
  lab.degrade("n0.eth0", 0.0);
  const Balance result = balance(lab.input());
  BOOST_TEST(!result.feasible);
  BOOST_TEST(std::isinf(result.predicted_ns_per_byte));
  BOOST_TEST(std::isinf(result.bound_ns_per_byte));
}

// A lane in probation carries no more than its health allows, and one that is off nothing.
BOOST_AUTO_TEST_CASE(health_limits_a_lane) {
  Lab lab(two_rails());
  const LaneId own = lane_between(lab.cluster, 0, 2, LaneKind::kRdma);
  lab.health[own] = {0.1, 0.1};
  lab.health[own + 1] = {0.0, 0.0};
  const Shares even(2, std::vector<double>(2, 0.25));
  const Balance result = balance_with_shares(lab.input(), even);
  BOOST_TEST(result.lane_GBps[own][0] == 2.5, tt::tolerance(1e-6));
  BOOST_TEST(result.predicted_ns_per_byte == 0.5 / 2.5, tt::tolerance(1e-6));
  BOOST_TEST(lane_reason(lab.input(), result, own + 1) == "not used: it is off, down or held down");
}

// One member has nothing to move; a GPU that only some columns could reach loses those columns.
BOOST_AUTO_TEST_CASE(odd_groups_are_served) {
  Lab lab(mesh_4gpu(2));
  lab.members = {3};
  BOOST_TEST(balance(lab.input()).bound_ns_per_byte == 0.0);
  BOOST_TEST(balance(lab.input()).feasible);
  lab.members = {0, 1, 2, 3, 4, 5};  // four on one node, two on the other
  const Balance result = balance(lab.input());
  BOOST_TEST(result.feasible);
  BOOST_TEST(result.share.size() == 4U);
  BOOST_TEST(result.share[0].size() == 2U);
}

BOOST_AUTO_TEST_CASE(same_input_gives_the_same_bits) {
  Lab lab(dgx1_v100(2));
  lab.degrade("n0.gpu0-gpu3.nvlink", 0.5);
  lab.degrade("n1.mlx5_2.port1", 0.3);
  const Balance first = balance(lab.input());
  const Balance second = balance(lab.input());
  BOOST_TEST(first.share == second.share);
  BOOST_TEST((first.lane_GBps == second.lane_GBps));
  BOOST_TEST(first.bound_ns_per_byte == second.bound_ns_per_byte);
}

// The rule for large clusters: on a healthy one it is the bound, with a dead rail near it.
BOOST_AUTO_TEST_CASE(beyond_the_limit_the_proportional_rule_takes_over) {
  const BalanceLimits tiny{.max_variables = 4};
  Lab lab(dgx_a100(2));
  const Balance healthy = balance(lab.input(), tiny);
  BOOST_TEST(!healthy.exact);
  BOOST_TEST(healthy.predicted_ns_per_byte == 1.75 / 300, tt::tolerance(1e-9));
  lab.degrade("n0.mlx5_0.port1", 0.0);
  const Balance cut = balance(lab.input(), tiny);
  BOOST_TEST(cut.feasible);
  BOOST_TEST(cut.predicted_ns_per_byte <= 1.1 * balance(lab.input()).bound_ns_per_byte);
}

BOOST_AUTO_TEST_CASE(tables_of_the_wrong_size_are_refused) {
  Lab lab(two_rails());
  lab.capacity.pop_back();
  BOOST_CHECK_THROW(balance(lab.input()), InputError);
  Lab twice(two_rails());
  twice.members = {0, 1, 1};
  BOOST_CHECK_THROW(balance(twice.input()), InputError);
  const Lab shares(two_rails());
  BOOST_CHECK_THROW(balance_with_shares(shares.input(), Shares(3, std::vector<double>(2, 1.0 / 6))), InputError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

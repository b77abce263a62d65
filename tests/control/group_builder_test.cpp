#include <boost/test/unit_test.hpp>
#include <numeric>

#include "control/peers/group_builder.hpp"
#include "dataplane/base/error.hpp"

BOOST_AUTO_TEST_SUITE(group_builder)

namespace {

// Two domains of three and two GPUs, one a node; a trunk with one lane between every pair.
lk::ClusterSpec uneven_cluster(lk::GBps rate) {
  lk::ClusterSpec cluster;
  cluster.nodes = {{"n0", 0, 3, 0}, {"n1", 3, 2, 0}};
  for (std::uint16_t g = 0; g < 5; ++g) {
    const std::uint16_t node = g < 3 ? 0 : 1;
    cluster.gpus.push_back(
        {node, static_cast<std::uint16_t>(g - node * 3), node, static_cast<std::uint16_t>(g - node * 3)});
  }
  cluster.domains = {{{0, 1, 2}, 1}, {{3, 4}, 1}};
  for (std::uint16_t a = 0; a < 5; ++a) {
    for (std::uint16_t b = static_cast<std::uint16_t>(a + 1); b < 5; ++b) {
      const auto id = static_cast<std::uint32_t>(cluster.trunks.size());
      lk::LaneSpec lane;
      lane.trunk = id;
      lane.a = a;
      lane.b = b;
      lane.nominal_GBps = rate;
      cluster.lanes.push_back(lane);
      cluster.trunks.push_back({a, b, id, 1});
      cluster.trunk_of_pair[std::uint32_t{a} << 16 | b] = id;
    }
  }
  return cluster;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_lie_in_domain_order) {
  const lk::ClusterSpec cluster = uneven_cluster(25);
  const std::vector<lk::EndpointId> members = {4, 2, 0, 3};  // rank 0 is in the second domain
  const lk::GroupSpec group = lk::make_group_spec(cluster, members, {7, "g", 1, 2});
  BOOST_TEST(group.id == 7);
  BOOST_REQUIRE(group.domains.size() == 2U);
  BOOST_TEST(group.domains[0].ranks == (std::vector<lk::Rank>{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(group.domains[1].ranks == (std::vector<lk::Rank>{0, 3}), boost::test_tools::per_element());
  BOOST_TEST(group.domain_of == (std::vector<std::uint16_t>{1, 0, 0, 1}), boost::test_tools::per_element());
  BOOST_TEST(group.place_of == (std::vector<std::uint16_t>{0, 0, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST(group.columns == 2);
  BOOST_TEST(lk::nodes_of(cluster, group) == (std::vector<lk::NodeId>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(lk::ranks_on(cluster, group, 1) == (std::vector<lk::Rank>{0, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_shrunk_group_closes_up) {
  const lk::ClusterSpec cluster = uneven_cluster(25);
  const std::vector<lk::EndpointId> members = {4, 2, 0, 3};
  const std::vector<lk::NodeId> lost = {1};
  const lk::GroupSpec group =
      lk::make_shrunk_spec(cluster, lk::make_group_spec(cluster, members, {7, "g", 1, 2}), lost, 2, 9);
  BOOST_TEST(group.members == (std::vector<lk::EndpointId>{2, 0}), boost::test_tools::per_element());
  BOOST_TEST(group.domains.size() == 1U);
  BOOST_TEST(group.membership == 2);
  BOOST_TEST(group.first_op == 9U);
  BOOST_TEST(group.uuid_lo == 2U);
}

BOOST_AUTO_TEST_CASE(bad_members_are_named) {
  const lk::ClusterSpec cluster = uneven_cluster(25);
  const auto text = [&](std::vector<lk::EndpointId> members) {
    try {
      lk::make_group_spec(cluster, members, {0, "g", 0, 0});
    } catch (const lk::InputError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  BOOST_TEST(text({}) == "group g: no members, expected one GPU at least");
  BOOST_TEST(text({1, 9}) == "group g: GPU 9 is unknown, expected below 5");
  BOOST_TEST(text({1, 1}) == "group g: GPU 1 is there twice");
}

BOOST_AUTO_TEST_CASE(shares_sum_to_the_unit) {
  // 65536 / 6 = 10922 rest 4: the first four parts get one more.
  const lk::ClusterSpec cluster = uneven_cluster(25);
  const std::vector<lk::EndpointId> members = {0, 1, 2, 3, 4};
  const lk::PlanSpec plan = lk::default_plan(cluster, lk::make_group_spec(cluster, members));
  BOOST_TEST(plan.share == (std::vector<std::uint32_t>{10923, 10923, 10923, 10923, 10922, 10922}),
             boost::test_tools::per_element());
  const auto odd = lk::whole_shares({{1.0 / 3, 0.0}, {1.0 / 3, 1.0 / 3}});
  BOOST_TEST(odd == (std::vector<std::uint32_t>{21846, 0, 21845, 21845}), boost::test_tools::per_element());
  BOOST_TEST(std::accumulate(odd.begin(), odd.end(), 0U) == lk::kShareUnit);
}

BOOST_AUTO_TEST_CASE(a_chunk_takes_a_millisecond_at_most) {
  // 1 GB/s moves 10^6 bytes in 1 ms: 512 KiB fit, 1 MiB does not. 25 GB/s would move more than the default's most.
  const std::vector<lk::EndpointId> members = {0, 1, 2, 3, 4};
  const auto bytes = [&](lk::GBps rate) {
    const lk::ClusterSpec cluster = uneven_cluster(rate);
    return lk::default_plan(cluster, lk::make_group_spec(cluster, members)).chunk_bytes;
  };
  BOOST_TEST(bytes(25) == lk::kMiB);
  BOOST_TEST(bytes(1) == 512 * lk::kKiB);
  BOOST_TEST(bytes(0.001) == 16 * lk::kKiB);
  // 10 us at 120 GB/s are 1.2 MB, more than 1 MiB; at 300 GB/s 3 MB.
  BOOST_TEST(bytes(100) == lk::kMiB);
  BOOST_TEST(bytes(120) == 2 * lk::kMiB);
  BOOST_TEST(bytes(300) == 4 * lk::kMiB);
  BOOST_TEST(bytes(900) == 4 * lk::kMiB);
  lk::ChunkLimits small;
  small.most_bytes = 256 * lk::kKiB;
  BOOST_TEST(lk::chunk_bytes_at(900, small) == 256 * lk::kKiB);
}

BOOST_AUTO_TEST_SUITE_END()

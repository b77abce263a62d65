// Who reduces what: the owners of a column must have a trunk between each two of them, whatever was lost or chosen
// (control/topology/columns.hpp). Trunks are those of a large cluster, which joins only GPUs of the same index.
#include "control/topology/columns.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "control/peers/group_builder.hpp"
#include "control/topology/profiles.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// Three nodes of one NVLink fabric, 12 GPUs, and two boxes of 4.
ClusterSpec rack_and_boxes() {
  return build_profiles(
      {{.profile = "gb200-nvl72", .nodes = 3, .domain_nodes = 3}, {.profile = "mesh-4gpu", .nodes = 2}},
      Pairs::kSameColumn);
}

std::vector<EndpointId> all_gpus(const ClusterSpec& cluster) {
  std::vector<EndpointId> all;
  for (EndpointId e = 0; e < cluster.gpus.size(); ++e) all.push_back(e);
  return all;
}

void check_columns(const ClusterSpec& cluster, const GroupSpec& group, std::size_t columns) {
  BOOST_TEST(group.columns == columns);
  for (std::uint16_t j = 0; j < group.columns; ++j) {
    for (std::uint16_t a = 0; a < group.domains.size(); ++a) {
      BOOST_TEST(group.domain_of[group.owner(a, j)] == a);
      for (std::uint16_t b = 0; b < a; ++b) {
        const TrunkId trunk = cluster.trunk_between(group.members[group.owner(a, j)], group.members[group.owner(b, j)]);
        BOOST_TEST(trunk != kNoId, "column " << j << ", domains " << a << " and " << b);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(columns)

BOOST_AUTO_TEST_CASE(a_whole_cluster_has_a_column_for_each_gpu_of_the_largest_domain) {
  const ClusterSpec cluster = rack_and_boxes();
  check_columns(cluster, make_group_spec(cluster, all_gpus(cluster), {1, "g", 1, 2}), 12);
}

BOOST_AUTO_TEST_CASE(what_is_left_of_a_domain_goes_on_whichever_node_it_lost) {
  const ClusterSpec cluster = rack_and_boxes();
  const GroupSpec whole = make_group_spec(cluster, all_gpus(cluster), {1, "g", 1, 2});
  for (NodeId lost = 0; lost < 3; ++lost)
    check_columns(cluster, make_shrunk_spec(cluster, whole, std::vector<NodeId>{lost}, 2, 1), 8);
  for (NodeId left = 0; left < 3; ++left) {
    std::vector<NodeId> lost = {0, 1, 2};
    std::erase(lost, left);
    check_columns(cluster, make_shrunk_spec(cluster, whole, lost, 2, 1), 4);
  }
}

BOOST_AUTO_TEST_CASE(ranks_in_any_order_find_their_like) {
  const ClusterSpec cluster = build_profiles({{.profile = "mesh-4gpu", .nodes = 2}}, Pairs::kSameColumn);
  check_columns(cluster, make_group_spec(cluster, std::vector<EndpointId>{3, 1, 0, 2, 4, 5, 6, 7}, {1, "g", 1, 2}), 4);
  check_columns(cluster, make_group_spec(cluster, std::vector<EndpointId>{1, 2, 3, 4, 5, 6}, {1, "g", 1, 2}), 2);
}

BOOST_AUTO_TEST_CASE(gpus_that_nothing_joins_are_no_group) {
  const ClusterSpec cluster = build_profiles({{.profile = "mesh-4gpu", .nodes = 2}}, Pairs::kSameColumn);
  BOOST_CHECK_EXCEPTION(make_group_spec(cluster, std::vector<EndpointId>{0, 5}, {1, "odd", 1, 2}), InputError,
                        [](const InputError& e) { return std::string(e.what()).starts_with("group odd: "); });
  BOOST_TEST(make_group_spec(cluster, std::vector<EndpointId>{0, 1}, {1, "g", 1, 2}).columns == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

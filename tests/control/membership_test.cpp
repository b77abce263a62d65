#include <boost/test/unit_test.hpp>

#include "control/peers/group_builder.hpp"
#include "tests/control/plane_test_support.hpp"

using lk::kMilli;
using lk::kSecond;
using lk::Status;
using lk::plane_test::small_cluster;
using lk::plane_test::World;

BOOST_AUTO_TEST_SUITE(membership)

namespace {

std::vector<lk::EndpointId> all_gpus(const lk::ClusterSpec& cluster) {
  std::vector<lk::EndpointId> gpus;
  for (std::size_t g = 0; g < cluster.gpus.size(); ++g) gpus.push_back(static_cast<lk::EndpointId>(g));
  return gpus;
}

lk::GroupId running_group(World& world) {
  const lk::GroupId id = world.create(all_gpus(world.cluster));
  BOOST_REQUIRE(world.run_until([&] { return world.ready(id); }, kSecond));
  world.run(200 * kMilli);
  return id;
}

}  // namespace

BOOST_AUTO_TEST_CASE(two_of_three_go_on_within_a_second_of_the_death) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 1);
  const lk::GroupId id = running_group(world);
  world.kill(1);
  const lk::Nanos killed = world.now;
  BOOST_REQUIRE(world.run_until([&] { return world.plane(0).group(id)->spec.membership == 2; }, 5 * kSecond));
  BOOST_TEST(world.now - killed <= 3 * kSecond);  // dead after 2 s, shrunk within 1 s of that
  world.run(100 * kMilli);
  for (const lk::NodeId n : {lk::NodeId{0}, lk::NodeId{2}}) {
    const auto& group = world.engine(n).groups.at(id);
    BOOST_TEST(group.spec.members == (std::vector<lk::EndpointId>{0, 1, 4, 5}), boost::test_tools::per_element());
    BOOST_TEST(!group.ended);
    // The engine heard of the death before it got the smaller group.
    std::size_t dead_at = 0, shrunk_at = 0;
    for (std::size_t i = 0; i < world.engine(n).log.size(); ++i) {
      if (world.engine(n).log[i].kind == lk::CommandKind::kPeerDead) dead_at = i;
      if (world.engine(n).log[i].kind == lk::CommandKind::kShrinkGroup) shrunk_at = i;
    }
    BOOST_TEST(dead_at < shrunk_at);
  }
  const lk::OpNumber before = world.engine(0).groups.at(id).done;
  world.run(kSecond);
  BOOST_TEST(world.engine(0).groups.at(id).done > before);
  world.check_settled(id);
  BOOST_TEST(world.wrong() == "");
}

// A proposal may come in the very turn in which its receiver finds the node dead by itself.
BOOST_AUTO_TEST_CASE(survivors_agree_whoever_notices_first) {
  const lk::ClusterSpec cluster = small_cluster(3);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    World world(cluster, seed);
    world.faults.most_delay_ns = 2 * kMilli;
    const lk::GroupId id = world.create(all_gpus(world.cluster));
    BOOST_REQUIRE(world.run_until([&] { return world.ready(id); }, kSecond));
    world.kill(2);
    const bool agreed = world.run_until([&] { return world.plane(1).group(id)->spec.membership == 2; }, 4 * kSecond);
    BOOST_TEST(agreed, "seed " << seed << "\n" << world.journals());
  }
}

BOOST_AUTO_TEST_CASE(the_first_op_is_after_the_last_that_all_have_finished) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 2);
  world.faults.pace = 0;
  const lk::GroupId id = world.create(all_gpus(cluster));
  BOOST_REQUIRE(world.run_until([&] { return world.ready(id); }, kSecond));
  const auto finish = [&](lk::NodeId node, lk::Rank rank, lk::OpNumber most) {
    lk::OpResult r;
    r.group = id;
    r.rank = rank;
    r.membership = 1;
    for (r.number = 1; r.number <= most; ++r.number) world.plane(node).note_result(r);
  };
  finish(0, 0, 9);
  finish(0, 1, 7);
  finish(2, 4, 8);
  finish(2, 5, 12);
  world.kill(1);
  BOOST_REQUIRE(world.run_until([&] { return world.plane(2).group(id)->spec.membership == 2; }, 5 * kSecond));
  BOOST_TEST(world.plane(2).group(id)->spec.first_op == 8U);
  BOOST_TEST(world.plane(0).group(id)->spec.first_op == 8U);
  BOOST_TEST(world.plane(0).group(id)->plan.from_op == 8U);
}

// Ranks are counted anew after a loss: what is told late of rank 3 of before is not about the rank 3 of now.
BOOST_AUTO_TEST_CASE(a_late_result_of_the_old_membership_does_not_count) {
  const lk::ClusterSpec cluster = small_cluster(4);
  World world(cluster, 9);
  world.faults.pace = 0;
  const lk::GroupId id = world.create({0, 1, 2, 4, 5, 6, 7});  // node 1 has one rank, so node 2's become 2 and 3
  BOOST_REQUIRE(world.run_until([&] { return world.ready(id); }, kSecond));
  world.kill(1);
  const auto ready = [&](std::uint16_t membership) {
    const auto* group = world.plane(2).group(id);
    return group->spec.membership == membership && group->state == lk::GroupState::kReady;
  };
  BOOST_REQUIRE(world.run_until([&] { return ready(2); }, 5 * kSecond));
  const auto finish = [&](lk::NodeId node, lk::Rank rank, std::uint16_t membership) {
    lk::OpResult r;
    r.group = id;
    r.number = 1;
    r.rank = rank;
    r.membership = membership;
    world.plane(node).note_result(r);
  };
  finish(2, 3, 1);  // GPU 4's, late
  finish(2, 2, 2);  // GPU 4's
  finish(0, 0, 2);
  finish(0, 1, 2);
  world.kill(3);
  BOOST_REQUIRE(world.run_until([&] { return ready(3); }, 5 * kSecond));
  BOOST_TEST(world.plane(2).group(id)->spec.first_op == 1U);  // GPU 5 has not finished op 1
  BOOST_TEST(world.plane(0).group(id)->spec.first_op == 1U);
}

BOOST_AUTO_TEST_CASE(of_a_tie_the_side_with_rank_0_goes_on) {
  const lk::ClusterSpec cluster = small_cluster(2);
  World first(cluster, 3);
  const lk::GroupId a = running_group(first);
  first.kill(1);
  first.run(4 * kSecond);
  BOOST_TEST(first.plane(0).group(a)->spec.members.size() == 2U);
  BOOST_TEST(!first.engine(0).groups.at(a).ended);

  World second(cluster, 4);
  const lk::GroupId b = running_group(second);
  second.kill(0);
  second.run(4 * kSecond);
  BOOST_TEST((second.engine(1).groups.at(b).end_status == Status::kPartitioned));
  BOOST_TEST(second.engine(1).groups.at(b).ended);
}

BOOST_AUTO_TEST_CASE(of_a_partition_one_side_goes_on) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 5);
  const lk::GroupId id = running_group(world);
  world.cut(2, 0);
  world.cut(2, 1);
  world.run(4 * kSecond);
  BOOST_TEST(world.plane(0).group(id)->spec.members.size() == 4U);
  BOOST_TEST((world.engine(2).groups.at(id).end_status == Status::kPartitioned));
  world.check_settled(id);
  // Healed: the old incarnation is told that it is dead, and nothing starts again by itself.
  world.cut(2, 0, false);
  world.cut(2, 1, false);
  world.run(kSecond);
  BOOST_TEST((world.plane(0).peer_states().state(2) == lk::PeerState::kDead));
  BOOST_TEST(world.wrong() == "");
}

// One pair of nodes does not hear each other, the third hears both: it can answer only one of them.
BOOST_AUTO_TEST_CASE(a_broken_pair_does_not_split_the_group) {
  const lk::ClusterSpec cluster = small_cluster(3);
  for (const auto& [a, b] : {std::pair<lk::NodeId, lk::NodeId>{0, 1}, {1, 2}, {0, 2}}) {
    World world(cluster, 6);
    const lk::GroupId id = running_group(world);
    world.cut(a, b);
    world.run(6 * kSecond);
    world.check_settled(id);
    BOOST_TEST(world.wrong() == "");
    unsigned on = 0;
    for (lk::NodeId n = 0; n < 3; ++n) on += world.engine(n).groups.at(id).ended ? 0 : 1;
    BOOST_TEST(on == 2U);
  }
}

// Nodes 2 and 3 take each other for dead a moment before the coordinator is found dead, so they have told the wrong
// one. The new coordinator asks for node 0's loss alone: who knows of more must not say yes to that.
BOOST_AUTO_TEST_CASE(who_knows_of_more_losses_does_not_accept_fewer) {
  const lk::ClusterSpec cluster = small_cluster(5);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(cluster, seed);
    world.faults.most_delay_ns = 2 * kMilli;
    const lk::GroupId id = running_group(world);
    world.cut(2, 3);
    world.cut(0, 2);
    world.cut(0, 3);
    world.run(static_cast<lk::Nanos>(5 * seed) * kMilli);
    world.kill(0);
    world.run(6 * kSecond);
    world.check_settled(id);
    BOOST_TEST(world.wrong() == "", "seed " << seed << ": " << world.wrong() << "\n" << world.journals());
    BOOST_TEST(world.adopted_with_dead == "", "seed " << seed << ": " << world.adopted_with_dead);
    BOOST_TEST(!world.engine(1).groups.at(id).ended, "seed " << seed);
    BOOST_TEST(!world.engine(4).groups.at(id).ended, "seed " << seed);
    BOOST_TEST(world.engine(2).groups.at(id).ended != world.engine(3).groups.at(id).ended, "seed " << seed);
  }
}

BOOST_AUTO_TEST_CASE(one_way_deafness_does_not_split_it_either) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 7);
  const lk::GroupId id = running_group(world);
  world.cut_one_way(1, 0);
  world.run(8 * kSecond);
  world.check_settled(id);
  BOOST_TEST(world.wrong() == "");
}

BOOST_AUTO_TEST_CASE(a_new_incarnation_may_join_new_groups) {
  const lk::ClusterSpec cluster = small_cluster(3);
  World world(cluster, 8);
  const lk::GroupId id = running_group(world);
  world.kill(1);
  world.run(100 * kMilli);
  world.start(1);  // long before anybody took it for dead
  BOOST_REQUIRE(world.run_until([&] { return world.plane(0).group(id)->spec.membership == 2; }, kSecond));
  world.run(200 * kMilli);
  BOOST_TEST((world.plane(0).peer_states().state(1) == lk::PeerState::kAlive));
  BOOST_TEST(world.engine(0).dead.empty());
  const lk::GroupId again = world.create(all_gpus(cluster), "next");
  BOOST_TEST(world.run_until([&] { return world.ready(again); }, kSecond));
  world.check_settled(id);
  BOOST_TEST(world.wrong() == "");
}

// Random deaths and cuts under loss: whatever happens, one side at most goes on, and everything ends.
BOOST_AUTO_TEST_CASE(seeded_storms) {
  unsigned shrunk = 0, ended = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    lk::Random random(seed * 977);
    const lk::ClusterSpec cluster = small_cluster(3 + static_cast<int>(random.below(3)));
    World world(cluster, seed);
    world.faults = {0.2, 0.1, 5 * kMilli, 0.3};
    const lk::GroupId id = world.create(all_gpus(cluster));
    world.run_until([&] { return world.ready(id); }, 2 * kSecond);
    const std::uint64_t nodes = cluster.nodes.size();
    for (std::uint64_t i = 0, n = 1 + random.below(3); i < n; ++i) {
      const auto a = static_cast<lk::NodeId>(random.below(nodes));
      const auto b = static_cast<lk::NodeId>((a + 1 + random.below(nodes - 1)) % nodes);
      const double what = random.unit();
      if (what < 0.4) {
        world.kill(a);
      } else if (what < 0.7) {
        world.cut(a, b);
      } else {
        world.cut_one_way(a, b);
      }
      world.run(static_cast<lk::Nanos>(random.below(2500)) * kMilli);
    }
    world.run(12 * kSecond);
    world.check_settled(id);
    if (!world.wrong().empty()) BOOST_FAIL("seed " << seed << ": " << world.wrong() << world.journals());
    for (std::size_t n = 0; n < nodes; ++n) {
      const auto node = static_cast<lk::NodeId>(n);
      if (!world.alive(node) || world.plane(node).group(id) == nullptr) continue;
      const auto* group = world.plane(node).group(id);
      ended += group->state == lk::GroupState::kEnded ? 1 : 0;
      shrunk += group->state == lk::GroupState::kReady && group->spec.membership > 1 ? 1 : 0;
    }
  }
  BOOST_TEST(shrunk > 20U);  // the storms do what they are for
  BOOST_TEST(ended > 5U);
}

BOOST_AUTO_TEST_SUITE_END()

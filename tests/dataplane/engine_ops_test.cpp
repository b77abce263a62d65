// How ops begin and end at an engine's rings: one result for each rank that entered, whatever happens (DESIGN section
// 3, "Nobody hangs"; dataplane/path/README.md, "When ranks disagree, or a node is gone").
#include "tests/dataplane/engine_pair.hpp"
#include "tests/dataplane/wire_cluster.hpp"

using namespace lk;
using namespace lk::test;

namespace {

OpResult only_result(const EnginePair& p, OpNumber number, Rank r) {
  const auto all = p.results_of(number, r);
  BOOST_TEST_REQUIRE(all.size() == 1U, "op " << number << " rank " << r << ": " << all.size() << " results");
  return all.empty() ? OpResult{} : all.front();
}

// Two nodes of two GPUs: NVLink and a host lane inside, rails and tcp between.
ClusterSpec two_by_two() {
  ClusterSpec c = wire_cluster();
  c.lanes[kHostLane].rung = 1;
  c.lanes[kTcpLane].rung = 1;
  return c;
}

// A shrink that nobody is lost in: membership 2, from an op on.
struct Shrink {
  Shrink(const EnginePair& p, OpNumber first_op) : spec(p.group), plan(p.plan[0]) {
    spec.membership = plan.membership = 2;
    spec.first_op = plan.from_op = first_op;
    command.kind = CommandKind::kShrinkGroup;
    command.group_spec = &spec;
    command.plan_spec = &plan;
  }

  GroupSpec spec;
  PlanSpec plan;
  Command command;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_ops)

BOOST_AUTO_TEST_CASE(in_place_and_out_of_place_give_the_same_right_bits) {
  for (const bool four : {false, true}) {
    EnginePair p(four ? two_by_two() : rail_cluster(2, true));
    OpNumber op = 0;
    std::vector<std::unique_ptr<Work>> all;
    for (const bool in_place : {false, true}) {
      for (const RedOp redop : {RedOp::kSum, RedOp::kAvg}) {
        for (const std::size_t count :
             {std::size_t{1}, std::size_t{3}, kChunkFloats, kChunkFloats + 1, 9 * kChunkFloats - 5}) {
          all.push_back(std::make_unique<Work>(p.group, ++op, count, Collective::kAllReduce, in_place));
          all.back()->redop = redop;
        }
      }
      all.push_back(std::make_unique<Work>(p.group, ++op, 7 * kChunkFloats + 3, Collective::kBroadcast, in_place));
      all.back()->root = 1;
    }
    for (auto& w : all) p.enter(*w);
    BOOST_TEST(p.run_until([&] { return p.results.size() == all.size() * p.group.members.size(); }, 100 * kMilli));
    for (auto& w : all) p.check(*w);
    for (const NodeId n : {NodeId{0}, NodeId{1}})
      BOOST_TEST(p.slots[n]->count(SlotState::kHeld) == 0U);  // nothing is kept of a closed op
  }
}

BOOST_AUTO_TEST_CASE(an_op_of_no_elements_ends_well_and_moves_nothing) {
  EnginePair p(rail_cluster(1));
  Work reduce(p.group, 1, 0), broadcast(p.group, 2, 0, Collective::kBroadcast), after(p.group, 3, kChunkFloats);
  p.enter(reduce);
  p.enter(broadcast);
  p.run_for(kMilli);
  for (const Work* w : {&reduce, &broadcast}) p.check(*w);  // 0 of 0 chunks
  BOOST_TEST(p.net.count([](const Packet& x) { return x.chunk; }) == 0U);
  p.plays_well(after, kMilli);
}

BOOST_AUTO_TEST_CASE(the_deadline_ends_each_rank_once_and_says_how_far_it_came) {
  EngineOptions o = EnginePair::small();
  o.op_deadline_ns = 500 * kMilli;
  EnginePair p(rail_cluster(1), o);
  Work w(p.group, 1, 8 * kChunkFloats, Collective::kBroadcast);
  unsigned n = 0;
  p.net.fate = [&n](Packet& x) { return x.chunk && ++n > 3 ? Fate::kHold : Fate::kPass; };
  p.enter(w);
  BOOST_TEST(p.run_until_done(w, o.op_deadline_ns + 10 * kMilli));
  BOOST_TEST(p.now >= o.op_deadline_ns);
  p.heal();
  p.run_for(kSecond);  // nothing more comes
  const OpResult root = only_result(p, 1, 0), other = only_result(p, 1, 1);
  for (const OpResult& r : {root, other}) {
    BOOST_TEST(name_of(r.status) == "deadline");
    BOOST_TEST(r.chunks_total == 8U);
    BOOST_TEST(r.cookie == 100U + r.rank);
  }
  BOOST_TEST(root.chunks_done == 8U);  // it had the result to begin with
  BOOST_TEST(other.chunks_done == 3U);
  Work next(p.group, 2, 8 * kChunkFloats);
  p.plays_well(next, kSecond);
}

BOOST_AUTO_TEST_CASE(an_op_that_a_rank_never_enters_ends_with_the_deadline) {
  EngineOptions o = EnginePair::small();
  o.op_deadline_ns = 500 * kMilli;
  EnginePair p(rail_cluster(1), o);
  Work w(p.group, 1, 8 * kChunkFloats, Collective::kAllReduce, true);
  p.enter(w, 0);
  p.run_for(o.op_deadline_ns + 10 * kMilli);
  const OpResult r = only_result(p, 1, 0);
  BOOST_TEST(name_of(r.status) == "deadline");
  BOOST_TEST(r.chunks_done == 0U);
  BOOST_TEST(r.chunks_total == 8U);
  BOOST_TEST((w.out[0] == w.given[0]));
  p.enter(w, 1);  // too late: it gets the same answer, and at once
  p.step();
  BOOST_TEST(name_of(only_result(p, 1, 1).status) == "deadline");
  BOOST_TEST(w.untouched(1));
}

BOOST_AUTO_TEST_CASE(an_op_that_failed_elsewhere_before_it_began_is_refused_with_the_reason) {
  EngineOptions o = EnginePair::small();
  o.op_deadline_ns = 500 * kMilli;
  EnginePair p(rail_cluster(1), o);
  Work before(p.group, 1, 8 * kChunkFloats), w(p.group, 2, 8 * kChunkFloats), after(p.group, 3, 8 * kChunkFloats);
  p.enter(w, 1);
  p.run_for(o.op_deadline_ns + 10 * kMilli);
  BOOST_TEST(name_of(only_result(p, 2, 1).status) == "deadline");
  p.enter(w, 0);  // the one before it has not begun here either
  p.step();
  BOOST_TEST(name_of(only_result(p, 2, 0).status) == "deadline");
  BOOST_TEST(w.untouched(0));
  p.plays_well(before, 10 * kMilli);
  p.plays_well(after, 10 * kMilli);
}

BOOST_AUTO_TEST_CASE(a_failed_op_is_not_reported_while_a_request_may_touch_its_memory) {
  EngineOptions o = EnginePair::small();
  o.op_deadline_ns = 20 * kMilli;
  EnginePair p(rail_cluster(1), o);
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kHold : Fate::kPass; };
  Work w(p.group, 1, 4 * kChunkFloats, Collective::kBroadcast);
  p.enter(w);
  bool under_way = false;
  BOOST_TEST(p.run_until(
      [&] {
        const bool ended = !p.results_of(1, 0).empty();
        for (const PacketPtr& x : p.net.held) under_way = under_way || (ended && !x->done);
        return ended;
      },
      kSecond));
  BOOST_TEST(!under_way);
  BOOST_TEST(name_of(only_result(p, 1, 0).status) == "deadline");
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_are_both_named_and_none_hangs) {
  EnginePair p(rail_cluster(1));
  Work mine(p.group, 1, 8 * kChunkFloats), theirs(p.group, 1, 8 * kChunkFloats + 4);
  p.enter(mine, 0);
  p.enter(theirs, 1);
  BOOST_TEST(p.run_until([&] { return p.results.size() == 2; }, 10 * kMilli));
  BOOST_TEST(name_of(only_result(p, 1, 0).status) == "mismatch");
  BOOST_TEST(only_result(p, 1, 0).other_rank == 1U);
  BOOST_TEST(name_of(only_result(p, 1, 1).status) == "mismatch");
  BOOST_TEST(only_result(p, 1, 1).other_rank == 0U);
  BOOST_TEST(mine.out[0] == std::vector<std::byte>(mine.out[0].size(), std::byte{0xee}));
}

BOOST_AUTO_TEST_CASE(ranks_that_each_wait_for_the_other_as_root_end_at_once) {
  EnginePair p(rail_cluster(1));
  Work mine(p.group, 1, 8 * kChunkFloats, Collective::kBroadcast), theirs = mine;
  mine.root = 1;
  theirs.root = 0;
  p.enter(mine, 0);
  p.enter(theirs, 1);
  BOOST_TEST(p.run_until([&] { return p.results.size() == 2; }, 10 * kMilli));  // no chunk goes: by what is granted
  for (const Rank r : {Rank{0}, Rank{1}}) {
    BOOST_TEST(name_of(only_result(p, 1, r).status) == "mismatch");
    BOOST_TEST(only_result(p, 1, r).other_rank == 1U - r);
  }
  BOOST_TEST(p.net.count([](const Packet& x) { return x.chunk; }) == 0U);
}

BOOST_AUTO_TEST_CASE(nodes_with_different_plans_end_the_op_and_do_not_mix_them) {
  EnginePair p(rail_cluster(1), EnginePair::small(), 2);
  Work w(p.group, 1, 8 * kChunkFloats);
  p.enter(w);
  BOOST_TEST(p.run_until_done(w, 10 * kMilli));
  for (const Rank r : {Rank{0}, Rank{1}}) {
    BOOST_TEST(name_of(only_result(p, 1, r).status) == "mismatch");
    BOOST_TEST(only_result(p, 1, r).other_rank == 1U - r);
    BOOST_TEST(only_result(p, 1, r).chunks_done == 0U);
  }
}

BOOST_AUTO_TEST_CASE(an_op_of_an_older_membership_is_refused_and_touches_nothing) {
  EnginePair p(rail_cluster(1));
  const Shrink shrink(p, 5);
  for (const NodeId n : {NodeId{0}, NodeId{1}}) p.command(n, shrink.command);
  p.run_for(kMilli);
  Work old(shrink.spec, 5, kChunkFloats), any(shrink.spec, 5, kChunkFloats);
  old.membership = 1;
  p.enter(old, 0);
  p.run_for(kMilli);
  BOOST_TEST(name_of(only_result(p, 5, 0).status) == "node_lost");
  BOOST_TEST(old.untouched(0));
  p.results.clear();
  any.membership = 2;
  p.enter(any);  // the same number, asked as it should be, is not spoilt
  p.ends_well(any, kMilli);
}

BOOST_AUTO_TEST_CASE(an_op_of_a_newer_membership_waits_until_the_engine_has_it) {
  EnginePair p(rail_cluster(1));
  const Shrink shrink(p, 5);
  Work w(shrink.spec, 5, 4 * kChunkFloats);
  w.membership = 2;
  p.enter(w);
  p.run_for(kSecond);
  BOOST_TEST(p.results.empty());
  for (const Rank r : {Rank{0}, Rank{1}}) BOOST_TEST(w.untouched(r));
  p.command(0, shrink.command);
  p.run_for(10 * kMilli);
  p.command(1, shrink.command);  // a little later than the other
  p.ends_well(w, 100 * kMilli);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_done_is_refused_with_its_reason) {
  EnginePair p(rail_cluster(1));
  Work w(p.group, 1, kChunkFloats);
  const auto refused = [&](const char* status, auto change) {
    OpRequest q = w.request(0);
    change(q);
    BOOST_REQUIRE(p.engines[0]->requests().push(q));
    p.results.clear();
    p.step();
    BOOST_TEST_REQUIRE(p.results.size() == 1U);
    BOOST_TEST(name_of(p.results[0].second.status) == status);
  };
  refused("invalid", [](OpRequest& q) { q.group = 7; });
  refused("invalid", [](OpRequest& q) { q.rank = 1; });
  refused("invalid", [](OpRequest& q) { q.rank = 9; });
  refused("invalid", [](OpRequest& q) { q.number = 0; });
  refused("invalid", [](OpRequest& q) { q.out = nullptr; });
  refused("invalid", [](OpRequest& q) { q.scratch = nullptr; });
  refused("invalid", [](OpRequest& q) { q.count = ~std::uint64_t{0}; });
  refused("unsupported", [](OpRequest& q) { q.redop = static_cast<RedOp>(200); });
  refused("unsupported", [](OpRequest& q) { q.dtype = static_cast<DType>(200); });
  refused("unsupported", [](OpRequest& q) { q.kind = static_cast<Collective>(200); });
  refused("invalid", [](OpRequest& q) { q.kind = Collective::kBroadcast, q.root = 2; });
  BOOST_TEST(w.untouched(0));
  p.results.clear();
  p.plays_well(w, kMilli);
  p.enter(w, 0);  // an op that is closed
  p.step();
  BOOST_TEST(name_of(p.results.back().second.status) == "invalid");
}

BOOST_AUTO_TEST_CASE(a_dead_node_ends_its_ops_with_its_name) {
  EnginePair p(rail_cluster(2));
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kHold : Fate::kPass; };
  Work w(p.group, 1, 8 * kChunkFloats);
  p.enter(w);
  p.run_for(100 * kMicro);
  p.plays[1] = false;
  Command c;
  c.kind = CommandKind::kPeerDead;
  c.peer = 1;
  p.command(0, c);
  p.run_for(kMilli);
  const OpResult r = only_result(p, 1, 0);
  BOOST_TEST(name_of(r.status) == "node_lost");
  BOOST_TEST(r.lost_node == 1U);
  BOOST_TEST(r.other_rank == 1U);
  BOOST_TEST(r.chunks_total == 8U);
  const std::size_t told = p.net.log.size();
  const std::uint32_t epoch = p.lane(0, 0).epoch;
  p.run_for(10 * kSecond);
  for (const bool up : {false, true}) {
    p.net.tell_port(0, 0, up);
    p.run_for(10 * kSecond);
  }
  BOOST_TEST(p.net.log.size() == told);  // it is neither probed nor spoken to
  BOOST_TEST(p.lane(0, 0).epoch == epoch);
}

BOOST_AUTO_TEST_SUITE_END()

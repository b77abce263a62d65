// The rules of DESIGN section 3 for a lane that fails hard: resend at once, reuse late; the fence. Node 0 sends over
// lane 0 until it fails; lane 1 stands by.
#include <set>

#include "tests/dataplane/engine_pair.hpp"

using namespace lk;
using namespace lk::test;

namespace {

constexpr unsigned kChunks = 8;

// A broadcast whose chunks are all on lane 0, held by the net; then the lane fails hard.
struct Failed : EnginePair {
  explicit Failed(const std::function<Fate(Packet&)>& then)
      : EnginePair(rail_cluster(2)), work(group, 1, kChunks * kChunkFloats, Collective::kBroadcast) {
    rates({4, 0});
    net.fate = [](Packet& x) { return is_chunk_on(x, 0) ? Fate::kHold : Fate::kPass; };
    enter(work);
    BOOST_REQUIRE(run_until([&] { return net.held.size() == kChunks; }, kMilli));
    for (const PacketPtr& x : net.held) words.insert(x->request.immediate), late_slots.insert(x->request.slot);
    net.fate = then;
    failed_at = now;
    net.fail(net.held.front());
    step();
  }
  std::size_t chunks_since(Nanos t, LaneId lane) const {
    return net.count([&](const Packet& x) { return is_chunk_on(x, lane) && x.sent_at >= t; });
  }
  std::size_t sent(SignalKind k, NodeId from) const {
    return net.count([&](const Packet& x) { return x.is(k) && x.from == from; });
  }
  bool uses_quarantine() const {  // any chunk on lane 1
    return net.count([&](const Packet& x) { return is_chunk_on(x, 1) && late_slots.contains(x.request.slot); }) != 0;
  }
  const Signal* last(SignalKind k, NodeId from) const {
    for (auto x = net.log.rbegin(); x != net.log.rend(); ++x) {
      if (x->is(k) && x->from == from) return &x->signal;
    }
    return nullptr;
  }

  Work work;
  std::set<std::uint32_t> words, late_slots;
  Nanos failed_at = 0;
};

Fate pass(Packet&) { return Fate::kPass; }
Fate lose_fences(Packet& x) { return x.is(SignalKind::kFence) ? Fate::kLose : Fate::kPass; }
Fate lose_fence_acks(Packet& x) { return x.is(SignalKind::kFenceAck) ? Fate::kLose : Fate::kPass; }

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_fence)

BOOST_AUTO_TEST_CASE(orphans_are_posted_at_once_on_another_lane_into_fresh_slots) {
  Failed p(lose_fences);
  BOOST_TEST(p.words.size() == kChunks);
  BOOST_TEST(p.chunks_since(p.failed_at, 1) == kChunks);  // in the same turn: no time has passed
  BOOST_TEST(p.now == p.failed_at);
  BOOST_TEST(!p.uses_quarantine());
  BOOST_TEST(p.count(0, Counter::chunk_resent) == kChunks);
  BOOST_TEST(p.run_until_done(p.work, 10 * kMilli));  // nothing waits for the fence
  p.check(p.work);
  BOOST_TEST(name_of(p.state(0, 0)) == "fencing");
}

BOOST_AUTO_TEST_CASE(slots_stay_in_quarantine_until_the_fence_is_acknowledged) {
  Failed p(lose_fences);
  Work more(p.group, 2, 100 * kChunkFloats, Collective::kBroadcast);
  p.enter(more);
  BOOST_REQUIRE(p.run_until_done(more, 15 * kMilli));
  BOOST_TEST(!p.uses_quarantine());  // though 108 chunks took turns in the other 20 slots
  BOOST_TEST(p.count(1, Counter::slot_reclaimed) == 0U);
  p.net.fate = pass;
  BOOST_TEST(p.run_until([&] { return p.state(0, 0) == LaneState::kDown; }, 100 * kMilli));
  BOOST_TEST(p.count(0, Counter::fence_completed) == 1U);
  BOOST_TEST(p.count(1, Counter::slot_reclaimed) == kChunks);
  const Nanos fenced = p.now;
  Work again(p.group, 3, 100 * kChunkFloats, Collective::kBroadcast);
  p.enter(again);
  BOOST_REQUIRE(p.run_until_done(again, 15 * kMilli));
  std::set<std::uint32_t> used;
  for (const Packet& x : p.net.log) {
    if (!x.chunk || x.sent_at < fenced) continue;
    used.insert(x.request.slot);
    BOOST_TEST(!p.words.contains(x.request.immediate));  // a slot comes back as another generation
  }
  for (const std::uint32_t slot : p.late_slots) BOOST_TEST(used.contains(slot));  // none is lost
  for (const Work* w : {&p.work, &more, &again}) p.check(*w);
}

BOOST_AUTO_TEST_CASE(a_late_write_into_a_quarantined_slot_changes_no_result) {
  for (const Nanos after : {Nanos{0}, 10 * kMicro, 25 * kMicro, kMilli}) {
    BOOST_TEST_CONTEXT(after << " ns after the failure") {
      Failed p(lose_fences);
      Work more(p.group, 2, 50 * kChunkFloats);
      p.enter(more);
      p.run_for(after);
      p.net.release_all(p.now);
      BOOST_REQUIRE(p.run_until([&] { return p.done(p.work) && p.done(more); }, 15 * kMilli));
      p.check(p.work);
      p.check(more);
      // Each chunk of the broadcast counts once, whichever copy came first; then 50 values to rank 0, 50 sums back.
      BOOST_TEST(p.count(1, Counter::chunk_committed) == kChunks + 50U);
      BOOST_TEST(p.count(1, Counter::chunk_duplicate_dropped) >= kChunks);
      BOOST_TEST(p.count(0, Counter::chunk_committed) == 50U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_late_write_after_the_fence_is_refused_and_counted) {
  Failed p(pass);
  BOOST_REQUIRE(
      p.run_until([&] { return p.state(1, 0) == LaneState::kUp && p.state(0, 0) == LaneState::kUp; }, kSecond));
  BOOST_TEST(p.lane(1, 0).epoch == 2U);
  BOOST_TEST(p.net.refused == 0U);
  const Packet late = *p.net.held.front();
  p.net.release_all(p.now);  // the receiver's end was reset: the wire refuses all of them
  p.step();
  BOOST_TEST(p.net.refused == kChunks);
  const auto refused = [&](std::uint32_t epoch, std::uint32_t immediate) {
    const std::uint64_t before = p.count(1, Counter::chunk_stale_rejected);
    const std::uint64_t events = p.events_of(1, EventKind::kChunkStale).size();
    const SlotState state = p.slots[1]->state(immediate >> 16);
    p.net.tell(late, epoch, immediate);
    p.step();
    return p.count(1, Counter::chunk_stale_rejected) == before + 1 && p.slots[1]->state(immediate >> 16) == state &&
           p.events_of(1, EventKind::kChunkStale).size() == events + 1;
  };
  const std::uint32_t slot = late.request.slot;
  BOOST_TEST((p.slots[1]->state(slot) == SlotState::kGranted));  // re-granted, so a write into it would count
  const std::uint32_t fresh = slot << 16 | p.slots[1]->generation(slot);
  BOOST_TEST(fresh != late.request.immediate);
  BOOST_TEST(refused(1, late.request.immediate));
  BOOST_TEST(refused(2, late.request.immediate));  // the generation alone is enough …
  BOOST_TEST(refused(1, fresh));                   // … and the epoch alone
  BOOST_TEST(refused(2, 200U << 16 | 1U));         // a slot that nobody was granted
  BOOST_TEST(p.count(1, Counter::chunk_committed) == kChunks);
  BOOST_TEST(p.count(1, Counter::chunk_duplicate_dropped) == 0U);
  p.check(p.work);
}

BOOST_AUTO_TEST_CASE(a_lost_fence_and_a_lost_acknowledgement_are_repeated) {
  for (const auto kind : {SignalKind::kFence, SignalKind::kFenceAck}) {
    unsigned losses = 3;
    Failed p(
        [&losses, kind](Packet& x) { return x.is(kind) && losses != 0 && losses-- != 0 ? Fate::kLose : Fate::kPass; });
    const EngineOptions o;
    BOOST_TEST(p.run_until([&] { return p.state(0, 0) == LaneState::kDown && p.state(1, 0) == LaneState::kDown; },
                           4 * o.fence_retry_ns));
    BOOST_TEST(losses == 0U);
    for (const NodeId n : {NodeId{0}, NodeId{1}}) BOOST_TEST(p.count(n, Counter::fence_completed) == 1U);
    BOOST_TEST(p.count(1, Counter::slot_reclaimed) == kChunks);  // once, however often it was asked
    p.check(p.work);
  }
}

BOOST_AUTO_TEST_CASE(no_slot_is_reused_while_acknowledgements_of_the_fence_are_lost) {
  Failed p(lose_fence_acks);
  p.run_for(100 * kMilli);
  BOOST_TEST(name_of(p.state(0, 0)) == "fencing");
  BOOST_TEST(p.sent(SignalKind::kFence, 0) >= 4U);
  // What the peer has heard it may reuse: its end is reset, so nothing of lane 0 can land there.
  BOOST_TEST(p.count(1, Counter::slot_reclaimed) == kChunks);
  p.net.release_all(p.now);
  Work more(p.group, 2, 60 * kChunkFloats);
  p.enter(more);
  BOOST_REQUIRE(p.run_until_done(more, 20 * kMilli));
  BOOST_TEST(p.net.refused == kChunks);
  p.check(p.work);
  p.check(more);
}

BOOST_AUTO_TEST_CASE(crossing_fences_end_once_at_both_ends) {
  EnginePair p(rail_cluster(2));
  p.rates({4, 0});
  p.net.fate = [](Packet& x) { return is_chunk_on(x, 0) ? Fate::kHold : Fate::kPass; };
  Work w(p.group, 1, 10 * kChunkFloats);
  p.enter(w);
  p.run_for(20 * kMicro);
  p.net.fate = nullptr;
  p.net.tell_port(0, 0, false);
  p.net.tell_port(1, 2, false);
  p.step();
  for (const NodeId n : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST(p.net.count([n](const Packet& x) {
      return x.is(SignalKind::kFence) && x.from == n && x.signal.epoch == 1;
    }) == 1U);
    BOOST_TEST(name_of(p.state(n, 0)) == "fencing");
  }
  BOOST_REQUIRE(p.run_until_done(w, kMilli));
  p.check(w);
  BOOST_TEST(
      p.run_until([&] { return p.state(0, 0) == LaneState::kUp && p.state(1, 0) == LaneState::kUp; }, 200 * kMilli));
  for (const NodeId n : {NodeId{0}, NodeId{1}}) {
    BOOST_TEST(p.count(n, Counter::fence_completed) == 1U);
    BOOST_TEST(p.count(n, Counter::lane_failed) == 1U);
    BOOST_TEST(p.lane(n, 0).epoch == 2U);
  }
}

BOOST_AUTO_TEST_CASE(a_fence_told_again_later_does_no_harm) {
  Failed p(pass);
  const auto both_up = [&] { return p.state(0, 0) == LaneState::kUp && p.state(1, 0) == LaneState::kUp; };
  BOOST_REQUIRE(p.run_until(both_up, kSecond));
  const Signal fence = *p.last(SignalKind::kFence, 0), ack = *p.last(SignalKind::kFenceAck, 1);
  const std::uint64_t answers = p.sent(SignalKind::kFenceAck, 1), done = p.count(0, Counter::fence_completed);
  for (int i = 0; i < 3; ++i) p.deliver(fence), p.deliver(ack);
  p.step();
  BOOST_TEST(p.sent(SignalKind::kFenceAck, 1) == answers + 3);  // the asker may never have heard the first answer
  BOOST_TEST(p.last(SignalKind::kFenceAck, 1)->words[0] == ack.words[0]);
  BOOST_TEST(both_up());
  BOOST_TEST(p.count(0, Counter::fence_completed) == done);
  BOOST_TEST(p.count(1, Counter::slot_reclaimed) == kChunks);
  Work more(p.group, 2, 60 * kChunkFloats);
  p.plays_well(more, 20 * kMilli);
}

BOOST_AUTO_TEST_CASE(an_acknowledgement_of_an_older_epoch_ends_no_fence) {
  Failed p(pass);
  BOOST_REQUIRE(
      p.run_until([&] { return p.state(0, 0) == LaneState::kUp && p.state(1, 0) == LaneState::kUp; }, kSecond));
  Signal old = *p.last(SignalKind::kFenceAck, 1);
  BOOST_TEST(old.epoch == 1U);
  p.rates({4, 0});
  p.net.fate = [](Packet& x) { return x.chunk ? Fate::kHold : lose_fences(x); };
  p.net.held.clear();
  Work more(p.group, 2, 4 * kChunkFloats, Collective::kBroadcast);
  p.enter(more);
  BOOST_REQUIRE(p.run_until([&] { return p.net.held.size() == 4; }, kMilli));
  BOOST_TEST(p.net.held.front()->request.lane == 0U);
  p.net.fail(p.net.held.front());
  p.step();
  BOOST_TEST(name_of(p.state(0, 0)) == "fencing");
  const std::uint64_t known = p.count(0, Counter::chunk_acknowledged);
  old.words[0] = ~std::uint64_t{0};
  p.deliver(old);
  old.epoch = 3;
  p.deliver(old);
  p.step();
  BOOST_TEST(name_of(p.state(0, 0)) == "fencing");
  BOOST_TEST(p.count(0, Counter::chunk_acknowledged) == known);
  Signal early = *p.last(SignalKind::kFence, 0);  // of a life of the lane that has not begun
  early.epoch = 9;
  const std::size_t answers = p.sent(SignalKind::kFenceAck, 1);
  p.deliver(early);
  p.step();
  BOOST_TEST(p.sent(SignalKind::kFenceAck, 1) == answers);
  BOOST_TEST(name_of(p.state(1, 0)) == "up");
  p.heal();
  p.ends_well(more, 100 * kMilli);
}

BOOST_AUTO_TEST_CASE(the_bitmap_retires_what_was_received_and_not_acknowledged) {
  EnginePair p(rail_cluster(2));
  p.rates({4, 0});
  p.net.fate = [](Packet& x) { return x.is(SignalKind::kAck) ? Fate::kLose : Fate::kPass; };
  Work w(p.group, 1, 4 * kChunkFloats, Collective::kBroadcast);
  p.enter(w);
  BOOST_REQUIRE(p.run_until([&] { return p.count(1, Counter::chunk_committed) == 4; }, kMilli));
  BOOST_TEST(p.count(0, Counter::chunk_acknowledged) == 0U);
  p.net.fate = [](Packet& x) {  // what is sent again does not arrive, and no acknowledgement does
    return x.chunk ? Fate::kHold : x.is(SignalKind::kAck) ? Fate::kLose : Fate::kPass;
  };
  p.net.tell_port(0, 0, false);
  p.run_for(100 * kMicro);
  BOOST_TEST(p.count(0, Counter::chunk_acknowledged) == 4U);
  BOOST_TEST(p.results_of(1, 0).empty());  // its memory may still be read by what was posted on lane 1
  p.heal();
  p.ends_well(w, kMilli);
  BOOST_TEST(p.count(1, Counter::chunk_committed) == 4U);
  BOOST_TEST(p.count(1, Counter::chunk_duplicate_dropped) == 4U);
}

BOOST_AUTO_TEST_SUITE_END()

// What a receiver takes and what it refuses (DESIGN sections 2.6 and 3). Node 1 is a real engine; the test speaks for
// node 0 and makes every header by hand. Refused means: not in the ledger, not acknowledged, not named by a fence.
#include <cstring>
#include <map>
#include <set>

#include "dataplane/base/crc32c.hpp"
#include "dataplane/collective/schedule.hpp"
#include "tests/dataplane/engine_pair.hpp"

using namespace lk;
using namespace lk::test;

namespace {

constexpr LaneId kRail = 0, kTcp = 1;
constexpr unsigned kChunks = 6;

struct Hand : EnginePair {
  Hand() : EnginePair(rail_cluster(1, true)), work(group, 1, kChunks * kChunkFloats, Collective::kBroadcast) {
    plays[0] = false;
    enter(work, 1);
    run_for(20 * kMicro);
    read_credits();
    BOOST_REQUIRE(grants.size() >= 2 * kChunks);
  }
  void read_credits() {  // (slot, generation) of all grants so far that the test has not used
    for (const Packet& p : net.log) {
      if (!p.is(SignalKind::kCredit)) continue;
      for (unsigned i = 6; i < p.signal.count * 2U; ++i) {
        const auto grant = static_cast<std::uint32_t>(p.signal.words[i / 2] >> (i % 2 == 0 ? 32 : 0));
        if (grant != 0xffffffffU) grants[grant >> 16] = grant & 0xffff;
      }
    }
  }
  WorkRequest chunk(std::uint32_t index, LaneId lane = kRail) {
    WorkRequest w;
    w.id = ++posted;
    w.lane = lane;
    w.epoch = 1;
    w.kind = RequestKind::kWrite;
    const auto [slot, generation] = *grants.begin();
    grants.erase(grants.begin());
    w.slot = slot;
    w.immediate = slot << 16 | generation;
    w.bytes = kChunk;
    w.payload = work.given[0].data() + index * kChunk;
    ChunkHeader& h = w.header;
    h.incarnation = 0x1000;
    h.token = 0x700 + index;
    h.op = 1;
    h.chunk = index;
    h.length = kChunk;
    h.descriptor_hash = descriptor_hash(work.request(0), 1);
    h.plan_version = 1;
    h.membership = 1;
    h.from = 0;
    h.to = 1;
    h.step = static_cast<std::uint8_t>(Step::kReturn);
    if (lane == kTcp) seal(w);
    return w;
  }
  static void seal(WorkRequest& w) {
    w.header.has_crc = 1;
    w.header.crc = 0;
    w.header.crc = crc32c(crc32c(0, &w.header, sizeof(w.header)), w.payload, w.bytes);
  }
  void send(const WorkRequest& w) {
    BOOST_REQUIRE((wires[0]->post(w, now) == Status::kOk));
    words.push_back(w.immediate);
    run_for(20 * kMicro);
  }
  std::vector<std::uint64_t> acknowledged() const {  // tokens, in order
    std::vector<std::uint64_t> all;
    for (const Packet& p : net.log) {
      if (!p.is(SignalKind::kAck)) continue;
      for (unsigned i = 0; i < p.signal.count; i += 2) all.push_back(p.signal.words[i]);
    }
    return all;
  }
  std::set<std::uint64_t> tokens() const {
    const std::vector<std::uint64_t> all = acknowledged();
    return {all.begin(), all.end()};
  }
  // Asks node 1 to fence, naming all that was sent; its answer's bitmap.
  std::uint64_t fence(LaneId lane) {
    Signal f;
    f.kind = SignalKind::kFence;
    f.from = 0;
    f.to = 1;
    f.incarnation = 0x1000;
    f.lane = lane;
    f.epoch = 1;
    f.count = static_cast<std::uint8_t>((words.size() + 1) / 2);
    for (std::size_t i = 0; i < f.count * 2U; ++i)
      f.words[i / 2] |= std::uint64_t{i < words.size() ? words[i] : 0xffffffffU} << (i % 2 == 0 ? 0 : 32);
    deliver(f);
    step();
    for (auto p = net.log.rbegin(); p != net.log.rend(); ++p) {
      if (p->is(SignalKind::kFenceAck)) return p->signal.words[0];
    }
    BOOST_FAIL("no acknowledgement");
    return 0;
  }

  Work work;
  std::map<std::uint32_t, std::uint32_t> grants;
  std::vector<std::uint32_t> words;
  std::uint64_t posted = 0;
};

using Change = void (*)(WorkRequest&);
struct Row {
  const char* what;
  Counter counted;
  Change change;
};
// Lanes without a checksum: only the header's own words speak.
constexpr Row kRefused[] = {
    {"a wrong length", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.length -= 4; }},
    {"longer than a slot", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.length = 1U << 30; }},
    {"a chunk that the op does not have", Counter::chunk_unknown_rejected,
     [](WorkRequest& w) { w.header.chunk = kChunks; }},
    {"a rank that is not here", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.to = 0; }},
    {"a rank that the group does not have", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.from = 9; }},
    {"a step that the schedule does not send", Counter::chunk_unknown_rejected,
     [](WorkRequest& w) { w.header.step = 0; }},
    {"no step", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.step = 17; }},
    {"an older membership", Counter::chunk_stale_rejected, [](WorkRequest& w) { w.header.membership = 0; }},
    {"a newer membership", Counter::chunk_stale_rejected, [](WorkRequest& w) { w.header.membership = 2; }},
    {"another life of the sender", Counter::chunk_stale_rejected, [](WorkRequest& w) { w.header.incarnation = 5; }},
    {"a group that is not open", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.group = 40; }},
    {"an op that is not entered", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.op = 2; }},
    {"an op that never was", Counter::chunk_unknown_rejected, [](WorkRequest& w) { w.header.op = 0; }},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_commit)

BOOST_AUTO_TEST_CASE(a_refused_chunk_is_counted_and_nothing_else) {
  for (const Row& row : kRefused) {
    BOOST_TEST_CONTEXT(row.what) {
      Hand p;
      p.send(p.chunk(0));
      WorkRequest bad = p.chunk(1);
      row.change(bad);
      const std::uint64_t before = p.count(1, row.counted);
      p.send(bad);
      BOOST_TEST(p.count(1, row.counted) == before + 1);
      BOOST_TEST(p.count(1, Counter::chunk_committed) == 1U);
      BOOST_TEST(p.tokens() == std::set<std::uint64_t>{0x700});
      BOOST_TEST(name_of(p.state(1, kRail)) == "up");
      BOOST_TEST((p.slots[1]->state(bad.slot) == SlotState::kGranted));  // granted anew: no slot is lost
      BOOST_TEST(p.slots[1]->generation(bad.slot) == (bad.immediate & 0xffff) + 1);
      BOOST_TEST(p.fence(kRail) == 1U);  // the first of the two
      // Sent again, as it should be: the refused one took nothing from it.
      for (std::uint32_t i = 1; i < kChunks; ++i) p.send(p.chunk(i, kTcp));
      BOOST_TEST_REQUIRE(p.results_of(1, 1).size() == 1U);
      BOOST_TEST((p.work.out[1] == p.work.given[0]));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_wrong_checksum_fails_the_lane_and_is_not_called_received) {
  const std::vector<std::pair<const char*, Change>> rows = {
      {"payload", [](WorkRequest& w) { w.payload += 4; }},
      {"chunk number", [](WorkRequest& w) { w.header.chunk ^= 1; }},
      {"token", [](WorkRequest& w) { w.header.token ^= 1; }},
      {"op", [](WorkRequest& w) { w.header.op ^= 2; }},
      {"hash", [](WorkRequest& w) { w.header.descriptor_hash ^= 1; }},
      {"incarnation", [](WorkRequest& w) { w.header.incarnation ^= 1; }},
      {"length", [](WorkRequest& w) { w.header.length = 1U << 30; }},
      {"has_crc", [](WorkRequest& w) { w.header.has_crc = 0; }},
  };
  for (const auto& [what, change] : rows) {
    BOOST_TEST_CONTEXT(what) {
      Hand p;
      p.send(p.chunk(0, kTcp));
      WorkRequest bad = p.chunk(1, kTcp);
      change(bad);
      p.send(bad);
      BOOST_TEST(p.count(1, Counter::chunk_corrupt_rejected) == 1U);
      BOOST_TEST(p.count(1, Counter::chunk_committed) == 1U);
      BOOST_TEST(p.count(1, Counter::op_failed) == 0U);  // a flipped bit is not a rank that disagrees
      BOOST_TEST(p.tokens() == std::set<std::uint64_t>{0x700});
      BOOST_TEST(p.is_lane_event(1, EventKind::kChunkCorrupt, kTcp));
      BOOST_TEST(name_of(p.state(1, kTcp)) == "fencing");
      BOOST_TEST(p.fence(kTcp) == 1U);
      for (std::uint32_t i = 1; i < kChunks; ++i) p.send(p.chunk(i));
      BOOST_TEST_REQUIRE(p.results_of(1, 1).size() == 1U);
      BOOST_TEST((p.work.out[1] == p.work.given[0]));
    }
  }
}

BOOST_AUTO_TEST_CASE(another_descriptor_or_plan_ends_the_op_and_is_not_called_received) {
  const std::vector<std::pair<const char*, Change>> rows = {
      {"descriptor", [](WorkRequest& w) { w.header.descriptor_hash ^= 1; }},
      {"plan", [](WorkRequest& w) { w.header.plan_version = 2; }},
  };
  for (const auto& [what, change] : rows) {
    BOOST_TEST_CONTEXT(what) {
      Hand p;
      p.send(p.chunk(0));
      WorkRequest bad = p.chunk(1);
      change(bad);
      p.send(bad);
      const auto results = p.results_of(1, 1);
      BOOST_TEST_REQUIRE(results.size() == 1U);
      BOOST_TEST(name_of(results[0].status) == "mismatch");
      BOOST_TEST(results[0].other_rank == 0U);
      BOOST_TEST(results[0].chunks_done == 1U);
      BOOST_TEST(results[0].chunks_total == kChunks);
      BOOST_TEST(p.tokens() == std::set<std::uint64_t>{0x700});
      BOOST_TEST(p.fence(kRail) == 1U);
      BOOST_TEST(p.net.count([](const Packet& x) { return x.is(SignalKind::kAbort); }) == 1U);
      const std::vector<Event> told = p.events_of(1, EventKind::kMismatch);
      BOOST_TEST_REQUIRE(told.size() == 1U);
      BOOST_TEST(told[0].value == (std::uint64_t{1} << 16 | 0U));  // names both ranks
    }
  }
}

BOOST_AUTO_TEST_CASE(a_chunk_that_came_already_is_acknowledged_again_and_counted_once) {
  Hand p;
  for (std::uint32_t i = 0; i < kChunks; ++i) p.send(p.chunk(i));
  BOOST_TEST_REQUIRE(p.results_of(1, 1).size() == 1U);  // the op is closed here
  const std::size_t told = p.acknowledged().size();
  for (std::uint32_t i = 0; i < 2; ++i) {
    WorkRequest copy = p.chunk(i);
    copy.payload = p.work.given[1].data();  // if it counted, other bits would show it
    p.send(copy);
  }
  BOOST_TEST(p.count(1, Counter::chunk_committed) == kChunks);
  BOOST_TEST(p.count(1, Counter::chunk_duplicate_dropped) == 2U);
  const std::vector<std::uint64_t> all = p.acknowledged();
  // At least once each: what is told while nobody answers is told over several lanes.
  const std::set<std::uint64_t> again(all.begin() + static_cast<std::ptrdiff_t>(told), all.end());
  BOOST_TEST(again == (std::set<std::uint64_t>{0x700, 0x701}));
  BOOST_TEST((p.work.out[1] == p.work.given[0]));
  BOOST_TEST(p.fence(kRail) == (1U << (kChunks + 2)) - 1);  // a copy that was dropped is in the ledger too
}

BOOST_AUTO_TEST_CASE(slots_that_never_landed_are_granted_anew_by_the_fence_once) {
  Hand p;
  const WorkRequest a = p.chunk(0), b = p.chunk(1);
  p.words = {a.immediate, b.immediate};
  BOOST_TEST(p.fence(kRail) == 0U);
  BOOST_TEST(p.fence(kRail) == 0U);
  BOOST_TEST(p.count(1, Counter::slot_reclaimed) == 2U);
  for (const WorkRequest& w : {a, b}) {
    BOOST_TEST((p.slots[1]->state(w.slot) == SlotState::kGranted));
    BOOST_TEST(p.slots[1]->generation(w.slot) == (w.immediate & 0xffff) + 1);
  }
  p.read_credits();
  BOOST_TEST(p.grants[a.slot] == (a.immediate & 0xffff) + 1);  // and told
}

BOOST_AUTO_TEST_CASE(an_op_of_another_descriptor_that_is_closed_here_is_refused) {
  Hand p;
  for (std::uint32_t i = 0; i < kChunks; ++i) p.send(p.chunk(i));
  WorkRequest bad = p.chunk(0);
  bad.header.descriptor_hash ^= 1;
  p.send(bad);
  BOOST_TEST(p.count(1, Counter::chunk_unknown_rejected) == 1U);
  BOOST_TEST(p.tokens().size() == kChunks);
  BOOST_TEST(p.fence(kRail) == (1U << kChunks) - 1);
}

BOOST_AUTO_TEST_SUITE_END()

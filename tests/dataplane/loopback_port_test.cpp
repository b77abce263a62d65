// Expected times are worked out by hand from the cluster's rates: bytes / (GB/s) is ns.
#include "dataplane/lane/loopback/port.hpp"

#include <boost/test/unit_test.hpp>
#include <map>

#include "dataplane/base/random.hpp"
#include "tests/dataplane/wire_cluster.hpp"

using namespace lk;
using namespace lk::test;

namespace {
constexpr Direction kFwd = Direction::kForward;
constexpr Direction kBwd = Direction::kBackward;
constexpr std::uint32_t kChunk = 40000;

// Rounding up per link: a few ns.
void check_about(Nanos got, Nanos expected) {
  BOOST_TEST(std::abs(got - expected) <= 8, "got " << got << ", expected " << expected);
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> v(bytes);
  for (auto& b : v) b = static_cast<std::byte>(random.next());
  return v;
}
}  // namespace

BOOST_AUTO_TEST_SUITE(loopback_port_test)

// 40000 bytes at 4 GB/s are 10 µs, one way is 5 µs: there at 15, the sender knows at 20.
BOOST_AUTO_TEST_CASE(a_chunk_takes_its_bytes_over_the_rate_plus_the_latency) {
  WirePair w;
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail0, kFwd, 1, kChunk), 0) == Status::kOk));
  const auto all = w.run_to(kMilli);
  BOOST_REQUIRE(only(all, CompletionKind::kRecv).size() == 1U);
  check_about(only(all, CompletionKind::kRecv)[0].at, 15000);
  BOOST_REQUIRE(only(all, CompletionKind::kSendDone).size() == 1U);
  check_about(only(all, CompletionKind::kSendDone)[0].at, 20000);
}

// A read in the node: 40000 bytes at 10 GB/s are 4 µs, and the latency of 1 µs passes at the same time as the first
// ones.
BOOST_AUTO_TEST_CASE(a_read_takes_its_bytes_over_the_rate) {
  WirePair w;
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kNvlinkLane, kBwd, 1, kChunk), 0) == Status::kOk));
  const auto done = only(w.run_to(kMilli), CompletionKind::kSendDone);
  BOOST_REQUIRE(done.size() == 1U);
  check_about(done[0].at, 4000);
}

// The receiver's port has 1 GB/s: 40 µs of bytes, whatever the sender's could do.
BOOST_AUTO_TEST_CASE(the_slowest_link_sets_the_time_of_one_chunk) {
  WirePair w(true, 1);
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail0, kFwd, 1, kChunk), 0) == Status::kOk));
  const auto recv = only(w.run_to(kMilli), CompletionKind::kRecv);
  BOOST_REQUIRE(recv.size() == 1U);
  check_about(recv[0].at, 45000);
}

// Two lanes over one port: each chunk takes 10 µs of it, four of them 40, with no gap between them.
BOOST_AUTO_TEST_CASE(lanes_share_a_link_and_keep_it_full) {
  WirePair w;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const LaneId lane = i % 2 == 0 ? kRail0 : kRail0Too;
    BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, lane, kFwd, i, kChunk), 0) == Status::kOk));
  }
  // The other port and the other direction are not touched by it.
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail1, kFwd, 4, kChunk), 0) == Status::kOk));
  BOOST_TEST((w.wires[1]->post(WirePair::request(w.cluster, kRail0, kBwd, 5, kChunk), 0) == Status::kOk));
  std::map<LaneId, std::vector<Nanos>> at;
  for (const auto& s : only(w.run_to(kMilli), CompletionKind::kRecv)) at[s.c.lane].push_back(s.at);
  check_about(at[kRail0][0], 15000);  // forward and backward
  check_about(at[kRail0][1], 15000);
  check_about(at[kRail0Too][0], 25000);
  check_about(at[kRail0][2], 35000);
  check_about(at[kRail0Too][1], 45000);
  check_about(at[kRail1][0], 15000);
}

// 10 µs of work; after 5 µs the link falls to a quarter: the other half takes 20 µs.
BOOST_AUTO_TEST_CASE(a_change_of_rate_counts_from_then_on) {
  WirePair w;
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kNvlinkLane, kFwd, 1, 100000), 0) == Status::kOk));
  w.run_to(5000);
  w.ports[0]->set_rate(link_of(0, kNvlink), kFwd, 0.25, 5000);
  const auto done = only(w.run_to(kMilli), CompletionKind::kSendDone);
  BOOST_REQUIRE(done.size() == 1U);
  check_about(done[0].at, 25000);
}

BOOST_AUTO_TEST_CASE(payload_and_header_land_as_they_were) {
  WirePair w;
  for (const LaneId lane : {LaneId{kRail0}, LaneId{kTcpLane}, LaneId{kHostLane}}) {
    const auto data = pattern(kChunk, 5 + lane);
    WorkRequest q = WirePair::request(w.cluster, lane, kFwd, 77, kChunk, lane, data.data());
    q.header.op = 9;
    BOOST_TEST((w.wires[0]->post(q, w.now) == Status::kOk));
    const auto recv = only(w.run_to(w.now + kMilli), CompletionKind::kRecv);
    BOOST_REQUIRE(recv.size() == 1U);
    BOOST_TEST(recv[0].c.immediate == q.immediate);
    const std::byte* slot = w.slots[recv[0].node]->memory().slot(lane);
    BOOST_TEST(std::memcmp(slot, reinterpret_cast<const std::byte*>(&q.header), sizeof(ChunkHeader)) == 0);
    BOOST_TEST(std::memcmp(slot + sizeof(ChunkHeader), data.data(), kChunk) == 0);
  }
}

// Sending, on the wire and answered: each ends once, flushed, and only those of that lane.
BOOST_AUTO_TEST_CASE(reset_flushes_what_is_outstanding_once) {
  WirePair w;
  for (std::uint64_t i = 0; i < 5; ++i) {
    BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail0, kFwd, i, kChunk), 0) == Status::kOk));
    BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail1, kFwd, 100 + i, kChunk), 0) == Status::kOk));
  }
  std::map<std::uint64_t, int> ended;
  for (const auto& s : only(w.run_to(27000), CompletionKind::kSendDone)) ++ended[s.c.id];
  BOOST_TEST(ended.size() == 2U);  // one of each lane is through and back
  w.wires[0]->reset(kRail0, kFwd);
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail0, kFwd, 9, kChunk), w.now) == Status::kDown));
  int flushed = 0;
  for (const auto& s : only(w.run_to(kMilli), CompletionKind::kSendDone)) {
    ++ended[s.c.id];
    flushed += s.c.status == WorkStatus::kFlushed;
    if (s.c.id >= 100) BOOST_TEST((s.c.status == WorkStatus::kOk));
  }
  BOOST_TEST(flushed == 4);
  for (const auto& [id, times] : ended) BOOST_TEST(times == 1, "request " << id);
  BOOST_TEST(ended.size() == 10U);
}

// Nothing of an older epoch is delivered, and nothing that had landed but was not yet told comes out after a reset.
BOOST_AUTO_TEST_CASE(another_epoch_is_refused) {
  WirePair w;
  BOOST_TEST((w.wires[0]->post(WirePair::request(w.cluster, kRail0, kFwd, 1, kChunk), 0) == Status::kOk));
  w.run_to(12000);
  w.wires[1]->reset(kRail0, kBwd);
  w.wires[1]->open(kRail0, kBwd, 2);
  BOOST_TEST(only(w.run_to(kMilli), CompletionKind::kRecv).empty());
  BOOST_TEST((w.wires[0]->signal(kRail0, kFwd, 2, Signal{}, w.now) == Status::kDown));
  w.wires[0]->reset(kRail0, kFwd);
  w.wires[0]->open(kRail0, kFwd, 2);
  BOOST_TEST(
      (w.wires[0]->post(WirePair::request(w.cluster, kRail0, kFwd, 2, kChunk, 0, nullptr, 2), w.now) == Status::kOk));
  BOOST_TEST(only(w.run_to(2 * kMilli), CompletionKind::kRecv).size() == 1U);
}

BOOST_AUTO_TEST_CASE(reset_takes_back_what_was_not_polled) {
  WirePair w;
  for (std::uint64_t i = 0; i < 3; ++i) {
    BOOST_TEST((w.ports[0]->post(WirePair::request(w.cluster, kRail0, kFwd, i, 400), 0) == Status::kOk));
  }
  Completion out[1];
  for (Nanos t = 0; t <= 20000; t += 100) w.ports[0]->poll({}, t);
  BOOST_REQUIRE(w.ports[1]->poll(out, 20000) == 1U);  // all three have landed, one comes out
  w.ports[1]->reset(kRail0, kBwd);
  BOOST_TEST(w.ports[1]->poll(out, 60000) == 0U);
}

// Random posts, resets and opens: every staging buffer comes back, every taken request ends once.
BOOST_AUTO_TEST_CASE(nothing_leaks) {
  WirePair w(true, 4, 4);
  Random random(11);
  const auto data = pattern(WirePair::kSlotBytes, 3);
  std::map<std::uint64_t, int> open_requests;
  std::uint32_t epoch[kLaneCount];
  for (auto& e : epoch) e = 1;
  std::uint64_t id = 0;
  std::uint64_t busy = 0;
  for (unsigned i = 0; i < 100000; ++i) {
    const LaneId lane = random.chance(0.5) ? kRail0 : kRail1;
    const NodeId from = random.chance(0.5) ? 0 : 1;
    const Direction d = from == 0 ? kFwd : kBwd;
    if (random.chance(0.01)) {
      for (NodeId n = 0; n < 2; ++n) w.wires[n]->reset(lane, n == 0 ? kFwd : kBwd);
      ++epoch[lane];
      for (NodeId n = 0; n < 2; ++n) w.wires[n]->open(lane, n == 0 ? kFwd : kBwd, epoch[lane]);
    }
    const auto bytes = static_cast<std::uint32_t>(random.below(4000));
    const WorkRequest q = WirePair::request(w.cluster, lane, d, ++id, bytes, 0, data.data(), epoch[lane]);
    const Status s = w.wires[from]->post(q, w.now);
    if (s == Status::kOk) ++open_requests[id];
    busy += s == Status::kBusy;
    w.now += static_cast<Nanos>(random.below(1500));
    for (NodeId n = 0; n < 2; ++n) {
      Completion out[8];
      const unsigned k = w.wires[n]->poll(out, w.now);
      for (unsigned j = 0; j < k; ++j) {
        if (out[j].kind == CompletionKind::kSendDone) BOOST_REQUIRE(open_requests.erase(out[j].id) == 1U);
      }
    }
  }
  for (const auto& s : only(w.run_to(w.now + 100 * kMilli), CompletionKind::kSendDone)) {
    BOOST_REQUIRE(open_requests.erase(s.c.id) == 1U);
  }
  BOOST_TEST(busy > 0U);  // the pool was small enough to matter
  BOOST_TEST(w.free_staging(0) == 4U);
  BOOST_TEST(w.free_staging(1) == 4U);
}

// A node that hangs does not take its messages. Its sender must not be kept awake by them at one point in time, and
// nothing may be lost once the node goes on.
BOOST_AUTO_TEST_CASE(a_full_inbox_is_tried_again_later) {
  WirePair w;
  Signal signal;
  signal.kind = SignalKind::kHeartbeat;
  const unsigned many = WirePair::options(true, 64).inbox * 3;
  for (unsigned i = 0; i < many; ++i) {
    signal.words[0] = i;
    BOOST_REQUIRE((w.wires[0]->signal(kRail0, kFwd, 1, signal, 0) == Status::kOk));
  }
  Completion out[8];
  for (Nanos now = 0; now < 10 * kMicro; now = w.wires[0]->next_time(now)) {
    BOOST_TEST(w.wires[0]->poll(out, now) == 0U);
    BOOST_REQUIRE(w.wires[0]->next_time(now) > now);
  }
  unsigned got = 0;
  for (const auto& s : only(w.run_to(kMilli), CompletionKind::kSignal)) BOOST_REQUIRE(s.c.signal.words[0] == got++);
  BOOST_TEST(got == many);
}

// What is sent to a dead node is lost, and takes no staging buffer with it.
BOOST_AUTO_TEST_CASE(a_closed_inbox_swallows_what_is_sent_to_it) {
  WirePair w(true, 4, 8);
  w.net.close(1);
  const auto data = pattern(kChunk, 1);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const WorkRequest q = WirePair::request(w.cluster, kRail0, kFwd, i, kChunk, 0, data.data());
    BOOST_REQUIRE((w.wires[0]->post(q, w.now) == Status::kOk));
    BOOST_TEST(w.run_to(w.now + kMilli).empty());
  }
  BOOST_TEST(w.free_staging(0) == 8U);
}

BOOST_AUTO_TEST_SUITE_END()

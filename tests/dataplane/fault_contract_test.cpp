// The contract of Wire (dataplane/lane/wire.hpp) over random faults, resets and opens; a failure names its seed.
#include <boost/test/unit_test.hpp>
#include <map>

#include "dataplane/lane/fault.hpp"
#include "tests/dataplane/wire_cluster.hpp"

using namespace lk;
using namespace lk::test;

namespace {
constexpr Direction kFwd = Direction::kForward;
constexpr Direction kBwd = Direction::kBackward;
constexpr std::uint32_t kChunk = 40000;
constexpr unsigned kStaging = 16;

struct Trial {
  explicit Trial(std::uint64_t seed) : payload(seed % 2 == 0), w(payload, 4, kStaging), random(seed) {
    for (LaneId l = 0; l < kLaneCount; ++l) epoch[l] = 1;
  }

  NodeId sender(LaneId lane, Direction d) const {
    return w.cluster.gpus[d == kFwd ? w.cluster.lanes[lane].a : w.cluster.lanes[lane].b].node;
  }
  void run(Nanos span) {
    for (const auto& s : only(w.run_to(w.now + span), CompletionKind::kSendDone)) {
      BOOST_REQUIRE(open_requests.erase(s.c.id) == 1U);
    }
  }
  Nanos micros(std::uint64_t below) { return static_cast<Nanos>(random.below(below)) * kMicro; }

  void inject() {
    FaultRow row;
    row.fault = static_cast<std::uint32_t>(random.below(4)) + 1;
    row.kind = static_cast<FaultKind>(random.below(12));
    row.target = random.chance(0.8) ? FaultTarget::kLink : FaultTarget::kLane;
    const bool link = row.target == FaultTarget::kLink;
    row.id = static_cast<std::uint32_t>(random.below(link ? w.cluster.links.size() : w.cluster.lanes.size()));
    row.directions = static_cast<std::uint8_t>(random.below(3) + 1);
    row.silent = random.chance(0.3);
    row.rate = 0.1 + random.unit() * 0.8;
    row.delay_ns = micros(300);
    row.period_ns = micros(200) + 20 * kMicro;
    row.at_ns = w.now + micros(100);
    row.until_ns = row.at_ns + micros(2000);
    row.seed = random.next();
    for (auto& wire : w.wires) BOOST_REQUIRE(wire->rows().push(row));
  }

  // Both of a lane's sides; then nothing of it may be outstanding.
  void renew(LaneId lane) {
    ++epoch[lane];
    for (const Direction d : {kFwd, kBwd}) w.wires[sender(lane, d)]->reset(lane, d);
    for (const Direction d : {kFwd, kBwd}) w.wires[sender(lane, d)]->open(lane, d, epoch[lane]);
    run(0);
    for (const auto& [id, of] : open_requests) BOOST_REQUIRE(of != lane);
  }

  void post(LaneId lane, Direction d) {
    const auto bytes = static_cast<std::uint32_t>(random.below(kChunk));
    const auto slot = static_cast<std::uint32_t>(random.below(256));
    const std::byte* from = payload ? data.data() : nullptr;
    const WorkRequest q = WirePair::request(w.cluster, lane, d, ++last_id, bytes, slot, from, epoch[lane]);
    const Status status = w.wires[sender(lane, d)]->post(q, w.now);
    if (status == Status::kOk) open_requests[last_id] = lane;
    BOOST_REQUIRE((status == Status::kOk || status == Status::kBusy));
  }

  bool payload;
  WirePair w;
  Random random;
  std::vector<std::byte> data = std::vector<std::byte>(kChunk, std::byte{7});
  std::map<std::uint64_t, LaneId> open_requests;
  std::map<LaneId, std::uint32_t> epoch;
  std::uint64_t last_id = 0;
};
}  // namespace

BOOST_AUTO_TEST_SUITE(fault_contract_test)

// A taken request ends in exactly one kSendDone; after a reset of its lane all of them have.
BOOST_AUTO_TEST_CASE(every_taken_request_ends_once) {
  FaultCounters sum;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      Trial t(seed);
      for (unsigned i = 0; i < 1500; ++i) {
        if (t.random.chance(0.02)) t.inject();
        const auto lane = static_cast<LaneId>(t.random.below(kLaneCount));
        const auto d = static_cast<Direction>(t.random.below(2));
        if (t.random.chance(0.05)) t.renew(lane);
        t.post(lane, d);
        if (t.random.chance(0.2)) {
          t.w.wires[t.sender(lane, d)]->signal(lane, d, t.epoch[lane], Signal{}, t.w.now);
        }
        t.run(t.micros(20));
      }
      for (LaneId l = 0; l < kLaneCount; ++l) t.renew(l);
      t.run(kMilli);
      BOOST_TEST(t.open_requests.empty());
      for (NodeId n = 0; t.payload && n < 2; ++n) BOOST_TEST(t.w.free_staging(n) == kStaging);
      for (const auto& wire : t.w.wires) {
        const FaultCounters& c = wire->counters();
        sum.pair_killed += c.pair_killed;
        sum.request_failed += c.request_failed;
        sum.request_held += c.request_held;
        sum.request_delayed += c.request_delayed;
        sum.receive_swallowed += c.receive_swallowed;
        sum.replayed += c.replayed;
        sum.late_written += c.late_written;
        sum.late_after_reset += c.late_after_reset;
      }
    }
  }
  // The trial met what it is about.
  for (const std::uint64_t n : {sum.pair_killed, sum.request_failed, sum.request_held, sum.request_delayed,
                                sum.receive_swallowed, sum.replayed, sum.late_written, sum.late_after_reset}) {
    BOOST_TEST(n > 20U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

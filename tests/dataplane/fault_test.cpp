// What each fault does is stated in dataplane/lane/fault_row.hpp; times are worked out by hand as in
// loopback_port_test.
#include "dataplane/lane/fault.hpp"

#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/dataplane/wire_cluster.hpp"

using namespace lk;
using namespace lk::test;

namespace {
constexpr Direction kFwd = Direction::kForward;
constexpr Direction kBwd = Direction::kBackward;
constexpr std::uint32_t kChunk = 40000;  // 10 µs of a port

FaultRow link_fault(FaultKind kind, LinkId link, Nanos at = 0, Nanos until = kNever) {
  FaultRow row;
  row.fault = 1;
  row.kind = kind;
  row.id = link;
  row.at_ns = at;
  row.until_ns = until;
  row.seed = 42;
  return row;
}

void inject(WirePair& w, const FaultRow& row) {
  for (auto& wire : w.wires) BOOST_REQUIRE(wire->rows().push(row));
}

void post(WirePair& w, LaneId lane, Direction d, std::uint64_t id, std::uint32_t epoch = 1, std::uint32_t slot = 0,
          const std::byte* payload = nullptr) {
  const NodeId from = w.cluster.gpus[d == kFwd ? w.cluster.lanes[lane].a : w.cluster.lanes[lane].b].node;
  const WorkRequest q = WirePair::request(w.cluster, lane, d, id, kChunk, slot, payload, epoch);
  BOOST_REQUIRE((w.wires[from]->post(q, w.now) == Status::kOk));
}

void reset_and_open(WirePair& w, LaneId lane, std::uint32_t epoch) {
  for (NodeId n = 0; n < 2; ++n) w.wires[n]->reset(lane, n == 0 ? kFwd : kBwd);
  for (NodeId n = 0; n < 2; ++n) w.wires[n]->open(lane, n == 0 ? kFwd : kBwd, epoch);
}

unsigned count(const std::vector<WirePair::Seen>& all, CompletionKind kind, WorkStatus status) {
  unsigned n = 0;
  for (const auto& s : only(all, kind)) n += s.c.status == status;
  return n;
}
unsigned done(const std::vector<WirePair::Seen>& all, WorkStatus status) {
  return count(all, CompletionKind::kSendDone, status);
}
}  // namespace

BOOST_AUTO_TEST_SUITE(fault_test)

// At 12 µs one chunk is on the wire and one is waiting for the port: both fail at that time, and the port says so.
BOOST_AUTO_TEST_CASE(a_cut_fails_what_is_under_way_and_tells_the_port) {
  WirePair w;
  inject(w, link_fault(FaultKind::kCut, link_of(0, kPort0), 12000, kMilli));
  post(w, kRail0, kFwd, 1);
  post(w, kRail0, kFwd, 2);
  post(w, kRail1, kFwd, 3);
  auto all = w.run_to(500 * kMicro);
  BOOST_TEST(done(all, WorkStatus::kError) == 2U);
  BOOST_TEST(done(all, WorkStatus::kOk) == 1U);  // the other rail
  for (const auto& s : only(all, CompletionKind::kSendDone)) {
    if (s.c.status == WorkStatus::kError) BOOST_TEST(s.at == 12000);
  }
  const auto down = only(all, CompletionKind::kPortDown);
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST(down[0].at == 12000);
  BOOST_TEST(down[0].node == 0);
  BOOST_TEST(down[0].c.link == link_of(0, kPort0));
  // Later posts are taken and fail; signals are refused; so it stays when the cut is over, until it is opened anew.
  post(w, kRail0, kFwd, 4);
  BOOST_TEST((w.wires[0]->signal(kRail0, kFwd, 1, Signal{}, w.now) == Status::kDown));
  all = w.run_to(2 * kMilli);
  BOOST_TEST(done(all, WorkStatus::kError) == 1U);
  BOOST_TEST(only(all, CompletionKind::kPortUp).size() == 1U);
  post(w, kRail0, kFwd, 5);
  BOOST_TEST(done(w.run_to(3 * kMilli), WorkStatus::kError) == 1U);
  reset_and_open(w, kRail0, 2);
  post(w, kRail0, kFwd, 6, 2);
  all = w.run_to(4 * kMilli);
  BOOST_TEST(done(all, WorkStatus::kOk) == 1U);
  BOOST_TEST(only(all, CompletionKind::kRecv).size() == 1U);
}

// A cut far away is silence: nothing arrives, nothing completes, until the sender resets.
BOOST_AUTO_TEST_CASE(a_cut_at_the_far_end_is_silence) {
  WirePair w;
  inject(w, link_fault(FaultKind::kCut, link_of(1, kPort0)));
  post(w, kRail0, kFwd, 1);
  auto all = w.run_to(kMilli);
  BOOST_TEST(only(all, CompletionKind::kSendDone).empty());
  BOOST_TEST(only(all, CompletionKind::kRecv).empty());
  BOOST_REQUIRE(only(all, CompletionKind::kPortDown).size() == 1U);
  BOOST_TEST(only(all, CompletionKind::kPortDown)[0].node == 1);
  w.wires[0]->reset(kRail0, kFwd);
  BOOST_TEST(done(w.run_to(2 * kMilli), WorkStatus::kFlushed) == 1U);
}

BOOST_AUTO_TEST_CASE(one_direction_only_when_asked) {
  WirePair w;
  FaultRow row = link_fault(FaultKind::kCut, link_of(0, kPort0));
  row.directions = kForwardOnly;  // what n0 sends
  inject(w, row);
  post(w, kRail0, kBwd, 1);
  post(w, kRail0Too, kFwd, 2);
  const auto all = w.run_to(kMilli);
  BOOST_TEST(only(all, CompletionKind::kPortDown).empty());
  for (const auto& s : only(all, CompletionKind::kSendDone)) {
    BOOST_TEST((s.c.status == (s.c.id == 1 ? WorkStatus::kOk : WorkStatus::kError)));
  }
  BOOST_TEST(only(all, CompletionKind::kRecv).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_silent_cut_raises_no_port_event) {
  WirePair w;
  FaultRow row = link_fault(FaultKind::kCut, link_of(0, kNvlink), 0, kMilli);
  row.silent = 1;
  inject(w, row);
  post(w, kNvlinkLane, kFwd, 1);
  const auto all = w.run_to(2 * kMilli);
  BOOST_TEST(done(all, WorkStatus::kError) == 1U);
  BOOST_TEST(all.size() == 1U);
}

// 40000 bytes at a quarter of 4 GB/s are 40 µs, and 10 again when it is taken back.
BOOST_AUTO_TEST_CASE(a_degrade_slows_its_link_until_it_is_cleared) {
  WirePair w;
  FaultRow row = link_fault(FaultKind::kDegrade, link_of(0, kPort0));
  row.rate = 0.25;
  inject(w, row);
  post(w, kRail0, kFwd, 0);  // rows are taken at a poll: this one may begin at the full rate
  w.run_to(kMilli);
  post(w, kRail0, kFwd, 1);
  auto recv = only(w.run_to(2 * kMilli), CompletionKind::kRecv);
  BOOST_REQUIRE(recv.size() == 1U);
  BOOST_TEST(std::abs(recv[0].at - kMilli - 45000) <= 8);
  FaultRow clear;
  clear.kind = FaultKind::kClear;
  clear.fault = 1;
  inject(w, clear);
  w.run_to(w.now + 1);
  const Nanos begin = w.now;
  post(w, kRail0, kFwd, 2);
  recv = only(w.run_to(3 * kMilli), CompletionKind::kRecv);
  BOOST_REQUIRE(recv.size() == 1U);
  BOOST_TEST(std::abs(recv[0].at - begin - 15000) <= 8);
}

// Two of six switch planes gone, told as two faults: 4/6 of the rate, not 25/36.
BOOST_AUTO_TEST_CASE(planes_add_up) {
  WirePair w;
  for (std::uint32_t i = 0; i < 2; ++i) {
    FaultRow row = link_fault(FaultKind::kPlane, link_of(0, kNvlink));
    row.fault = i;
    row.rate = 1.0 / 6;
    inject(w, row);
  }
  w.run_to(1);
  BOOST_TEST(w.ports[0]->rate_fraction(link_of(0, kNvlink), kFwd) == 4.0 / 6, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(w.ports[1]->rate_fraction(link_of(1, kNvlink), kFwd) == 1.0);
}

BOOST_AUTO_TEST_CASE(a_delay_keeps_the_order) {
  WirePair w;
  FaultRow row = link_fault(FaultKind::kDelay, link_of(0, kPort0), 0, 30 * kMicro);
  row.delay_ns = 100 * kMicro;
  inject(w, row);
  w.run_to(1);
  post(w, kRail0, kFwd, 1);
  w.run_to(40 * kMicro);
  post(w, kRail0, kFwd, 2);  // the fault is over, but what came before still waits
  const auto sent = only(w.run_to(kMilli), CompletionKind::kSendDone);
  BOOST_REQUIRE(sent.size() == 2U);
  BOOST_TEST(sent[0].c.id == 1U);
  BOOST_TEST(std::abs(sent[0].at - 120001) <= 8);
  BOOST_TEST(std::abs(sent[1].at - 130001) <= 8);
}

// Nothing is said of what is held, not even when the fault is over; new ones pass then.
BOOST_AUTO_TEST_CASE(a_stall_is_silent_and_what_it_holds_stays_lost) {
  WirePair w;
  post(w, kRail0, kFwd, 1);
  inject(w, link_fault(FaultKind::kStall, link_of(0, kPort0), 5000, kMilli));
  w.run_to(6000);
  post(w, kRail0, kFwd, 2);
  BOOST_TEST((w.wires[0]->signal(kRail0, kFwd, 1, Signal{}, w.now) == Status::kOk));
  post(w, kRail0, kBwd, 3);
  auto all = w.run_to(2 * kMilli);
  for (const auto& s : all) BOOST_TEST(s.node == 1);  // the chunk that was on the wire arrives; its sender is not told
  post(w, kRail0, kFwd, 4);
  all = w.run_to(3 * kMilli);
  BOOST_TEST(only(all, CompletionKind::kRecv).size() == 1U);
  BOOST_TEST(done(all, WorkStatus::kOk) == 1U);
  reset_and_open(w, kRail0, 2);
  all = w.run_to(4 * kMilli);
  std::set<std::uint64_t> ids;
  for (const auto& s : only(all, CompletionKind::kSendDone)) {
    BOOST_TEST((s.c.status == WorkStatus::kFlushed));
    ids.insert(s.c.id);
  }
  BOOST_TEST((ids == std::set<std::uint64_t>{1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(a_drop_is_told_as_success) {
  WirePair w;
  FaultRow row = link_fault(FaultKind::kDrop, link_of(1, kPort0));
  row.rate = 0.5;
  inject(w, row);
  for (std::uint64_t i = 0; i < 200; ++i) post(w, kRail0, kFwd, i);
  const auto all = w.run_to(10 * kMilli);
  BOOST_TEST(done(all, WorkStatus::kOk) == 200U);
  const std::size_t got = only(all, CompletionKind::kRecv).size();
  BOOST_TEST(got > 60U);
  BOOST_TEST(got < 140U);
  BOOST_TEST(w.wires[1]->counters().receive_dropped == 200 - got);
  // The same seed and calls: the same chunks.
  WirePair again;
  inject(again, row);
  for (std::uint64_t i = 0; i < 200; ++i) post(again, kRail0, kFwd, i);
  const auto second = again.run_to(10 * kMilli);
  BOOST_REQUIRE(second.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    BOOST_TEST((second[i].at == all[i].at && second[i].c.kind == all[i].c.kind && second[i].c.id == all[i].c.id));
  }
}

// Exactly one bit of header and payload differs where the chunk has a checksum of ours.
BOOST_AUTO_TEST_CASE(corrupt_flips_one_bit) {
  WirePair w;
  FaultRow row;
  row.kind = FaultKind::kCorrupt;
  row.target = FaultTarget::kLane;
  row.id = kTcpLane;
  inject(w, row);
  std::vector<std::byte> data(kChunk);
  Random random(8);
  for (auto& b : data) b = static_cast<std::byte>(random.next());
  for (std::uint32_t slot = 0; slot < 20; ++slot) {
    WorkRequest q = WirePair::request(w.cluster, kTcpLane, kFwd, slot, kChunk, slot, data.data());
    q.header.has_crc = 1;
    BOOST_REQUIRE((w.wires[0]->post(q, w.now) == Status::kOk));
    BOOST_REQUIRE(only(w.run_to(w.now + kMilli), CompletionKind::kRecv).size() == 1U);
    const std::byte* got = w.slots[1]->memory().slot(slot);
    std::vector<std::byte> sent(sizeof(ChunkHeader) + kChunk);
    std::memcpy(sent.data(), &q.header, sizeof(ChunkHeader));
    std::memcpy(sent.data() + sizeof(ChunkHeader), data.data(), kChunk);
    int bits = 0;
    for (std::size_t i = 0; i < sent.size(); ++i)
      bits += __builtin_popcount(std::to_integer<unsigned>(sent[i] ^ got[i]));
    BOOST_TEST(bits == 1);
  }
}

// Without one the NIC's own check catches it: whole, and 200 µs later.
BOOST_AUTO_TEST_CASE(corrupt_is_replayed_where_the_transport_checks) {
  WirePair w;
  inject(w, link_fault(FaultKind::kCorrupt, link_of(1, kPort0)));
  inject(w, link_fault(FaultKind::kCorrupt, link_of(0, kNvlink)));
  const std::vector<std::byte> data(kChunk, std::byte{0x5a});
  post(w, kRail0, kFwd, 1, 1, 3, data.data());
  post(w, kNvlinkLane, kFwd, 2);
  const auto all = w.run_to(kMilli);
  const auto recv = only(all, CompletionKind::kRecv);
  BOOST_REQUIRE(recv.size() == 1U);
  BOOST_TEST(std::abs(recv[0].at - 215000) <= 8);
  BOOST_TEST(std::memcmp(w.slots[1]->memory().slot(3) + sizeof(ChunkHeader), data.data(), kChunk) == 0);
  for (const auto& s : only(all, CompletionKind::kSendDone)) {
    if (s.c.id == 2) BOOST_TEST(std::abs(s.at - 6000) <= 8);  // 4 µs, and 2 of NVLink's replay
  }
}

BOOST_AUTO_TEST_CASE(corrupt_without_payload_breaks_the_checksum_field) {
  WirePair w(false);
  inject(w, link_fault(FaultKind::kCorrupt, link_of(1, kTcp)));
  WorkRequest q = WirePair::request(w.cluster, kTcpLane, kFwd, 1, kChunk, 3);
  q.header.has_crc = 1;
  q.header.crc = 0x1234;
  BOOST_REQUIRE((w.wires[0]->post(q, w.now) == Status::kOk));
  w.run_to(kMilli);
  ChunkHeader got;
  std::memcpy(&got, w.slots[1]->memory().slot(3), sizeof(got));
  BOOST_TEST(__builtin_popcount(got.crc ^ 0x1234U) == 1);
}

BOOST_AUTO_TEST_CASE(duplicates_come_twice_and_reset_forgets_them) {
  WirePair w;
  inject(w, link_fault(FaultKind::kDuplicate, link_of(1, kPort0)));
  post(w, kRail0, kFwd, 1);
  BOOST_TEST(only(w.run_to(kMilli), CompletionKind::kRecv).size() == 2U);
  post(w, kRail0, kFwd, 2);
  w.run_to(w.now + 12000);
  Completion out[1];
  w.now += 3010;
  BOOST_TEST(w.wires[1]->poll(out, w.now) == 1U);
  w.wires[1]->reset(kRail0, kBwd);
  BOOST_TEST(only(w.run_to(2 * kMilli), CompletionKind::kRecv).empty());
}

// The slot gets the old bytes again, with the old immediate, as long as nobody has reset the lane.
BOOST_AUTO_TEST_CASE(late_writes_an_open_lane_and_only_tells_a_reset_one) {
  for (const bool fenced : {false, true}) {
    WirePair w;
    FaultRow row = link_fault(FaultKind::kLate, link_of(1, kPort0), 0, 100 * kMicro);
    row.delay_ns = kMilli;
    inject(w, row);
    const std::vector<std::byte> data(kChunk, std::byte{1});
    post(w, kRail0, kFwd, 7, 1, 9, data.data());
    BOOST_TEST(only(w.run_to(500 * kMicro), CompletionKind::kRecv).empty());
    std::byte* slot = w.slots[1]->memory().slot(9);
    std::memset(slot, 2, sizeof(ChunkHeader) + kChunk);
    if (fenced) reset_and_open(w, kRail0, 2);
    const auto recv = only(w.run_to(2 * kMilli), CompletionKind::kRecv);
    BOOST_REQUIRE(recv.size() == 1U);
    BOOST_TEST(std::abs(recv[0].at - 1015000) <= 8);
    BOOST_TEST(recv[0].c.epoch == 1U);
    BOOST_TEST(recv[0].c.immediate == (9U << 16 | 1));
    BOOST_TEST((slot[sizeof(ChunkHeader)] == (fenced ? std::byte{2} : std::byte{1})));
    BOOST_TEST(w.wires[1]->counters().late_written == (fenced ? 0U : 1U));
    BOOST_TEST(w.wires[1]->counters().late_after_reset == (fenced ? 1U : 0U));
  }
}

BOOST_AUTO_TEST_CASE(bad_ends_with_an_error_and_is_not_sent) {
  WirePair w;
  inject(w, link_fault(FaultKind::kBad, link_of(0, kPort0)));
  w.run_to(1);
  post(w, kRail0, kFwd, 1);
  const auto all = w.run_to(kMilli);
  BOOST_REQUIRE(all.size() == 1U);
  BOOST_TEST((all[0].c.status == WorkStatus::kError && all[0].c.id == 1 && all[0].at == 1));
}

// Down first, for a quarter of each period: 0-1, 4-5 and 8-9 ms, then it is over.
BOOST_AUTO_TEST_CASE(a_flap_comes_and_goes) {
  WirePair w;
  FaultRow row = link_fault(FaultKind::kFlap, link_of(0, kPort0), kMilli, 10 * kMilli);
  row.period_ns = 4 * kMilli;
  row.rate = 0.25;
  inject(w, row);
  std::vector<std::pair<Nanos, bool>> edges;
  for (const auto& s : w.run_to(20 * kMilli)) edges.emplace_back(s.at, s.c.kind == CompletionKind::kPortDown);
  const std::vector<std::pair<Nanos, bool>> expected = {{1 * kMilli, true},  {2 * kMilli, false}, {5 * kMilli, true},
                                                        {6 * kMilli, false}, {9 * kMilli, true},  {10 * kMilli, false}};
  BOOST_TEST((edges == expected));
}

BOOST_AUTO_TEST_CASE(a_lost_node_says_nothing_and_hears_nothing) {
  WirePair w;
  FaultRow row;
  row.kind = FaultKind::kCut;
  row.target = FaultTarget::kNode;
  row.id = 1;
  inject(w, row);
  w.run_to(1);
  post(w, kRail0, kFwd, 1);
  post(w, kTcpLane, kBwd, 2);
  post(w, kNvlinkLaneOfN1, kFwd, 3);
  post(w, kNvlinkLane, kFwd, 4);
  const auto all = w.run_to(kSecond);
  BOOST_REQUIRE(all.size() == 1U);
  BOOST_TEST(all[0].c.id == 4U);
}

BOOST_AUTO_TEST_SUITE_END()

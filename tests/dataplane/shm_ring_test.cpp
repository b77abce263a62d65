// The rings and the layout of client memory, mostly from the side of a client that writes what it should not.
#include "dataplane/memory/shm_ring.hpp"

#include <boost/test/unit_test.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"
#include "dataplane/memory/shm_layout.hpp"

namespace {

using lk::ShmRingStart;
using lk::Status;
using lk::SubmitEntry;

constexpr std::uint32_t kSlots = 8;

// The ring's memory, with a guard on both sides that nothing may write.
struct Shared {
  static constexpr std::size_t kGuard = 64;
  static constexpr std::size_t kRing = lk::shm_ring_bytes<SubmitEntry>(kSlots);
  Shared() { std::fill_n(bytes, sizeof bytes, std::byte{0x5a}), std::fill_n(ring(), kRing, std::byte{0}); }
  std::byte* ring() { return bytes + kGuard; }
  lk::ShmRingIndexes& indexes() { return *reinterpret_cast<lk::ShmRingIndexes*>(ring()); }
  SubmitEntry* entry(std::size_t i) {
    return reinterpret_cast<SubmitEntry*>(ring() + sizeof(lk::ShmRingIndexes) + i * sizeof(SubmitEntry));
  }
  bool guards_whole() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes[i] != std::byte{0x5a} || bytes[kGuard + kRing + i] != std::byte{0x5a}) return false;
    }
    return true;
  }
  alignas(64) std::byte bytes[kRing + 2 * kGuard];
};

SubmitEntry numbered(std::uint64_t n) {
  SubmitEntry e{};
  e.op_no = n;
  e.cookie = ~n;
  return e;
}

SubmitEntry valid_submit() {
  SubmitEntry e{};
  e.op_no = 1;
  e.count = 16;  // 64 bytes of f32
  e.out_offset = 64;
  return e;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(shm_ring)

BOOST_AUTO_TEST_CASE(keeps_order_and_says_full_and_empty) {
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  SubmitEntry e{};
  BOOST_TEST((out.pop(e) == Status::kBusy));
  std::uint64_t pushed = 0, popped = 0;
  for (int round = 0; round < 5; ++round) {
    while (in.push(numbered(pushed + 1)) == Status::kOk) ++pushed;
    BOOST_TEST(pushed - popped == kSlots);
    for (int k = 0; k < 5; ++k) {
      BOOST_REQUIRE((out.pop(e) == Status::kOk));
      BOOST_TEST(e.op_no == ++popped);
      BOOST_TEST(e.cookie == ~popped);
    }
  }
  BOOST_TEST(shared.guards_whole());
}

BOOST_AUTO_TEST_CASE(impossible_producer_position_is_invalid_and_reads_nothing) {
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  SubmitEntry e{};
  for (std::uint64_t n = 1; n <= 3; ++n) BOOST_REQUIRE((in.push(numbered(n)) == Status::kOk));
  for (int k = 0; k < 3; ++k) BOOST_REQUIRE((out.pop(e) == Status::kOk));
  e = numbered(77);
  for (const std::uint64_t lie : {0ULL, 2ULL, 3ULL + kSlots + 1, 1ULL << 32, ~0ULL, 1ULL << 63}) {
    shared.indexes().produced.store(lie);
    BOOST_TEST((out.pop(e) == Status::kInvalid));
    BOOST_TEST(e.op_no == 77U);
    BOOST_TEST(!out.arm());  // it must not sleep on a ring that is broken
  }
  BOOST_TEST(shared.indexes().consumed.load() == 3U);
}

BOOST_AUTO_TEST_CASE(impossible_consumer_position_is_invalid_and_writes_nothing) {
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  for (std::uint64_t n = 1; n <= kSlots; ++n) BOOST_REQUIRE((in.push(numbered(n)) == Status::kOk));
  for (const std::uint64_t lie : {std::uint64_t{kSlots + 1}, UINT64_MAX, std::uint64_t{1} << 40}) {
    shared.indexes().consumed.store(lie);
    BOOST_TEST((in.push(numbered(99)) == Status::kInvalid));
    BOOST_TEST(shared.indexes().produced.load() == kSlots);
    BOOST_TEST(shared.entry(0)->op_no == 1U);
  }
  shared.indexes().consumed.store(1);
  BOOST_TEST((in.push(numbered(9)) == Status::kOk));
}

BOOST_AUTO_TEST_CASE(random_lies_never_leave_the_ring) {
  lk::Random random(23);
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  int good = 0, invalid = 0;
  for (int k = 0; k < 20'000; ++k) {
    if (random.chance(0.2)) shared.indexes().produced.store(random.chance(0.5) ? random.next() : random.below(40'000));
    if (random.chance(0.2)) shared.indexes().consumed.store(random.chance(0.5) ? random.next() : random.below(40'000));
    SubmitEntry e{};
    const Status s = random.chance(0.5) ? in.push(numbered(1)) : out.pop(e);
    good += s == Status::kOk;
    invalid += s == Status::kInvalid;
  }
  BOOST_TEST(shared.guards_whole());
  BOOST_TEST(good > 0);
  BOOST_TEST(invalid > 0);
}

BOOST_AUTO_TEST_CASE(a_popped_entry_cannot_change_any_more) {
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  BOOST_REQUIRE((in.push(numbered(5)) == Status::kOk));
  SubmitEntry e{};
  BOOST_REQUIRE((out.pop(e) == Status::kOk));
  shared.entry(0)->count = UINT64_MAX;
  shared.entry(0)->op_no = 6;
  BOOST_TEST(e.op_no == 5U);
  BOOST_TEST(e.count == 0U);
}

BOOST_AUTO_TEST_CASE(a_restarted_end_goes_on_where_it_was) {
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  SubmitEntry e{};
  for (std::uint64_t n = 1; n <= 4; ++n) BOOST_REQUIRE((in.push(numbered(n)) == Status::kOk));
  BOOST_REQUIRE((out.pop(e) == Status::kOk));
  lk::ShmConsumer<SubmitEntry> again(shared.ring(), kSlots, ShmRingStart::kResume);
  BOOST_REQUIRE((again.pop(e) == Status::kOk));
  BOOST_TEST(e.op_no == 2U);
  lk::ShmProducer<SubmitEntry> more(shared.ring(), kSlots, ShmRingStart::kResume);
  std::uint64_t n = 5;
  while (more.push(numbered(n)) == Status::kOk) ++n;
  BOOST_TEST(n == 11U);  // 3 and 4 were still there: six of eight slots were free
  BOOST_REQUIRE((again.pop(e) == Status::kOk));
  BOOST_TEST(e.op_no == 3U);
}

BOOST_AUTO_TEST_CASE(wakes_a_sleeper_once) {
  Shared shared;
  lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  BOOST_REQUIRE((in.push(numbered(1)) == Status::kOk));
  BOOST_TEST(!in.push_wakes());  // nobody sleeps
  BOOST_TEST(!out.arm());        // there is something to pop
  BOOST_TEST(!in.push_wakes());
  SubmitEntry e{};
  BOOST_REQUIRE((out.pop(e) == Status::kOk));
  BOOST_TEST(out.arm());
  BOOST_REQUIRE((in.push(numbered(2)) == Status::kOk));
  BOOST_TEST(in.push_wakes());
  BOOST_TEST(!in.push_wakes());
}

BOOST_AUTO_TEST_CASE(two_threads_lose_nothing) {
  constexpr std::uint64_t kMany = 20'000;
  Shared shared;
  std::thread producer([&] {
    lk::ShmProducer<SubmitEntry> in(shared.ring(), kSlots, ShmRingStart::kFresh);
    for (std::uint64_t n = 1; n <= kMany;) {
      if (in.push(numbered(n)) == Status::kOk) {
        ++n;
      } else {
        std::this_thread::yield();
      }
    }
  });
  lk::ShmConsumer<SubmitEntry> out(shared.ring(), kSlots, ShmRingStart::kFresh);
  std::uint64_t wrong = 0;
  for (std::uint64_t n = 1; n <= kMany;) {
    SubmitEntry e{};
    if (out.pop(e) == Status::kOk) {
      wrong += e.op_no != n || e.cookie != ~n;
      ++n;
    } else {
      std::this_thread::yield();
    }
  }
  producer.join();
  BOOST_TEST(wrong == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(shm_layout)

BOOST_AUTO_TEST_CASE(areas_follow_each_other_without_overlap) {
  const lk::ShmLayout l = lk::plan_layout(
      {.submit_slots = 100, .completion_slots = 3, .ledger_bytes = 1, .scratch_bytes = 1000, .data_bytes = 5000});
  BOOST_TEST(l.submit_slots == 128U);
  BOOST_TEST(l.completion_slots == 4U);
  BOOST_TEST(l.submit_offset == 256U);
  BOOST_TEST(l.completion_offset == 256U + 192 + 128 * 64);
  BOOST_TEST(l.ledger_offset == l.completion_offset + 192 + 4 * 32);
  BOOST_TEST(l.scratch_offset == l.ledger_offset + 64);
  BOOST_TEST(l.scratch_bytes >= 1000U);
  BOOST_TEST(l.scratch_bytes < 1000U + 4096);
  BOOST_TEST(l.data_offset % 4096 == 0U);
  BOOST_TEST(l.data_offset == l.scratch_offset + l.scratch_bytes);
  BOOST_TEST(l.data_bytes == 8192U);
  BOOST_TEST(l.total_bytes == l.data_offset + l.data_bytes);
}

BOOST_AUTO_TEST_CASE(sizes_that_make_no_sense_are_refused) {
  BOOST_CHECK_THROW(lk::plan_layout({.submit_slots = 0}), lk::InputError);
  BOOST_CHECK_THROW(lk::plan_layout({.completion_slots = 1U << 17}), lk::InputError);
  BOOST_CHECK_THROW(lk::plan_layout({.data_bytes = UINT64_MAX}), lk::InputError);
}

BOOST_AUTO_TEST_CASE(a_header_is_read_back_and_any_changed_byte_is_refused) {
  const lk::ShmLayout layout = lk::plan_layout({.ledger_bytes = 640, .scratch_bytes = 64, .data_bytes = 4096});
  std::vector<std::byte> region(layout.total_bytes);
  std::memcpy(region.data(), &layout, sizeof layout);
  BOOST_TEST((lk::check_header(region.data(), region.size()) == layout));
  BOOST_CHECK_THROW(lk::check_header(region.data(), region.size() - 4096), lk::InputError);
  BOOST_CHECK_THROW(lk::check_header(region.data(), 100), lk::InputError);
  for (std::size_t i = 0; i < sizeof layout; ++i) {
    for (const auto flip : {std::byte{1}, std::byte{0x80}}) {
      region[i] ^= flip;
      BOOST_CHECK_THROW(lk::check_header(region.data(), region.size()), lk::InputError);
      region[i] ^= flip;
    }
  }
}

BOOST_AUTO_TEST_CASE(entries_are_checked_against_the_data_area) {
  constexpr lk::Bytes kData = 4096;
  BOOST_TEST((lk::check_submit(valid_submit(), kData) == Status::kOk));
  const auto with = [](auto change) {
    SubmitEntry e = valid_submit();
    change(e);
    return lk::check_submit(e, kData);
  };
  BOOST_TEST((with([](auto& e) { e.out_offset = 0; }) == Status::kOk));  // in place
  BOOST_TEST((with([](auto& e) { e.count = 0, e.in_offset = e.out_offset = kData; }) == Status::kOk));
  BOOST_TEST((with([](auto& e) { e.in_offset = kData - 64, e.out_offset = 0; }) == Status::kOk));
  BOOST_TEST((with([](auto& e) { e.kind = 2; }) == Status::kUnsupported));
  BOOST_TEST((with([](auto& e) { e.redop = 2; }) == Status::kUnsupported));
  BOOST_TEST((with([](auto& e) { e.dtype = 3; }) == Status::kUnsupported));
  BOOST_TEST((with([](auto& e) { e.flags = 1; }) == Status::kInvalid));
  BOOST_TEST((with([](auto& e) { e.op_no = 0; }) == Status::kInvalid));
  BOOST_TEST((with([](auto& e) { e.in_offset = kData - 60; }) == Status::kInvalid));
  BOOST_TEST((with([](auto& e) { e.out_offset = kData - 60; }) == Status::kInvalid));
  BOOST_TEST((with([](auto& e) { e.out_offset = UINT64_MAX - 3; }) == Status::kInvalid));
  BOOST_TEST((with([](auto& e) { e.count = UINT64_MAX / 4 + 2; }) == Status::kInvalid));  // × 4 would wrap to 4
  BOOST_TEST((with([](auto& e) { e.count = 1025; }) == Status::kInvalid));
  BOOST_TEST((with([](auto& e) { e.out_offset = 60; }) == Status::kInvalid));  // overlaps the input
  BOOST_TEST((with([](auto& e) { e.out_offset = 65; }) == Status::kInvalid));  // not aligned to f32
}

BOOST_AUTO_TEST_SUITE_END()

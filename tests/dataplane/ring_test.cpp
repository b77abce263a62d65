#include "dataplane/base/ring.hpp"

#include <sched.h>

#include <boost/test/unit_test.hpp>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(ring_test)

// Elements come out in the order in which they went in, and a full ring says so instead of waiting.
BOOST_AUTO_TEST_CASE(keeps_order_and_refuses_when_full) {
  lk::Ring<std::uint64_t> ring(3);
  BOOST_TEST(ring.push(7));
  BOOST_TEST(ring.push(8));
  BOOST_TEST(ring.push(9));
  BOOST_TEST(!ring.push(10));
  std::uint64_t out[4] = {};
  BOOST_TEST(ring.pop_burst(out, 4) == 3U);
  BOOST_TEST(out[0] == 7U);
  BOOST_TEST(out[2] == 9U);
  BOOST_TEST(ring.empty());
}

// Pushers that share a core lose it in the middle of a push now and then. Everything arrives, each pusher's in order.
BOOST_AUTO_TEST_CASE(several_pushers_may_share_a_core) {
  constexpr std::uint64_t kPushers = 4, kEach = 100'000;
  lk::Ring<std::uint64_t> ring(1023, lk::RingProducers::kMulti);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  std::vector<std::thread> pushers;
  for (std::uint64_t p = 0; p < kPushers; ++p) {
    pushers.emplace_back([&, p] {
      sched_setaffinity(0, sizeof one, &one);
      for (std::uint64_t i = 0; i < kEach; ++i) {
        while (!ring.push(p << 32 | i)) std::this_thread::yield();
      }
    });
  }
  std::vector<std::uint64_t> next(kPushers, 0);
  std::uint64_t wrong = 0;
  for (std::uint64_t taken = 0; taken < kPushers * kEach;) {
    std::uint64_t value = 0;
    if (!ring.pop(value)) {
      std::this_thread::yield();
      continue;
    }
    ++taken;
    wrong += next[value >> 32]++ == (value & 0xffffffffU) ? 0U : 1U;
  }
  for (auto& t : pushers) t.join();
  BOOST_TEST(wrong == 0U);
  BOOST_TEST(ring.empty());
}

BOOST_AUTO_TEST_SUITE_END()

#include "dataplane/base/ring.hpp"

#include <boost/test/unit_test.hpp>

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

BOOST_AUTO_TEST_SUITE_END()

// CRC32C against the examples of RFC 3720, appendix B.4, and against a bitwise loop.
#include "dataplane/base/crc32c.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "dataplane/base/random.hpp"

namespace {

using Bytes = std::vector<unsigned char>;

// The definition, a bit at a time.
std::uint32_t bitwise(std::uint32_t crc, const unsigned char* p, std::size_t length) {
  crc = ~crc;
  for (std::size_t i = 0; i < length; ++i) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
  }
  return ~crc;
}

void require_sum(const Bytes& data, std::uint32_t expected) {
  BOOST_TEST(lk::crc32c(0, data.data(), data.size()) == expected);
  BOOST_TEST(lk::crc32c_table(0, data.data(), data.size()) == expected);
  if (lk::crc32c_has_hardware()) BOOST_TEST(lk::crc32c_hardware(0, data.data(), data.size()) == expected);
}

Bytes random_bytes(std::size_t length, std::uint64_t seed) {
  lk::Random random(seed);
  Bytes out(length);
  for (auto& b : out) b = static_cast<unsigned char>(random.next());
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(crc32c)

BOOST_AUTO_TEST_CASE(rfc3720_examples) {
  Bytes rising(32), falling(32);
  std::iota(rising.begin(), rising.end(), static_cast<unsigned char>(0));
  std::iota(falling.rbegin(), falling.rend(), static_cast<unsigned char>(0));
  require_sum(Bytes(32, 0x00), 0x8a9136aaU);
  require_sum(Bytes(32, 0xff), 0x62a8ab43U);
  require_sum(rising, 0x46dd794eU);
  require_sum(falling, 0x113fdb5cU);
  require_sum({0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
               0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
               0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00},
              0xd9963a56U);
  require_sum({}, 0);
  const std::string check = "123456789";  // the check value of the catalogue of CRCs, CRC-32/ISCSI
  require_sum(Bytes(check.begin(), check.end()), 0xe3069283U);
}

BOOST_AUTO_TEST_CASE(both_ways_agree_at_every_length_and_alignment) {
  const Bytes data = random_bytes(300, 3);
  for (std::size_t at = 0; at < 9; ++at) {
    for (std::size_t length = 0; at + length <= data.size(); ++length) {
      const std::uint32_t expected = bitwise(0, data.data() + at, length);
      BOOST_REQUIRE_EQUAL(lk::crc32c_table(0, data.data() + at, length), expected);
      if (lk::crc32c_has_hardware()) BOOST_REQUIRE_EQUAL(lk::crc32c_hardware(0, data.data() + at, length), expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(long_data_and_pieces_agree) {
  const Bytes data = random_bytes(20'011, 5);
  for (const std::size_t length : {3071U, 3072U, 3073U, 6144U, 9216U + 8U, 20'011U}) {
    const std::uint32_t expected = bitwise(0, data.data(), length);
    BOOST_REQUIRE_EQUAL(lk::crc32c_table(0, data.data(), length), expected);
    if (lk::crc32c_has_hardware()) BOOST_REQUIRE_EQUAL(lk::crc32c_hardware(0, data.data(), length), expected);
  }
  const std::uint32_t whole = bitwise(0, data.data(), data.size());
  for (std::size_t cut = 0; cut <= data.size(); cut += 997) {
    const std::uint32_t first = lk::crc32c(0, data.data(), cut);
    BOOST_REQUIRE_EQUAL(lk::crc32c(first, data.data() + cut, data.size() - cut), whole);
  }
}

BOOST_AUTO_TEST_SUITE_END()

#include "dataplane/base/crc32c.hpp"

#include <array>
#include <cstring>

#include "dataplane/base/error.hpp"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lk {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78U;
constexpr std::size_t kSlices = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

// Slicing by 8: table k maps a byte to its effect after k further bytes.
constexpr Tables make_tables() {
  Tables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
    t[0][i] = crc;
  }
  for (std::size_t k = 1; k < kSlices; ++k) {
    for (std::size_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 0xffU];
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c_table(std::uint32_t crc, const void* data, std::size_t length) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; length >= kSlices; length -= kSlices, p += kSlices) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, sizeof word);  // little endian, as every machine that we run on
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < kSlices; ++k) crc ^= kTables[kSlices - 1 - k][(word >> (8 * k)) & 0xffU];
  }
  for (; length > 0; --length, ++p) crc = crc >> 8 ^ kTables[0][(crc ^ *p) & 0xffU];
  return ~crc;
}

#if defined(__x86_64__)

bool crc32c_has_hardware() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

namespace {

// Lanes of the three-way loop below, in bytes. The instruction has a latency of three cycles and starts every cycle, so
// three independent sums keep it busy; they are joined by moving a sum over `kLane` zero bytes.
constexpr std::size_t kLane = 1024;

// The effect of kLane zero bytes on each byte of a sum (a linear map, so four tables of 256 hold it).
constexpr std::array<std::array<std::uint32_t, 256>, 4> make_shift() noexcept {
  std::array<std::uint32_t, 32> column{};
  for (unsigned bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = 1U << bit;
    for (std::size_t i = 0; i < kLane; ++i) crc = crc >> 8 ^ kTables[0][crc & 0xffU];
    column[bit] = crc;
  }
  std::array<std::array<std::uint32_t, 256>, 4> out{};
  for (unsigned part = 0; part < 4; ++part) {
    for (unsigned value = 0; value < 256; ++value) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        if ((value >> bit & 1U) != 0) out[part][value] ^= column[part * 8 + bit];
      }
    }
  }
  return out;
}

constexpr std::array<std::array<std::uint32_t, 256>, 4> kShift = make_shift();

std::uint32_t shift_by_lane(std::uint32_t crc) noexcept {
  return kShift[0][crc & 0xffU] ^ kShift[1][crc >> 8 & 0xffU] ^ kShift[2][crc >> 16 & 0xffU] ^ kShift[3][crc >> 24];
}

std::uint64_t word_at(const unsigned char* p) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

}  // namespace

__attribute__((target("sse4.2"))) std::uint32_t crc32c_hardware(std::uint32_t crc, const void* data,
                                                                std::size_t length) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t a = ~crc & 0xffffffffU;
  for (; length >= 3 * kLane; length -= 3 * kLane, p += 3 * kLane) {
    std::uint64_t b = 0, c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, word_at(p + i));
      b = _mm_crc32_u64(b, word_at(p + kLane + i));
      c = _mm_crc32_u64(c, word_at(p + 2 * kLane + i));
    }
    a = shift_by_lane(shift_by_lane(static_cast<std::uint32_t>(a))) ^ shift_by_lane(static_cast<std::uint32_t>(b)) ^ c;
  }
  for (; length >= 8; length -= 8, p += 8) a = _mm_crc32_u64(a, word_at(p));
  auto rest = static_cast<std::uint32_t>(a);
  for (; length > 0; --length, ++p) rest = _mm_crc32_u8(rest, *p);
  return ~rest;
}

#else

bool crc32c_has_hardware() noexcept { return false; }
std::uint32_t crc32c_hardware(std::uint32_t, const void*, std::size_t) noexcept {
  LK_CHECK(!"no CRC instruction on this machine");
  return 0;
}

#endif

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t length) noexcept {
  static const bool kHardware = crc32c_has_hardware();
  return kHardware ? crc32c_hardware(crc, data, length) : crc32c_table(crc, data, length);
}

}  // namespace lk

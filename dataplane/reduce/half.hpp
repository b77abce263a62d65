// f16 and bf16 ↔ f32, exact, without branches, so that a loop over them becomes vector code. Rounding is to nearest,
// ties to even; every NaN becomes the quiet NaN of positive sign and no payload. Denormals are kept: the caller must
// not have set flush-to-zero. Any thread.
// Source of the f16 forms: F. Giesen, "half-precision conversion", 2012 (public domain), with the selects made
// explicit.
#pragma once

#include <bit>
#include <cstdint>

namespace lk {

inline constexpr std::uint32_t kQuietNanF32 = 0x7fc00000U;
inline constexpr std::uint16_t kQuietNanF16 = 0x7e00U;
inline constexpr std::uint16_t kQuietNanBf16 = 0x7fc0U;

// By mask: with ?: the compiler may move the work of one side behind a branch, and the loop is no vector code any more.
inline std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) noexcept {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float f32_from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>(nan ? kQuietNanBf16 : rounded);
}

inline float f32_from_f16(std::uint16_t bits) noexcept {
  constexpr std::uint32_t kRebias = (127U - 15U) << 23;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t moved = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
  const std::uint32_t exponent = moved & (0x1fU << 23);
  const std::uint32_t normal = moved + kRebias;
  const std::uint32_t special = normal + kRebias;  // exponent 31 becomes 255
  // A denormal: with the exponent of 2^-14 it is 2^-14 too large, and the subtraction is exact.
  const float lifted = std::bit_cast<float>(moved + kRebias + (1U << 23)) - std::bit_cast<float>(kRebias + (1U << 23));
  const auto denormal = std::bit_cast<std::uint32_t>(lifted);
  std::uint32_t size = select(exponent == 0, denormal, normal);
  size = select(exponent == (0x1fU << 23), special, size);
  return std::bit_cast<float>(sign | size);
}

inline std::uint16_t f16_from_f32(float value) noexcept {
  constexpr std::uint32_t kTooLarge = (127U + 16U) << 23;                            // 65536
  constexpr std::uint32_t kLeastNormal = (127U - 14U) << 23;                         // 2^-14
  constexpr std::uint32_t kDenormalMagic = ((127U - 15U) + (23U - 10U) + 1U) << 23;  // its last place is 2^-24
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t size = bits & 0x7fffffffU;
  // The addition rounds at 2^-24, to nearest and even, as any f32 addition.
  const float shifted = std::bit_cast<float>(size) + std::bit_cast<float>(kDenormalMagic);
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(shifted) - kDenormalMagic;
  const std::uint32_t odd = (size >> 13) & 1U;
  const std::uint32_t normal = (size - ((127U - 15U) << 23) + 0xfffU + odd) >> 13;
  std::uint32_t out = select(size < kLeastNormal, denormal, normal);
  out = select(size >= kTooLarge, 0x7c00U, out) | sign;
  out = select(size > 0x7f800000U, kQuietNanF16, out);
  return static_cast<std::uint16_t>(out);
}

}  // namespace lk

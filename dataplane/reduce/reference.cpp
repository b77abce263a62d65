#include "dataplane/reduce/reference.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// IEEE binary16 → binary32 by its definition. Every binary16 value is a binary32 value.
float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 15) << 31;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  if (mantissa == 0) return std::bit_cast<float>(sign);
  std::uint32_t shifts = 0;  // a denormal: move its leading one to where a normal number has it
  while ((mantissa & 0x400U) == 0) {
    mantissa <<= 1;
    ++shifts;
  }
  return std::bit_cast<float>(sign | (113 - shifts) << 23 | (mantissa & 0x3ffU) << 13);
}

// Drops `drop` low bits of `value`, to nearest, ties to even. drop < 64.
std::uint64_t drop_bits(std::uint64_t value, unsigned drop) {
  if (drop == 0) return value;
  const std::uint64_t kept = value >> drop;
  const std::uint64_t lost = value & ((std::uint64_t{1} << drop) - 1);
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  if (lost > half) return kept + 1;
  if (lost == half) return kept + (kept & 1);
  return kept;
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 31) << 15);
  const int exponent = static_cast<int>((bits >> 23) & 0xffU) - 127;
  const std::uint32_t mantissa = bits & 0x7fffffU;
  if (exponent == 128) return mantissa != 0 ? std::uint16_t{0x7e00} : static_cast<std::uint16_t>(sign | 0x7c00U);
  if (exponent > 15) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (exponent < -40) return sign;  // below a quarter of the least denormal, 2^-24; binary32 denormals too
  const std::uint64_t significand = 0x800000U | mantissa;
  if (exponent < -14) {
    const auto drop = static_cast<unsigned>(13 + (-14 - exponent));
    return static_cast<std::uint16_t>(sign | drop_bits(significand, drop));
  }
  // The leading one adds to the exponent field; a carry out of the mantissa does too, up to infinity.
  const std::uint64_t magnitude = (static_cast<std::uint64_t>(exponent + 14) << 10) + drop_bits(significand, 13);
  return static_cast<std::uint16_t>(sign | magnitude);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return 0x7fc0;
  return static_cast<std::uint16_t>(drop_bits(bits, 16));
}

float load(DType dtype, const std::byte* values, std::size_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, values + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, values + index * 2, 2);
  if (dtype == DType::kF16) return from_f16(bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

void store(DType dtype, std::byte* values, std::size_t index, float value) {
  if (dtype == DType::kF32) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) bits = 0x7fc00000U;
    std::memcpy(values + index * 4, &bits, 4);
    return;
  }
  const std::uint16_t bits = dtype == DType::kF16 ? to_f16(value) : to_bf16(value);
  std::memcpy(values + index * 2, &bits, 2);
}

// `value` as the type can hold it.
float rounded(DType dtype, float value) {
  std::byte cell[4];
  store(dtype, cell, 0, value);
  return load(dtype, cell, 0);
}

}  // namespace

void reference_all_reduce(DType dtype, RedOp op, std::size_t count,
                          const std::vector<std::vector<std::size_t>>& domains,
                          const std::vector<const std::byte*>& inputs, std::byte* out) {
  std::size_t ranks = 0;
  for (const auto& domain : domains) {
    LK_CHECK(!domain.empty());
    for (const std::size_t rank : domain) LK_CHECK(rank < inputs.size());
    ranks += domain.size();
  }
  LK_CHECK(ranks == inputs.size() && ranks > 0);

  for (std::size_t i = 0; i < count; ++i) {
    float total = 0;
    for (std::size_t d = 0; d < domains.size(); ++d) {
      float sum = load(dtype, inputs[domains[d][0]], i);
      for (std::size_t k = 1; k < domains[d].size(); ++k) sum = sum + load(dtype, inputs[domains[d][k]], i);
      if (domains.size() > 1) sum = rounded(dtype, sum);
      total = d == 0 ? sum : total + sum;
    }
    if (op == RedOp::kAvg) total = total / static_cast<float>(ranks);
    store(dtype, out, i, total);
  }
}

}  // namespace lk

// The arithmetic of a collective for tests: by the definition of the formats, in double, with nothing taken from the
// product. A sum or quotient of two f32 values in double, rounded to f32, is the f32 result (53 ≥ 2 × 24 + 2).
// The rule is in dataplane/reduce/reference.hpp; the expected bits of both come from numpy
// in tests/data/arith.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "dataplane/base/dtype.hpp"

namespace lk::reference {

struct Format {
  int mantissa_bits;  // stored
  int exponent_bits;
  unsigned bias() const { return (1U << (exponent_bits - 1)) - 1; }
  unsigned top_exponent() const { return (1U << exponent_bits) - 1; }
  std::uint32_t quiet_nan() const { return top_exponent() << mantissa_bits | 1U << (mantissa_bits - 1); }
  std::uint32_t infinity() const { return top_exponent() << mantissa_bits; }
  std::uint32_t sign_bit() const { return 1U << (mantissa_bits + exponent_bits); }
};

inline Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {23, 8};
    case DType::kF16:
      return {10, 5};
    case DType::kBF16:
      return {7, 8};
  }
  return {};
}

// The value that a bit pattern stands for. All three formats fit in a double.
inline double decode(DType dtype, std::uint32_t bits) {
  const Format f = format_of(dtype);
  const double sign = (bits & f.sign_bit()) != 0 ? -1.0 : 1.0;
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & f.top_exponent();
  const std::uint32_t mantissa = bits & ((1U << f.mantissa_bits) - 1);
  if (exponent == f.top_exponent()) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const int scale = static_cast<int>(exponent == 0 ? 1 : exponent) - static_cast<int>(f.bias()) - f.mantissa_bits;
  const double whole = exponent == 0 ? mantissa : mantissa + (1U << f.mantissa_bits);
  return sign * std::ldexp(whole, scale);
}

// The bit pattern nearest to a value, ties to even; NaN as the format's quiet NaN.
inline std::uint32_t encode(DType dtype, double value) {
  const Format f = format_of(dtype);
  if (std::isnan(value)) return f.quiet_nan();
  const std::uint32_t sign = std::signbit(value) ? f.sign_bit() : 0;
  const double size = std::fabs(value);
  if (std::isinf(size)) return sign | f.infinity();
  const int least = 1 - static_cast<int>(f.bias());
  int exponent = size == 0 ? least : std::ilogb(size);
  if (exponent < least) exponent = least;
  // In units of the last place: nearbyint rounds to nearest, ties to even.
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(size, f.mantissa_bits - exponent)));
  const auto base = static_cast<std::uint64_t>(exponent - least) << f.mantissa_bits;
  const std::uint64_t magnitude = base + units;  // the leading one of a normal number adds one to the exponent
  return sign | static_cast<std::uint32_t>(magnitude < f.infinity() ? magnitude : f.infinity());
}

inline std::uint32_t load(DType dtype, const std::byte* values, std::size_t index) {
  std::uint32_t bits = 0;  // little endian, as the product's wire and memory
  std::memcpy(&bits, values + index * size_of(dtype), size_of(dtype));
  return bits;
}

inline void store(DType dtype, std::byte* values, std::size_t index, std::uint32_t bits) {
  std::memcpy(values + index * size_of(dtype), &bits, size_of(dtype));
}

inline double to_f32(double value) { return decode(DType::kF32, encode(DType::kF32, value)); }

// One fold: first value, then + in order, each sum rounded to f32; for avg divided; rounded to the type.
inline std::uint32_t fold(DType dtype, const std::vector<std::uint32_t>& values, std::size_t divisor = 1) {
  double sum = decode(dtype, values.at(0));
  for (std::size_t k = 1; k < values.size(); ++k) sum = to_f32(sum + decode(dtype, values[k]));
  if (divisor != 1) sum = to_f32(sum / static_cast<double>(divisor));
  return encode(dtype, sum);
}

inline void all_reduce(DType dtype, RedOp op, std::size_t count, const std::vector<std::vector<std::size_t>>& domains,
                       const std::vector<const std::byte*>& inputs, std::byte* out) {
  const std::size_t divisor = op == RedOp::kAvg ? inputs.size() : 1;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::uint32_t> of_domains;
    for (const auto& domain : domains) {
      std::vector<std::uint32_t> values;
      values.reserve(domain.size());
      for (const std::size_t rank : domain) values.push_back(load(dtype, inputs.at(rank), i));
      of_domains.push_back(fold(dtype, values, domains.size() == 1 ? divisor : 1));
    }
    store(dtype, out, i, domains.size() == 1 ? of_domains[0] : fold(dtype, of_domains, divisor));
  }
}

}  // namespace lk::reference

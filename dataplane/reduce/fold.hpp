// fold: one pass that reads n buffers and writes one: out[i] = in[0][i] + in[1][i] + … in f32, in that order, rounded
// once to the type. It is the only place of the data path that adds gradient values.
//
// The order is the caller's: ranks in order inside a domain, domains in order between domains. No 0 + x at the start,
// no multiply-add, no flush to zero; every NaN result is the type's quiet NaN (reduce/half.hpp), also with one input.
// Any thread; noexcept; allocates nothing. Buffers need no alignment. `out` may be exactly one of the inputs; any other
// overlap is the caller's error. More than kMaxFoldInputs inputs, or none, is a broken invariant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/dtype.hpp"

namespace lk {

inline constexpr std::size_t kMaxFoldInputs = 128;

using FoldInputs = std::span<const std::byte* const>;  // in fold order

// What is done to the f32 sum before it is rounded to the type.
struct FoldRounding {
  enum class Kind : std::uint8_t { kPartial, kFinalSum, kFinalAvg };
  Kind kind = Kind::kPartial;
  std::uint32_t divisor = 1;  // kFinalAvg: number of ranks of the group

  static constexpr FoldRounding partial() noexcept { return {}; }
  static constexpr FoldRounding final_sum() noexcept { return {Kind::kFinalSum, 1}; }
  static constexpr FoldRounding final_avg(std::uint32_t ranks) noexcept { return {Kind::kFinalAvg, ranks}; }
  // The rounding of the last fold of an op over `ranks` ranks.
  static constexpr FoldRounding last(RedOp op, std::uint32_t ranks) noexcept {
    return op == RedOp::kAvg ? final_avg(ranks) : final_sum();
  }
};

void fold(DType dtype, const FoldInputs& inputs, std::size_t count, FoldRounding rounding, std::byte* out) noexcept;

}  // namespace lk

// The arithmetic of a collective, written a second time: slow, one element after the other, with no care for speed.
// The simulator and the lab compare every result of the data path with it. It shares no code with reduce/fold.
//
// The rule: fold in rank order inside a domain in f32, round to the type; fold the domains' values in domain order in
// f32, round again. A fold begins with its first value (no 0 + x). avg divides the last f32 sum, in f32, by the number
// of ranks before its last rounding. With a single domain that domain's fold is the last one: there is no second.
// Rounding is to nearest, ties to even. Every NaN result is the type's quiet NaN of positive sign and no payload.
// Any thread; allocates nothing that stays; aborts when the arguments make no sense.
#pragma once

#include <cstddef>
#include <vector>

#include "dataplane/base/dtype.hpp"

namespace lk {

// `domains` has the rank indices of each domain, in order; `inputs` and `out` hold `count` elements a rank. Every rank
// gets the same `out`. `out` may be one of the inputs.
void reference_all_reduce(DType dtype, RedOp op, std::size_t count,
                          const std::vector<std::vector<std::size_t>>& domains,
                          const std::vector<const std::byte*>& inputs, std::byte* out);

}  // namespace lk

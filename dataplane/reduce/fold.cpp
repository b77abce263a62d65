#include "dataplane/reduce/fold.hpp"

#include <bit>
#include <cstring>

#include "dataplane/base/error.hpp"
#include "dataplane/reduce/half.hpp"

namespace lk {
namespace {

// Elements that are summed at once. A constant, so that the loops below have a known trip count and their sums stay in
// vector registers: 32 f32 are half of the sixteen 128-bit registers of the baseline.
constexpr std::size_t kBlock = 32;

struct F32 {
  using Cell = std::uint32_t;
  static float load(Cell bits) noexcept { return std::bit_cast<float>(bits); }
  static Cell store(float value) noexcept {
    const auto bits = std::bit_cast<Cell>(value);
    return (bits & 0x7fffffffU) > 0x7f800000U ? kQuietNanF32 : bits;
  }
};
struct F16 {
  using Cell = std::uint16_t;
  static float load(Cell bits) noexcept { return f32_from_f16(bits); }
  static Cell store(float value) noexcept { return f16_from_f32(value); }
};
struct Bf16 {
  using Cell = std::uint16_t;
  static float load(Cell bits) noexcept { return f32_from_bf16(bits); }
  static Cell store(float value) noexcept { return bf16_from_f32(value); }
};

// One block: all inputs are read before `out` is written, which is what lets `out` be one of them.
template <typename Type>
inline void fold_block(const FoldInputs& inputs, std::size_t offset, std::size_t elements, float divisor, bool divide,
                       std::byte* out) noexcept {
  using Cell = typename Type::Cell;
  Cell cells[kBlock] = {};
  float sums[kBlock];
  const std::size_t bytes = elements * sizeof(Cell);
  std::memcpy(cells, inputs[0] + offset, bytes);
  for (std::size_t i = 0; i < kBlock; ++i) sums[i] = Type::load(cells[i]);
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    std::memcpy(cells, inputs[k] + offset, bytes);
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] += Type::load(cells[i]);
  }
  if (divide) {
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] /= divisor;
  }
  for (std::size_t i = 0; i < kBlock; ++i) cells[i] = Type::store(sums[i]);
  std::memcpy(out + offset, cells, bytes);
}

template <typename Type>
void fold_portable(const FoldInputs& inputs, std::size_t count, float divisor, bool divide, std::byte* out) noexcept {
  const std::size_t whole = count / kBlock * kBlock;
  std::size_t i = 0;
  for (; i < whole; i += kBlock) {
    fold_block<Type>(inputs, i * sizeof(typename Type::Cell), kBlock, divisor, divide, out);
  }
  if (i < count) fold_block<Type>(inputs, i * sizeof(typename Type::Cell), count - i, divisor, divide, out);
}

using FoldFunction = void (*)(const FoldInputs&, std::size_t, float, bool, std::byte*) noexcept;

// One function a type, in the order of DType. Code for a particular CPU enters here, chosen once at start.
constexpr FoldFunction kFold[] = {fold_portable<F32>, fold_portable<F16>, fold_portable<Bf16>};

}  // namespace

void fold(DType dtype, const FoldInputs& inputs, std::size_t count, FoldRounding rounding, std::byte* out) noexcept {
  LK_CHECK(!inputs.empty() && inputs.size() <= kMaxFoldInputs);
  const bool divide = rounding.kind == FoldRounding::Kind::kFinalAvg;
  LK_CHECK(!divide || rounding.divisor > 0);
  kFold[static_cast<std::size_t>(dtype)](inputs, count, static_cast<float>(rounding.divisor), divide, out);
}

}  // namespace lk

// Element types and reductions that a collective knows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lk {

enum class DType : std::uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2 };
enum class RedOp : std::uint8_t { kSum = 0, kAvg = 1 };

constexpr std::size_t size_of(DType t) noexcept { return t == DType::kF32 ? 4 : 2; }
constexpr const char* name_of(DType t) noexcept {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
  }
  return "unknown";
}
constexpr const char* name_of(RedOp op) noexcept { return op == RedOp::kSum ? "sum" : "avg"; }

}  // namespace lk

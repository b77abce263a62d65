// DataArea: which parts of the lent memory are taken. First fit, neighbours joined again when freed; offsets in bytes,
// always multiples of 64. It only counts: the memory itself is never touched, so a stray write cannot confuse it.
// One thread at a time. May throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "dataplane/base/units.hpp"

namespace lk::client {

class DataArea {
 public:
  explicit DataArea(Bytes size) {
    if (size >= kAlign) free_.emplace(0, size / kAlign * kAlign);
  }

  // Offset of `bytes` (at least one unit) that nobody has; nothing if no hole is large enough.
  std::optional<Bytes> take(Bytes bytes) {
    if (bytes > kMost) return std::nullopt;
    const Bytes need = bytes == 0 ? kAlign : (bytes + kAlign - 1) / kAlign * kAlign;
    for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
      if (hole->second < need) continue;
      const auto [offset, size] = *hole;
      taken_.emplace(offset, need);
      free_.erase(hole);
      if (size > need) free_.emplace(offset + need, size - need);
      return offset;
    }
    return std::nullopt;
  }

  // False when `offset` is not one that take() gave.
  bool give_back(Bytes offset) {
    const auto found = taken_.find(offset);
    if (found == taken_.end()) return false;
    auto hole = free_.emplace(offset, found->second).first;
    taken_.erase(found);
    if (const auto next = std::next(hole); next != free_.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      free_.erase(next);
    }
    if (hole != free_.begin()) {
      const auto previous = std::prev(hole);
      if (previous->first + previous->second == hole->first) {
        previous->second += hole->second;
        free_.erase(hole);
      }
    }
    return true;
  }

 private:
  static constexpr Bytes kAlign = 64;
  static constexpr Bytes kMost = Bytes{1} << 62;

  std::map<Bytes, Bytes> free_, taken_;  // offset → size
};

}  // namespace lk::client

// ReservedMemory: address space that costs memory only where it is touched. For slots and staging buffers, whose
// number is bounded by their grants and whose sum is mostly idle. Set-up: SystemError when refused. Any thread.
#pragma once

#include <cstddef>

#include "dataplane/base/units.hpp"

namespace lk {

class ReservedMemory {
 public:
  ReservedMemory() = default;
  explicit ReservedMemory(Bytes bytes);
  ~ReservedMemory();
  ReservedMemory(ReservedMemory&& o) noexcept : base_(o.base_), bytes_(o.bytes_) { o.base_ = nullptr; }
  ReservedMemory& operator=(ReservedMemory&&) = delete;

  std::byte* data() const noexcept { return base_; }

 private:
  std::byte* base_ = nullptr;
  Bytes bytes_ = 0;
};

}  // namespace lk

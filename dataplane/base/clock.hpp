// Clock: time is passed in. The same engine runs on the machine's clock or on a virtual one that a test steps.
#pragma once

#include <chrono>

#include "dataplane/base/units.hpp"

namespace lk {

// Monotonic time of this machine, in ns since the first call's process-wide origin. Any thread.
class MonotonicClock {
 public:
  MonotonicClock() noexcept : origin_(std::chrono::steady_clock::now()) {}
  Nanos now() const noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - origin_).count();
  }

 private:
  std::chrono::steady_clock::time_point origin_;
};

// Time that only its owner moves. One thread.
class VirtualClock {
 public:
  Nanos now() const noexcept { return now_; }
  void advance_to(Nanos t) noexcept {
    if (t > now_) now_ = t;
  }

 private:
  Nanos now_ = 0;
};

}  // namespace lk

// LinkServer: the emulated time of one direction of one link. It serves bytes in the order in which they were posted,
// at its rate; several links on a path serve a chunk at the same time (cut-through), and the chunk is through when the
// last one is. Positions are bytes since start, so a change of rate needs no queue to be rewritten.
// Never faster than the link: that is what makes "share of the bound" meaningful. Owner: one port's reactor.
#pragma once

#include <algorithm>

#include "dataplane/base/units.hpp"

namespace lk {

class LinkServer {
 public:
  explicit LinkServer(GBps rate = 0) noexcept : rate_(rate) {}

  // Puts `bytes` behind what is queued; `from` is when the first byte can be there. Returns their end position.
  double enqueue(Bytes bytes, Nanos from) noexcept {
    tail_ = std::max(tail_, served(from)) + static_cast<double>(bytes);
    return tail_;
  }
  // When everything up to `position` is served, if the rate stays.
  Nanos time_of(double position) const noexcept {
    const double left = position - base_;
    if (left <= 0) return base_time_;
    if (rate_ <= 0) return kNever;
    const double span = left / rate_;
    if (span > 9e17) return kNever;
    return base_time_ + static_cast<Nanos>(span) + 1;
  }
  void set_rate(GBps rate, Nanos now) noexcept {
    base_ = std::min(served(now), std::max(tail_, base_));
    base_time_ = now;
    rate_ = rate;
  }
  GBps rate() const noexcept { return rate_; }

 private:
  double served(Nanos t) const noexcept { return base_ + rate_ * static_cast<double>(t - base_time_); }

  GBps rate_;
  double base_ = 0;  // position served at base_time_
  Nanos base_time_ = 0;
  double tail_ = 0;  // end of what is queued
};

}  // namespace lk

// LaneTrack: the health of one lane in one own sending direction, as told by the engine's events: down at once, back by
// probation like a link. A stall keeps its weight: the engine sends nothing there while it lasts, and ends it within
// milliseconds. Owner: the control thread. Nothing fails.
#pragma once

#include <cstdint>
#include <string>

#include "control/health/thresholds.hpp"
#include "dataplane/api/event.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class LaneVerdict : std::uint8_t { kUp, kStalled, kDown, kProbation, kOff };

constexpr const char* name_of(LaneVerdict v) noexcept {
  constexpr const char* kNames[] = {"up", "stalled", "down", "probation", "off"};
  return kNames[static_cast<unsigned>(v)];
}

class LaneTrack {
 public:
  // True if the weight is another one now.
  bool take(const Event& event, const Thresholds& thresholds);
  bool advance(const Thresholds& thresholds, Nanos now);
  bool set_off(bool off, Nanos now);
  bool set_factor(double factor);  // the operator's, on top of all else

  Nanos next_time(const Thresholds& thresholds) const noexcept;
  LaneVerdict verdict() const noexcept;
  double weight() const noexcept { return off_ || down_ ? 0.0 : ramp_ * factor_; }
  double factor() const noexcept { return factor_; }
  bool off() const noexcept { return off_; }
  bool down() const noexcept { return down_; }
  Nanos since() const noexcept { return since_; }
  Cause cause() const noexcept { return cause_; }
  std::uint64_t seen_event() const noexcept { return seen_event_; }
  std::uint32_t failures() const noexcept { return failures_; }
  std::string reason() const;

 private:
  bool down_ = false, stalled_ = false, off_ = false;
  Cause cause_{};
  std::uint32_t failures_ = 0;
  double ramp_ = 1, factor_ = 1;
  Nanos since_ = 0;
  Nanos back_at_ = kNever;
  Nanos held_for_ns_ = 0;  // the engine holds it down, flapping
  std::uint64_t seen_event_ = 0;
};

}  // namespace lk

#include "control/health/lane_track.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {

bool LaneTrack::take(const Event& event, const Thresholds& thresholds) {
  const double before = weight();
  seen_event_ = std::max(seen_event_, event.number);
  switch (event.kind) {
    case EventKind::kLaneDown:
      if (event.cause == Cause::kOperator) break;  // told to, by set_off()
      if (!down_) ++failures_;
      down_ = true;
      stalled_ = false;
      cause_ = event.cause;
      since_ = event.at;
      held_for_ns_ = 0;
      back_at_ = kNever;
      break;
    case EventKind::kLaneUp:
      if (!down_) break;
      down_ = stalled_ = false;
      since_ = back_at_ = event.at;
      ramp_ = thresholds.probation_first;
      break;
    case EventKind::kLaneStalled:
      if (down_) break;
      stalled_ = true;
      cause_ = event.cause;
      since_ = event.at;
      break;
    case EventKind::kLaneResumed:
      if (!stalled_) break;
      stalled_ = false;
      since_ = event.at;
      break;
    case EventKind::kLaneFlapping:
      held_for_ns_ = static_cast<Nanos>(event.value);
      break;
    default:
      break;
  }
  return weight() != before;
}

bool LaneTrack::advance(const Thresholds& thresholds, Nanos now) {
  if (back_at_ == kNever || down_) return false;
  const double before = weight();
  ramp_ = thresholds.probation_first;
  for (Nanos t = back_at_ + thresholds.probation_step_ns; t <= now && ramp_ < 1; t += thresholds.probation_step_ns) {
    ramp_ *= 2;
  }
  if (ramp_ >= 1) {
    ramp_ = 1;
    back_at_ = kNever;
    since_ = now;
  }
  return weight() != before;
}

bool LaneTrack::set_off(bool off, Nanos now) {
  if (off == off_) return false;
  off_ = off;
  since_ = now;
  return true;
}

bool LaneTrack::set_factor(double factor) {
  const bool changed = factor != factor_;
  factor_ = factor;
  return changed;
}

Nanos LaneTrack::next_time(const Thresholds& thresholds) const noexcept {
  if (back_at_ == kNever || down_) return kNever;
  Nanos at = back_at_ + thresholds.probation_step_ns;
  for (double ramp = thresholds.probation_first; ramp < ramp_; ramp *= 2) at += thresholds.probation_step_ns;
  return at;
}

LaneVerdict LaneTrack::verdict() const noexcept {
  if (off_) return LaneVerdict::kOff;
  if (down_) return LaneVerdict::kDown;
  if (stalled_) return LaneVerdict::kStalled;
  return ramp_ < 1 ? LaneVerdict::kProbation : LaneVerdict::kUp;
}

std::string LaneTrack::reason() const {
  std::string text;
  switch (verdict()) {
    case LaneVerdict::kOff:
      return "switched off by the operator";
    case LaneVerdict::kDown:
      text = name_of(cause_);
      if (held_for_ns_ > 0) text += fmt::format(", flapping: held down for {} ms", held_for_ns_ / kMilli);
      return text;
    case LaneVerdict::kStalled:
      return "no progress for longer than a chunk can take";
    case LaneVerdict::kProbation:
      text = fmt::format("came back, trusted with {:.3g} of its rate", ramp_);
      break;
    case LaneVerdict::kUp:
      break;
  }
  if (factor_ != 1) text += fmt::format("{}weight {:.3g} set by the operator", text.empty() ? "" : ", ", factor_);
  return text.empty() ? "nothing is wrong" : text;
}

}  // namespace lk

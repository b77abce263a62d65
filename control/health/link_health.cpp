#include "control/health/link_health.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {

bool LinkHealth::take_reading(const LinkReading& reading, Nanos now) {
  if (reading.signal == LinkSignal::kDown) {
    up_readings_since_ = kNever;
    if (down_by_ == DownBy::kNothing) fail(DownBy::kReading, now);
  }
  if (reading.signal == LinkSignal::kUp) {
    if (up_readings_since_ == kNever) up_readings_since_ = now;
    const bool held = now - up_readings_since_ >= thresholds_->recover_hold_ns;
    if (down_by_ != DownBy::kNothing && held) come_back(now);
    for (std::size_t d = 0; d < 2; ++d) take_level(level_[d], reading.fraction[d], now);
    take_errors(reading.errors, now);
  }
  return settle(now);
}

bool LinkHealth::port_down(Nanos now) {
  up_readings_since_ = kNever;
  if (down_by_ == DownBy::kNothing) fail(DownBy::kPortEvent, now);
  return settle(now);
}

bool LinkHealth::port_up(Nanos now) {
  if (down_by_ != DownBy::kNothing) come_back(now);
  return settle(now);
}

bool LinkHealth::set_drained(bool drained, Nanos now) {
  if (drained_ && !drained) back_at_ = now;
  drained_ = drained;
  return settle(now);
}

bool LinkHealth::set_off(bool off, Nanos now) {
  if (off_ && !off) back_at_ = now;
  off_ = off;
  return settle(now);
}

bool LinkHealth::advance(Nanos now) { return settle(now); }

void LinkHealth::fail(DownBy by, Nanos now) {
  decay(now);
  down_by_ = by;
  back_at_ = kNever;
  ++failures_;
  decay_at_ = now + thresholds_->flap_decay_ns;
  recent_failures_.push_back(now);
  while (now - recent_failures_.front() > thresholds_->flap_window_ns) recent_failures_.pop_front();
  if (recent_failures_.size() < thresholds_->flap_limit) return;
  held_for_ns_ = flap_hold_ns_;
  held_until_ = now + held_for_ns_;
  flap_hold_ns_ = std::min(flap_hold_ns_ * 2, thresholds_->flap_hold_most_ns);
}

void LinkHealth::come_back(Nanos now) {
  down_by_ = DownBy::kNothing;
  back_at_ = std::max(now, held_until_);
}

void LinkHealth::take_level(Level& level, double fraction, Nanos now) const {
  double value = std::clamp(fraction, 0.0, 1.0);
  if (value >= thresholds_->degraded_below) value = 1;
  if (value < thresholds_->dead_below) value = 0;
  const double step = thresholds_->weight_step;
  const bool worse = value < level.value && (level.value - value >= step || value <= 0 || level.value >= 1);
  const bool better = value > level.value && (value - level.value >= step || value >= 1);
  if (!better) level.better_since = kNever;
  if (worse) level.value = value;
  if (!better) return;
  if (level.better_since == kNever) {
    level.better_since = now;
    level.better_least = value;
  }
  level.better_least = std::min(level.better_least, value);
  if (now - level.better_since < thresholds_->recover_hold_ns) return;
  level.value = level.better_least;
  level.better_since = kNever;
}

void LinkHealth::take_errors(std::uint64_t errors, Nanos now) {
  const bool usable = errors_known_ && errors >= errors_ && now > errors_at_;
  if (usable) {
    error_rate_per_s_ =
        static_cast<double>(errors - errors_) * static_cast<double>(kSecond) / static_cast<double>(now - errors_at_);
    if (error_rate_per_s_ >= thresholds_->error_rate_per_s) {
      errors_high_ = true;
      errors_low_since_ = kNever;
    } else if (errors_high_) {
      if (errors_low_since_ == kNever) errors_low_since_ = now;
      if (now - errors_low_since_ >= thresholds_->recover_hold_ns) errors_high_ = false;
    }
  }
  errors_known_ = true;
  errors_ = errors;
  errors_at_ = now;
}

void LinkHealth::decay(Nanos now) {
  while (decay_at_ <= now) {
    flap_hold_ns_ = std::max(flap_hold_ns_ / 2, thresholds_->flap_hold_ns);
    decay_at_ = flap_hold_ns_ > thresholds_->flap_hold_ns ? decay_at_ + thresholds_->flap_decay_ns : kNever;
  }
}

// back_at_ may lie ahead: a link that is up again and still held down.
double LinkHealth::ramp_at(Nanos now) const {
  if (back_at_ == kNever) return 1;
  if (now < back_at_) return 0;
  double ramp = thresholds_->probation_first;
  for (Nanos t = back_at_ + thresholds_->probation_step_ns; t <= now && ramp < 1; t += thresholds_->probation_step_ns) {
    ramp *= 2;
  }
  return std::min(ramp, 1.0);
}

LinkState LinkHealth::judge() const {
  if (drained()) return LinkState::kDrained;
  if (down_by_ != DownBy::kNothing || ramp_ <= 0) return LinkState::kDown;
  if (level_[0].value <= 0 && level_[1].value <= 0) return LinkState::kDown;
  if (ramp_ < 1) return LinkState::kProbation;
  if (level_[0].value < 1 || level_[1].value < 1 || errors_high_) return LinkState::kDegraded;
  return LinkState::kUp;
}

bool LinkHealth::settle(Nanos now) {
  decay(now);
  ramp_ = ramp_at(now);
  if (ramp_ >= 1) back_at_ = kNever;
  const LinkState state = judge();
  std::array<double, 2> weight = {0, 0};
  if (state != LinkState::kDown && state != LinkState::kDrained) {
    for (std::size_t d = 0; d < 2; ++d) {
      weight[d] = level_[d].value * ramp_ * (errors_high_ ? thresholds_->error_weight : 1.0);
    }
  }
  const bool changed = state != state_ || weight != weight_;
  if (weight[0] < weight_[0] || weight[1] < weight_[1]) restart_rises(now);
  if (state != state_) since_ = now;
  state_ = state;
  weight_ = weight;
  return changed;
}

// A fall ends everything that was about to raise the weight, whichever of its factors fell.
void LinkHealth::restart_rises(Nanos now) {
  for (Level& level : level_) level.better_since = kNever;
  errors_low_since_ = kNever;
  if (back_at_ == kNever || ramp_ <= 0) return;
  back_at_ = now - steps_taken() * thresholds_->probation_step_ns;
}

// The ramp is a power of two times its first value.
Nanos LinkHealth::steps_taken() const noexcept {
  Nanos steps = 0;
  for (double ramp = thresholds_->probation_first; ramp < ramp_; ramp *= 2) ++steps;
  return steps;
}

Nanos LinkHealth::next_time() const noexcept {
  if (back_at_ == kNever || down_by_ != DownBy::kNothing) return kNever;
  if (ramp_ <= 0) return back_at_;
  return back_at_ + (steps_taken() + 1) * thresholds_->probation_step_ns;
}

std::string LinkHealth::reason() const {
  if (off_) return "switched off by the operator";
  if (drained_) return "drained by the operator";
  if (state_ == LinkState::kDown && held_until_ > since_ && down_by_ == DownBy::kNothing) {
    return fmt::format("flapping: {} failures within {} s, held down for {} s", recent_failures_.size(),
                       thresholds_->flap_window_ns / kSecond, held_for_ns_ / kSecond);
  }
  if (down_by_ == DownBy::kPortEvent) return "port event";
  if (down_by_ == DownBy::kReading) return "its monitor reads: down";
  std::string text;
  const auto add = [&](std::string part) { text += (text.empty() ? "" : ", ") + std::move(part); };
  if (ramp_ < 1) add(fmt::format("came back, trusted with {:.3g} of its rate until it has proved itself", ramp_));
  if (level_[0].value == level_[1].value) {
    if (level_[0].value < 1) add(fmt::format("signals {:.3g} of its nominal rate", level_[0].value));
  } else {
    add(fmt::format("signals {:.3g} of its nominal rate forward and {:.3g} backward", level_[0].value,
                    level_[1].value));
  }
  if (errors_high_) {
    add(fmt::format("{:.3g} errors/s, {:.3g} are allowed", error_rate_per_s_, thresholds_->error_rate_per_s));
  }
  return text.empty() ? "nothing is wrong" : text;
}

}  // namespace lk

// Thresholds: every number by which the control plane judges links, lanes, peers and plans. One table of rows (name,
// unit, range, default) gives parsing, validation and the listing of configs/thresholds.toml; that file gives each row
// its value and where the value comes from. Read once at set-up, then a value that is copied. Any thread.
// Fails: InputError "FILE:LINE: ROW: …, expected …" for an unknown row or key, a wrong unit, a value out of range, a
// row that is missing. Units: _ns here; the file says ms, fraction, 1/s or count, and a row with another unit is
// refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dataplane/base/units.hpp"

namespace lk {

struct Thresholds {
  // Links: health.
  Nanos reading_interval_ns = 100 * kMilli;
  double degraded_below = 0.95;
  double dead_below = 0.01;
  double weight_step = 0.05;
  Nanos recover_hold_ns = 500 * kMilli;
  double error_rate_per_s = 100;
  double error_weight = 0.5;
  double probation_first = 0.125;
  Nanos probation_step_ns = 400 * kMilli;
  unsigned flap_limit = 3;
  Nanos flap_window_ns = 10 * kSecond;
  Nanos flap_hold_ns = 2 * kSecond;
  Nanos flap_hold_most_ns = 60 * kSecond;
  Nanos flap_decay_ns = 60 * kSecond;
  // Routes and plans.
  double route_gain_least = 0.01;
  Nanos route_interval_ns = 250 * kMilli;
  double plan_gain_least = 0.02;
  Nanos plan_interval_ns = 500 * kMilli;
  Nanos plan_deadline_ns = kSecond;
  // Peers and groups.
  Nanos heartbeat_ns = 50 * kMilli;
  Nanos suspect_ns = 250 * kMilli;
  Nanos dead_ns = 2 * kSecond;
  Nanos retransmit_ns = 20 * kMilli;
  Nanos group_deadline_ns = 5 * kSecond;
  Nanos shrink_deadline_ns = 5 * kSecond;
};

struct ThresholdRow {
  const char* name;
  const char* unit;  // ms, fraction, 1/s, count
  double least, most;
};

std::span<const ThresholdRow> threshold_rows() noexcept;
double threshold_value(const Thresholds& thresholds, std::size_t row) noexcept;  // in the row's unit

Thresholds parse_thresholds(std::string_view text, const std::string& file);
Thresholds load_thresholds(const std::string& path);

}  // namespace lk

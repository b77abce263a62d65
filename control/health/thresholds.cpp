#include "control/health/thresholds.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>
#include <variant>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

using Field = std::variant<double Thresholds::*, Nanos Thresholds::*, unsigned Thresholds::*>;

constexpr std::size_t kRowCount = 25;

constexpr std::array<ThresholdRow, kRowCount> kRows = {{
    {"reading_interval", "ms", 1, 10'000},  {"degraded_below", "fraction", 0.05, 1},
    {"dead_below", "fraction", 0, 0.5},     {"weight_step", "fraction", 0.001, 0.5},
    {"recover_hold", "ms", 0, 60'000},      {"error_rate", "1/s", 0.001, 1e9},
    {"error_weight", "fraction", 0.01, 1},  {"probation_first", "fraction", 0.001, 1},
    {"probation_step", "ms", 1, 60'000},    {"flap_limit", "count", 2, 1'000},
    {"flap_window", "ms", 1, 3'600'000},    {"flap_hold", "ms", 1, 3'600'000},
    {"flap_hold_most", "ms", 1, 3'600'000}, {"flap_decay", "ms", 1, 3'600'000},
    {"route_gain_least", "fraction", 0, 1}, {"route_interval", "ms", 0, 60'000},
    {"plan_gain_least", "fraction", 0, 1},  {"plan_interval", "ms", 0, 3'600'000},
    {"plan_deadline", "ms", 1, 60'000},     {"heartbeat", "ms", 1, 10'000},
    {"suspect", "ms", 1, 60'000},           {"dead", "ms", 1, 600'000},
    {"retransmit", "ms", 1, 10'000},        {"group_deadline", "ms", 1, 600'000},
    {"shrink_deadline", "ms", 1, 600'000},
}};

// In the order of kRows.
const std::array<Field, kRowCount> kFields = {
    &Thresholds::reading_interval_ns, &Thresholds::degraded_below,
    &Thresholds::dead_below,          &Thresholds::weight_step,
    &Thresholds::recover_hold_ns,     &Thresholds::error_rate_per_s,
    &Thresholds::error_weight,        &Thresholds::probation_first,
    &Thresholds::probation_step_ns,   &Thresholds::flap_limit,
    &Thresholds::flap_window_ns,      &Thresholds::flap_hold_ns,
    &Thresholds::flap_hold_most_ns,   &Thresholds::flap_decay_ns,
    &Thresholds::route_gain_least,    &Thresholds::route_interval_ns,
    &Thresholds::plan_gain_least,     &Thresholds::plan_interval_ns,
    &Thresholds::plan_deadline_ns,    &Thresholds::heartbeat_ns,
    &Thresholds::suspect_ns,          &Thresholds::dead_ns,
    &Thresholds::retransmit_ns,       &Thresholds::group_deadline_ns,
    &Thresholds::shrink_deadline_ns,
};

struct Place {
  const std::string& file;
  [[noreturn]] void fail(const toml::source_region& at, std::string_view what) const {
    throw InputError(fmt::format("{}:{}: {}", file, at.begin.line, what));
  }
};

std::string text_of(const Place& place, const toml::table& row, const char* name, const char* key) {
  const toml::node* node = row.get(key);
  if (node == nullptr) place.fail(row.source(), fmt::format("{}: {} is missing, expected a text", name, key));
  const auto text = node->value_exact<std::string>();
  if (!text || text->empty()) place.fail(node->source(), fmt::format("{}: {}: expected a text", name, key));
  return *text;
}

void check_keys(const Place& place, const toml::table& row, const char* name) {
  for (const auto& [key, node] : row) {
    if (key == "value" || key == "unit" || key == "source") continue;
    place.fail(key.source(), fmt::format("{}: unknown key {}, expected value, unit and source", name, key.str()));
  }
}

double value_of(const Place& place, const toml::table& row, const ThresholdRow& spec) {
  check_keys(place, row, spec.name);
  const std::string unit = text_of(place, row, spec.name, "unit");
  if (unit != spec.unit) {
    place.fail(row.get("unit")->source(),
               fmt::format("{}: unit is \"{}\", expected \"{}\"", spec.name, unit, spec.unit));
  }
  text_of(place, row, spec.name, "source");
  const toml::node* node = row.get("value");
  const std::string expected = fmt::format("expected a number from {} to {} {}", spec.least, spec.most, spec.unit);
  if (node == nullptr) place.fail(row.source(), fmt::format("{}: value is missing, {}", spec.name, expected));
  const double value = node->is_number() ? node->value_or(std::nan("")) : std::nan("");
  const bool whole = std::string_view(spec.unit) != "count" || node->is_integer();
  if (!whole || !(value >= spec.least && value <= spec.most)) {
    place.fail(node->source(), fmt::format("{}: value: {}", spec.name, expected));
  }
  return value;
}

void set(Thresholds& thresholds, const Field& field, double value) {
  if (const auto* fraction = std::get_if<double Thresholds::*>(&field)) thresholds.** fraction = value;
  if (const auto* span = std::get_if<Nanos Thresholds::*>(&field)) {
    thresholds.** span = std::llround(value * static_cast<double>(kMilli));
  }
  if (const auto* count = std::get_if<unsigned Thresholds::*>(&field))
    thresholds.** count = static_cast<unsigned>(value);
}

void check_order(const Place& place, const toml::table& root, const Thresholds& t) {
  if (t.heartbeat_ns >= t.suspect_ns || t.suspect_ns >= t.dead_ns) {
    place.fail(root.get("suspect")->source(), "suspect: expected heartbeat < suspect < dead");
  }
  if (t.flap_hold_ns > t.flap_hold_most_ns) {
    place.fail(root.get("flap_hold")->source(), "flap_hold: expected at most flap_hold_most");
  }
}

}  // namespace

std::span<const ThresholdRow> threshold_rows() noexcept { return kRows; }

double threshold_value(const Thresholds& thresholds, std::size_t row) noexcept {
  const Field& field = kFields[row];
  if (const auto* fraction = std::get_if<double Thresholds::*>(&field)) return thresholds.**fraction;
  if (const auto* span = std::get_if<Nanos Thresholds::*>(&field)) {
    return static_cast<double>(thresholds.**span) / static_cast<double>(kMilli);
  }
  return thresholds.**std::get_if<unsigned Thresholds::*>(&field);
}

Thresholds parse_thresholds(std::string_view text, const std::string& file) {
  toml::table root;
  const Place place{file};
  try {
    root = toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    place.fail(e.source(), e.description());
  }
  Thresholds thresholds;
  for (const auto& [key, node] : root) {
    bool known = false;
    for (const ThresholdRow& row : kRows) known = known || key == row.name;
    if (!known) place.fail(key.source(), fmt::format("unknown row {}", key.str()));
  }
  for (std::size_t i = 0; i < kRowCount; ++i) {
    const toml::node* node = root.get(kRows[i].name);
    if (node == nullptr)
      throw InputError(fmt::format("{}: row {} is missing, expected [{}]", file, kRows[i].name, kRows[i].name));
    const toml::table* row = node->as_table();
    if (row == nullptr)
      place.fail(node->source(), fmt::format("{}: expected a row [{}]", kRows[i].name, kRows[i].name));
    set(thresholds, kFields[i], value_of(place, *row, kRows[i]));
  }
  check_order(place, root, thresholds);
  return thresholds;
}

Thresholds load_thresholds(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError(fmt::format("{}: cannot be read, expected the table of thresholds", path));
  std::ostringstream text;
  text << in.rdbuf();
  return parse_thresholds(text.str(), path);
}

}  // namespace lk

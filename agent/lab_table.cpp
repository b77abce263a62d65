#include "agent/lab_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/config_value.hpp"

namespace lk {
namespace {

constexpr std::size_t kColumns = 8;
struct Column {
  const char* heading;
  std::size_t width;
  bool right;
};
constexpr std::array<Column, kColumns> kTable{{{"result", 6, false},
                                               {"scenario", 26, false},
                                               {"profile", 11, false},
                                               {"what broke", 24, false},
                                               {"carried by", 18, false},
                                               {"wrong bits", 5, true},
                                               {"of bound", 7, true},
                                               {"failover p99", 9, true}}};
using Cells = std::array<std::vector<std::string>, kColumns>;  // lines of each cell

// At spaces, or in the middle of a word that is longer than the line.
std::vector<std::string> wrapped(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t at = text.rfind(' ', width);
    if (at == std::string::npos || at == 0) at = width;
    lines.push_back(text.substr(0, at));
    text.erase(0, text[at] == ' ' ? at + 1 : at);
  }
  lines.push_back(text);
  return lines;
}

std::string line_of(const Cells& cells, std::size_t line) {
  std::string out;
  for (std::size_t c = 0; c < kColumns; ++c) {
    const std::string text = line < cells[c].size() ? cells[c][line] : "";
    const std::string space(kTable[c].width - text.size(), ' ');
    out += (c == 0 ? "" : "  ") + (kTable[c].right ? space + text : text + space);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string text_of(const std::array<std::string, kColumns>& texts) {
  Cells cells;
  std::size_t lines = 0;
  for (std::size_t c = 0; c < kColumns; ++c) {
    cells[c] = wrapped(texts[c], kTable[c].width);
    lines = std::max(lines, cells[c].size());
  }
  std::string out;
  for (std::size_t i = 0; i < lines; ++i) out += line_of(cells, i);
  return out;
}

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

// One digit after the point of the largest unit that fits: 6.1ms, 48.3ms, 5us.
std::string short_span(Nanos ns) {
  for (const Nanos unit : {kSecond, kMilli, kMicro}) {
    if (ns >= unit) return span_text((ns + unit / 20) / (unit / 10) * (unit / 10));
  }
  return span_text(ns);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

bool all_right(const std::vector<LabRow>& rows) noexcept {
  return std::all_of(rows.begin(), rows.end(), [](const LabRow& r) { return r.why.empty(); });
}

std::string lab_table(const std::vector<LabRow>& rows) {
  std::array<std::string, kColumns> texts;
  for (std::size_t c = 0; c < kColumns; ++c) texts[c] = kTable[c].heading;
  std::string out = text_of(texts);
  for (const LabRow& r : rows) {
    out += text_of({r.why.empty() ? "right" : "WRONG", r.name, fmt::format("{} x {}", r.nodes, r.profile), r.fault,
                    r.rung.empty() ? "-" : r.rung, std::to_string(r.wrong_bits),
                    r.bound_fraction ? percent(*r.bound_fraction) : "-",
                    r.failover_p99_ns ? short_span(*r.failover_p99_ns) : "-"});
  }
  for (const LabRow& r : rows) {
    if (!r.why.empty()) out += fmt::format("WRONG: {} ({}): {}\n", r.name, r.profile, r.why);
  }
  return out;
}

nlohmann::ordered_json lab_json(const std::vector<LabRow>& rows, std::size_t nodes, std::size_t gpus_per_node) {
  LabRow sum;
  nlohmann::ordered_json scenarios = nlohmann::ordered_json::array();
  for (const LabRow& r : rows) {
    sum.ops += r.ops;
    sum.payload_bytes += r.payload_bytes;
    sum.wrong_bits += r.wrong_bits;
    sum.lost_ops += r.lost_ops;
    sum.hung_ops += r.hung_ops;
    scenarios.push_back({{"name", r.name},
                         {"profile", r.profile},
                         {"fault", r.fault},
                         {"rung", r.rung.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.rung)},
                         {"bound_fraction", or_null(r.bound_fraction)},
                         {"failover_p99_ns", or_null(r.failover_p99_ns)},
                         {"clock", r.simulated ? "virtual" : "real"},
                         {"wrong_bits", r.wrong_bits},
                         {"ok", r.why.empty()}});
  }
  return {{"ok", all_right(rows)},
          {"nodes", nodes},
          {"gpus_per_node", gpus_per_node},
          {"ops", sum.ops},
          {"payload_bytes", sum.payload_bytes},
          {"wrong_bits", sum.wrong_bits},
          {"lost_ops", sum.lost_ops},
          {"hung_ops", sum.hung_ops},
          {"scenarios", scenarios}};
}

}  // namespace lk

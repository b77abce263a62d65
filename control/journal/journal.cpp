#include "control/journal/journal.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lk {

const char* name_of(JournalLevel level) noexcept {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<unsigned>(level)];
}

std::string seconds_text(Nanos at) { return fmt::format("{}.{:03} s", at / kSecond, at % kSecond / kMilli); }

void Journal::add(Nanos now, JournalLevel level, std::string text) {
  if (entries_.size() >= most_) entries_.pop_front();
  entries_.push_back({++last_number_, now, level, std::move(text)});
}

std::vector<std::string> Journal::lines(std::uint64_t after) const {
  std::vector<std::string> out;
  for (const JournalEntry& e : entries_) {
    if (e.number > after)
      out.push_back(fmt::format("{} {} {}: {}", seconds_text(e.at_ns), node_, name_of(e.level), e.text));
  }
  return out;
}

nlohmann::json Journal::to_json(std::uint64_t after) const {
  nlohmann::json out = nlohmann::json::array();
  for (const JournalEntry& e : entries_) {
    if (e.number <= after) continue;
    out.push_back(
        {{"number", e.number}, {"at_ns", e.at_ns}, {"node", node_}, {"level", name_of(e.level)}, {"text", e.text}});
  }
  return out;
}

}  // namespace lk

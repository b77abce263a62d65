// Journal: what the control plane saw and did, one line each, newest kept: what broke, since when, what was done about
// it. Bounded: the oldest line makes room. Owner: the control thread. Nothing fails.
// Times are ns of the clock that was passed in; a text line shows seconds.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class JournalLevel : std::uint8_t { kInfo, kWarning, kError };

const char* name_of(JournalLevel level) noexcept;

struct JournalEntry {
  std::uint64_t number = 0;  // from 1, without gaps
  Nanos at_ns = 0;
  JournalLevel level{};
  std::string text;
};

class Journal {
 public:
  explicit Journal(std::string node, std::size_t most = 4096) : node_(std::move(node)), most_(most) {}

  void add(Nanos now, JournalLevel level, std::string text);

  const std::deque<JournalEntry>& entries() const noexcept { return entries_; }
  std::uint64_t last_number() const noexcept { return last_number_; }
  // Entries with a number above `after`, as text lines and as an array of objects.
  std::vector<std::string> lines(std::uint64_t after = 0) const;
  nlohmann::json to_json(std::uint64_t after = 0) const;

 private:
  std::string node_;
  std::size_t most_;
  std::deque<JournalEntry> entries_;
  std::uint64_t last_number_ = 0;
};

// "12.345 s", the way in which every line of the journal names a time.
std::string seconds_text(Nanos at);

}  // namespace lk

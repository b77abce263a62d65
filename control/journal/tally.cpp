#include "control/journal/tally.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {
namespace {

constexpr Nanos kQuiet = kSecond;  // between lines of one kind that may come in streams

bool streams(EventKind kind) {
  return kind == EventKind::kLaneStalled || kind == EventKind::kLaneResumed || kind == EventKind::kChunkCorrupt ||
         kind == EventKind::kChunkStale || kind == EventKind::kOpFailed || kind == EventKind::kRungStep;
}

bool told(EventKind kind) {
  switch (kind) {
    case EventKind::kLaneDown:
    case EventKind::kLaneUp:
    case EventKind::kLaneFlapping:
    case EventKind::kLaneStalled:
    case EventKind::kRungStep:
    case EventKind::kChunkCorrupt:
    case EventKind::kChunkStale:
    case EventKind::kOpFailed:
    case EventKind::kMismatch:
      return true;
    default:
      return false;
  }
}

}  // namespace

void EventTally::add(const Event& event) {
  if (event.kind == EventKind::kChunkResent) {
    ++resent_chunks_;
    longest_failover_ns_ = std::max(longest_failover_ns_, static_cast<Nanos>(event.value));
  }
  if (!told(event.kind)) return;
  const bool step = event.kind == EventKind::kRungStep;
  Sum& sum = sums_[{event.kind, event.cause, step ? event.value : 0}];
  if (sum.count++ == 0) sum.first = event;
}

std::string EventTally::lane_text(const Event& e) const {
  if (e.lane >= cluster_.lanes.size()) return "an unknown lane";
  return fmt::format("{} {}", cluster_.lanes[e.lane].name, e.direction == Direction::kForward ? "forward" : "backward");
}

std::string EventTally::line(const Key& key, const Sum& sum) const {
  const Event& e = sum.first;
  const std::string more = sum.count > 1 ? fmt::format(" and {} more", sum.count - 1) : "";
  switch (key.kind) {
    case EventKind::kLaneDown:
      return fmt::format("lane {}{} down ({}) since {}", lane_text(e), more, name_of(e.cause), seconds_text(e.at));
    case EventKind::kLaneUp:
      return fmt::format("lane {}{} moves data again", lane_text(e), more);
    case EventKind::kLaneFlapping:
      return fmt::format("lane {}{} fails again and again, held down for {} ms", lane_text(e), more,
                         static_cast<Nanos>(e.value) / kMilli);
    case EventKind::kLaneStalled:
      return fmt::format("lane {}{} stalls", lane_text(e), more);
    case EventKind::kRungStep:
      return fmt::format("traffic of {} trunk{} moved from rung {} to rung {}, now over {}", sum.count,
                         sum.count == 1 ? "" : "s", e.value >> 8, e.value & 0xff, lane_text(e));
    case EventKind::kChunkCorrupt:
      return fmt::format("lane {} delivered {} corrupt chunks", lane_text(e), sum.count);
    case EventKind::kChunkStale:
      return fmt::format("{} late writes refused, first over {}", sum.count, lane_text(e));
    case EventKind::kOpFailed:
      return fmt::format("op {} of group {}{} failed: {}", e.op, e.group, more, name_of(e.status));
    default:
      return fmt::format("op {} of group {}: ranks {} and {} disagree on what it is", e.op, e.group,
                         (e.value >> 16) & 0xffff, e.value & 0xffff);
  }
}

void EventTally::write(Journal& journal, Nanos now) {
  for (auto it = sums_.begin(); it != sums_.end();) {
    const EventKind kind = it->first.kind;
    if (streams(kind) && now < quiet_until_[kind]) {
      ++it;
      continue;
    }
    const bool good = kind == EventKind::kLaneUp;
    const bool bad = kind == EventKind::kOpFailed || kind == EventKind::kMismatch;
    const JournalLevel level = bad ? JournalLevel::kError : good ? JournalLevel::kInfo : JournalLevel::kWarning;
    journal.add(now, level, line(it->first, it->second));
    it = sums_.erase(it);
    // Lines of the same turn belong together; the next turn's wait.
    const bool last = it == sums_.end() || it->first.kind != kind;
    if (last) quiet_until_[kind] = now + kQuiet;
  }
}

Nanos EventTally::next_time() const noexcept {
  Nanos next = kNever;
  for (const auto& [key, sum] : sums_) {
    const auto it = quiet_until_.find(key.kind);
    next = std::min(next, it == quiet_until_.end() ? 0 : it->second);
  }
  return next;
}

}  // namespace lk

// Snapshot: an engine's own account of itself, taken between two turns on request, for `lanectl show` and the monitors.
// The control plane owns the memory and lends it with kTakeSnapshot; vectors are sized by control before.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/counters.hpp"
#include "dataplane/base/ids.hpp"
#include "dataplane/base/status.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class LaneState : std::uint8_t { kUp, kStalled, kFencing, kDown, kProbing, kOff };

constexpr const char* name_of(LaneState s) noexcept {
  constexpr const char* kNames[] = {"up", "stalled", "fencing", "down", "probing", "off"};
  return kNames[static_cast<unsigned>(s)];
}

// One lane in one sending direction, as seen by the sender.
struct LaneSnapshot {
  LaneId lane = kNoId;
  std::uint8_t direction = 0;
  LaneState state{};
  std::uint32_t epoch = 0;
  GBps rate_GBps = 0, measured_GBps = 0;
  Bytes queued_bytes = 0;  // posted and not acknowledged
  Bytes sent_bytes = 0;    // payload acknowledged since start
  std::uint64_t chunks = 0, resent = 0, failures = 0;
  Nanos down_since = 0;
  std::uint64_t last_event = 0;
};

struct OpSnapshot {
  GroupId group = 0;
  OpNumber number = 0;
  Bytes bytes = 0;
  std::uint32_t chunks = 0, placed_least = 0;  // of the slowest local rank
  Nanos age_ns = 0;
  Status status{};
};

struct Snapshot {
  Nanos at = 0;
  NodeId node = 0;
  std::vector<LaneSnapshot> lanes;  // this node's sending sides
  std::vector<OpSnapshot> ops;
  Counters counters{};
  std::uint32_t slots_total = 0, slots_granted = 0, slots_held = 0, slots_quarantined = 0;
};

}  // namespace lk

// FaultRow: one thing that is wrong with one link, lane or node from `at_ns` to `until_ns`, as a value that fits a ring
// between the control thread and a reactor. agent/fault_plan.hpp makes rows from what a person writes; a FaultWire
// (fault.hpp) gets all of them and applies what is its own. Times are those of the wire's clock, in ns.
#pragma once

#include <cstdint>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class FaultKind : std::uint8_t {
  kCut,        // nothing passes; requests end with an error; a port event if both directions are cut and not silent
  kDegrade,    // links only: `rate` of the nominal rate
  kDelay,      // delay_ns longer
  kStall,      // accepted, never completes, says nothing
  kDrop,       // the sender is told that all is well, the receiver never sees it
  kCorrupt,    // one bit flips; where the transport has a check of its own the chunk comes later instead
  kDuplicate,  // arrives twice
  kLate,       // is written and told delay_ns after it should have been
  kBad,        // the request ends with an error
  kFlap,       // a cut that comes and goes: down for `rate` of each period_ns, down first
  kPlane,      // links only: `rate` of the nominal rate is gone; several of them add up
  kClear,      // takes back the rows of `fault`; 0: all
};

constexpr const char* name_of(FaultKind k) noexcept {
  constexpr const char* kNames[] = {"cut",       "degrade", "delay", "stall", "drop",  "corrupt",
                                    "duplicate", "late",    "bad",   "flap",  "plane", "clear"};
  return kNames[static_cast<unsigned>(k)];
}

enum class FaultTarget : std::uint8_t {
  kLink,
  kLane,
  kNode,     // everything that enters or leaves the node's GPUs
  kControl,  // the control channel between nodes `id` and `peer`: no wire's business
};

inline constexpr std::uint8_t kForwardOnly = 1, kBackwardOnly = 2, kBothDirections = 3;  // bits by Direction

struct FaultRow {
  std::uint32_t fault = 0;  // the fault it belongs to; one fault may need several rows
  FaultKind kind{};
  FaultTarget target{};
  std::uint8_t directions = kBothDirections;
  std::uint8_t silent = 0;   // a cut without port event
  std::uint32_t id = kNoId;  // link, lane or node
  std::uint32_t peer = kNoId;
  double rate = 1;  // a probability, or a share of the rate or of the period
  Nanos delay_ns = 0;
  Nanos period_ns = 0;
  Nanos at_ns = 0;
  Nanos until_ns = kNever;
  std::uint64_t seed = 0;
};
static_assert(sizeof(FaultRow) % 4 == 0);

// Is the row's fault there at `t`?
constexpr bool is_active(const FaultRow& row, Nanos t) noexcept {
  if (t < row.at_ns || t >= row.until_ns) return false;
  if (row.kind != FaultKind::kFlap || row.period_ns <= 0) return true;
  const Nanos phase = (t - row.at_ns) % row.period_ns;
  return static_cast<double>(phase) < row.rate * static_cast<double>(row.period_ns);
}

// The first time after `t` at which it comes or goes; kNever if it stays as it is.
constexpr Nanos next_edge(const FaultRow& row, Nanos t) noexcept {
  if (t < row.at_ns) return row.at_ns;
  if (t >= row.until_ns) return kNever;
  if (row.kind != FaultKind::kFlap || row.period_ns <= 0) return row.until_ns;
  const Nanos begin = t - (t - row.at_ns) % row.period_ns;
  const double down = row.rate * static_cast<double>(row.period_ns);
  const Nanos up = begin + static_cast<Nanos>(down) + (static_cast<double>(static_cast<Nanos>(down)) < down ? 1 : 0);
  const Nanos next = t < up ? up : begin + row.period_ns;
  return next < row.until_ns ? next : row.until_ns;
}

}  // namespace lk

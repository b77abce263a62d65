// Counters of one engine: one enum, one table of names and help. Single writer (the reactor); read from snapshots.
// Grammar: subject, qualifier or cause, past participle, unit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lk {

#define LK_COUNTERS(X)                                                                \
  X(op_entered, "ops entered by local ranks")                                         \
  X(op_completed, "ops completed for local ranks")                                    \
  X(op_failed, "ops ended with an error for local ranks")                             \
  X(chunk_posted, "chunk work requests posted")                                       \
  X(chunk_acknowledged, "chunks retired by the receiver's acknowledgement")           \
  X(chunk_committed, "chunks entered in the ledger")                                  \
  X(chunk_duplicate_dropped, "chunks that the ledger had already")                    \
  X(chunk_stale_rejected, "chunks with an old slot generation, epoch or incarnation") \
  X(chunk_corrupt_rejected, "chunks whose checksum was wrong")                        \
  X(chunk_unknown_rejected, "chunks of no op or group that is open here")             \
  X(chunk_resent, "chunks sent again after a lane failed")                            \
  X(chunk_hedged, "late chunks also sent over another lane")                          \
  X(payload_sent_bytes, "payload bytes acknowledged")                                 \
  X(relay_refused, "posts refused because no relay buffer was free")                  \
  X(lane_failed, "lanes taken down")                                                  \
  X(lane_stalled, "lanes suspected")                                                  \
  X(fence_completed, "fences completed")                                              \
  X(lane_returned, "lanes proved and taken back")                                     \
  X(signal_sent, "small messages sent")                                               \
  X(signal_lost, "small messages that found no live lane")                            \
  X(slot_quarantined, "landing slots put in quarantine")                              \
  X(slot_reclaimed, "landing slots taken out of quarantine by a fence")               \
  X(credit_repeated, "credits advertised again")                                      \
  X(event_lost, "events dropped because the control plane's ring was full")           \
  X(result_delayed, "op results that waited for room in the result ring")             \
  X(turn_busy, "turns that did work")                                                 \
  X(turn_idle, "turns that found none")

enum class Counter : std::uint16_t {
#define X(name, help) name,
  LK_COUNTERS(X)
#undef X
      kCount
};

inline constexpr std::size_t kCounterCount = static_cast<std::size_t>(Counter::kCount);

struct CounterRow {
  const char* name;
  const char* help;
};

inline constexpr std::array<CounterRow, kCounterCount> kCounterTable = {{
#define X(name, help) {#name, help},
    LK_COUNTERS(X)
#undef X
}};

struct Counters {
  std::array<std::uint64_t, kCounterCount> value{};
  std::uint64_t& operator[](Counter c) noexcept { return value[static_cast<std::size_t>(c)]; }
  std::uint64_t operator[](Counter c) const noexcept { return value[static_cast<std::size_t>(c)]; }
};

}  // namespace lk

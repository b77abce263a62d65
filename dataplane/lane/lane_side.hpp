// LaneSide: one lane in one sending direction, as its sender keeps it. An engine has a side for every lane direction
// that starts at one of its node's GPUs.
//
// States (api/snapshot.hpp) and who moves them:
//   up → stalled         no progress for longer than a chunk can take (path/stall.cpp); → up when a chunk moves
//   up, stalled → fencing  hard error, fence asked by the peer, or suspicion proved (path/fence.cpp)
//   fencing → down       both ends have reset and said so; slots are out of quarantine
//   down → probing       a probe was sent (path/probe.cpp); → up when data came back, → down when it did not
//   any → off, off → down  the operator
// Inside a node each direction is a lane of its own (there is no queue pair), so a fence is a reset.
// Owner: the engine's reactor.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/api/event.hpp"
#include "dataplane/api/snapshot.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

inline constexpr unsigned kLaneRequests =
    40;  // requests of one side not settled, and missing slots; a Fence names them all

inline constexpr std::uint32_t kSilentSignals = 8;  // so many without proof: the lane may be swallowing them
inline constexpr Nanos kProofLasts = 150 * kMilli;

struct MissingSlot {
  std::uint32_t word = 0;  // (slot << 16) | generation
  Nanos since = 0;
};

struct LaneSide {
  LaneId lane = kNoId;
  Direction direction{};
  bool ours = false;  // starts at a local GPU
  bool far = false;   // ends on another node
  bool addressable = false;
  LaneState state = LaneState::kUp;
  NodeId peer = kNoId16;  // node at the other end
  EndpointId from = 0, to = 0;
  EndpointId relay = kNoId16;  // GPU of this node whose relay buffer a chunk passes
  std::uint16_t rung = 0;
  LaneKind kind{};
  std::uint32_t trunk = kNoId;  // index into the engine's trunks
  Nanos latency_ns = 0;
  GBps nominal_GBps = 0;

  // Route: from the table in force; `fresh` says that the table has seen this side's last event.
  GBps rate_GBps = 0, standby_GBps = 0;
  std::uint64_t last_event = 0;
  bool fresh = true;

  double turn_bytes = 0;  // posted since the table came, what its weight has had of its turn

  std::uint32_t epoch = 1;
  Bytes queued_bytes = 0;  // payload of requests that are not settled
  unsigned request_count = 0;
  std::uint32_t head = kNoId, tail = kNoId;  // requests in the order of their posting
  Nanos progress_at = 0;                     // last time that a chunk of this side moved, or the queue began
  GBps measured_GBps = 0;                    // moving average while busy
  // Proof that what we send over this lane arrives: acknowledged chunks, and the other end's count of our small
  // messages.
  Nanos proved_at = -kSecond;
  std::uint32_t unanswered = 0;      // small messages sent since
  std::uint32_t signals_heard = 0;   // small messages that came over it
  std::uint32_t signals_echoed = 0;  // of ours, as the other end last told

  // Failure and return.
  Nanos failed_at = 0, stalled_at = 0;
  bool orphan_reported = false;
  bool link_down = false;  // a port event said so; probing waits for the other event, or its turn
  bool fence_acknowledged = false;
  Nanos fence_retry_at = 0;
  std::array<std::uint32_t, kLaneRequests> fence_slots{};  // (slot << 16) | generation, in quarantine
  std::array<std::uint64_t, kLaneRequests> fence_tokens{};
  unsigned fence_count = 0;
  std::vector<MissingSlot> missing;  // of settled requests that may still be written (path/loss.cpp), oldest first
  std::size_t held_requests() const noexcept { return request_count + missing.size(); }  // of kLaneRequests
  Nanos probe_at = kNever;
  Nanos probe_wait_ns = 0;
  Nanos probe_patience_ns = 0;  // how long the next probe may take at least
  Nanos probe_deadline = kNever;
  Nanos probe_sent_at = 0;
  Nanos round_trip_ns = 0;  // as the last probe found it
  unsigned recent_failures = 0;
  Nanos first_recent_failure = 0;
  Nanos flap_hold_ns = 0;  // the last one
  Nanos held_until = 0;    // flapping: not probed before that, unless it is the last way

  // For show.
  std::uint64_t chunks = 0, resent = 0, failures = 0;
  Bytes sent_bytes = 0;
};

}  // namespace lk

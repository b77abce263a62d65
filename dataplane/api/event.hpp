// Event: what a data path tells the control plane, one value a fact, numbered by its engine from 1.
#pragma once

#include <cstdint>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/status.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class EventKind : std::uint8_t {
  kLinkDown,
  kLinkUp,    // port event; link
  kLaneDown,  // hard error or fence by the peer; lane, direction, cause, peer
  kLaneStalled,
  kLaneResumed,  // suspicion began, ended by progress
  kFenceStarted,
  kFenceDone,     // lane, value: slots taken out of quarantine
  kLaneUp,        // proved by moving data after having been down
  kLaneFlapping,  // value: held down for so many ns
  kRungStep,      // a trunk's traffic moved to another rung: lane now used, value = (from << 8) | to
  kChunkResent,   // value: ns from the lane's failure to the chunk's post on another lane; hedge if cause kStall
  kChunkCorrupt,  // CRC said no; lane
  kChunkStale,    // write with an old generation, epoch or incarnation: refused and counted
  kOpFailed,      // group, op, status
  kMismatch,      // group, op, ranks in value: (mine << 16) | theirs
  kPlanAdopted,   // group, value = version
  kHoldTaken,     // group, op: held from; value: highest op entered
  kPlanReleased,
  kRoutesReleased,
  kGroupReleased,  // pointer: the old object, now control's to free
  kPeerRestarted,  // peer heard with a new incarnation; value
  kSnapshotReady,  // pointer
};

enum class Cause : std::uint8_t {
  kNone,
  kPortEvent,
  kBadCompletion,
  kStall,
  kFencedByPeer,
  kCorrupt,
  kPeerDead,
  kOperator,
  kProbeFailed,
  kRelayRefused,
};

constexpr const char* name_of(Cause c) noexcept {
  constexpr const char* kNames[] = {"none",         "port event", "bad completion", "stall",        "fenced by peer",
                                    "corrupt data", "peer dead",  "operator",       "probe failed", "relay refused"};
  return kNames[static_cast<unsigned>(c)];
}

struct Event {
  EventKind kind{};
  Cause cause{};
  Direction direction{};
  Status status{};
  NodeId peer = kNoId16;
  GroupId group = kNoId16;
  LinkId link = kNoId;
  LaneId lane = kNoId;
  std::uint64_t number = 0;
  Nanos at = 0;
  OpNumber op = 0;
  std::uint64_t value = 0;
  void* pointer = nullptr;
};

}  // namespace lk

// Command: what the control plane asks of a data path. Values on a bounded ring; an engine takes a few a turn.
#pragma once

#include <cstdint>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct GroupSpec;
struct PlanSpec;
struct RouteTable;
struct Snapshot;

enum class CommandKind : std::uint8_t {
  kInstallRoutes,  // routes
  kCreateGroup,    // group_spec, plan_spec
  kInstallPlan,    // plan_spec: valid from its from_op
  kHoldOps,        // group, op: ops from this number on wait
  kReleaseHold,    // group
  kShrinkGroup,    // group_spec (new membership), plan_spec: ops from group_spec->first_op on use it
  kEndGroup,       // group, status in value: unfinished and later ops end with it; peer names the lost node
  kPeerDead,       // peer
  kPeerAlive,      // peer, value: incarnation
  kLaneOff,        // lane, direction in value: operator takes it out (drain: chunks in flight finish)
  kLaneOn,
  kTakeSnapshot,  // snapshot: filled, then returned by event
};

struct Command {
  CommandKind kind{};
  std::uint8_t unused = 0;
  GroupId group = kNoId16;
  NodeId peer = kNoId16;
  std::uint16_t unused2 = 0;
  LaneId lane = kNoId;
  LinkId link = kNoId;
  OpNumber op = 0;
  std::uint64_t value = 0;
  union {
    const RouteTable* routes;
    const GroupSpec* group_spec;
    Snapshot* snapshot;
    void* pointer = nullptr;
  };
  const PlanSpec* plan_spec = nullptr;
};

}  // namespace lk

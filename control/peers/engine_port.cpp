#include "control/peers/engine_port.hpp"

namespace lk {
namespace {

Command command(CommandKind kind) {
  Command c;
  c.kind = kind;
  return c;
}

}  // namespace

template <typename T>
const T* EnginePort::lend(const T& value, std::map<const void*, std::unique_ptr<const T>>& lent) {
  auto copy = std::make_unique<const T>(value);
  const T* pointer = copy.get();
  lent.emplace(pointer, std::move(copy));
  return pointer;
}

void EnginePort::push(const Command& c) {
  if (!backlog_.empty() || !commands_.push(c)) backlog_.push_back(c);
}

void EnginePort::flush() {
  while (!backlog_.empty() && commands_.push(backlog_.front())) backlog_.pop_front();
}

void EnginePort::take_back(const void* lent) {
  routes_.erase(lent);
  groups_.erase(lent);
  plans_.erase(lent);
}

void EnginePort::install_routes(std::unique_ptr<const RouteTable> table) {
  Command c = command(CommandKind::kInstallRoutes);
  c.routes = table.get();
  routes_.emplace(table.get(), std::move(table));
  push(c);
}

void EnginePort::create_group(const GroupSpec& group, const PlanSpec& plan) {
  Command c = command(CommandKind::kCreateGroup);
  c.group = group.id;
  c.group_spec = lend(group, groups_);
  c.plan_spec = lend(plan, plans_);
  push(c);
}

void EnginePort::shrink_group(const GroupSpec& group, const PlanSpec& plan) {
  Command c = command(CommandKind::kShrinkGroup);
  c.group = group.id;
  c.op = group.first_op;
  c.group_spec = lend(group, groups_);
  c.plan_spec = lend(plan, plans_);
  push(c);
}

void EnginePort::end_group(GroupId group, Status status, NodeId lost) {
  Command c = command(CommandKind::kEndGroup);
  c.group = group;
  c.peer = lost;
  c.value = static_cast<std::uint64_t>(status);
  push(c);
}

void EnginePort::install_plan(const PlanSpec& plan) {
  Command c = command(CommandKind::kInstallPlan);
  c.group = plan.group;
  c.op = plan.from_op;
  c.plan_spec = lend(plan, plans_);
  push(c);
}

void EnginePort::hold_ops(GroupId group, OpNumber from) {
  Command c = command(CommandKind::kHoldOps);
  c.group = group;
  c.op = from;
  push(c);
}

void EnginePort::release_hold(GroupId group) {
  Command c = command(CommandKind::kReleaseHold);
  c.group = group;
  push(c);
}

void EnginePort::peer_dead(NodeId node) {
  Command c = command(CommandKind::kPeerDead);
  c.peer = node;
  push(c);
}

void EnginePort::peer_alive(NodeId node, Incarnation incarnation) {
  Command c = command(CommandKind::kPeerAlive);
  c.peer = node;
  c.value = incarnation;
  push(c);
}

void EnginePort::set_lane_off(LaneId lane, Direction d, bool off) {
  Command c = command(off ? CommandKind::kLaneOff : CommandKind::kLaneOn);
  c.lane = lane;
  c.value = static_cast<std::uint64_t>(d);
  push(c);
}

void EnginePort::take_snapshot(Snapshot* snapshot) {
  Command c = command(CommandKind::kTakeSnapshot);
  c.snapshot = snapshot;
  push(c);
}

}  // namespace lk

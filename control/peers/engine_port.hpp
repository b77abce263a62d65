// EnginePort: commands to this node's engine, in order. What does not fit the ring waits here for the next tick.
// Routes, groups and plans are lent with their command and freed when the engine gives them back by event. Owner: the
// control thread. Nothing fails.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "dataplane/api/command.hpp"
#include "dataplane/api/group.hpp"
#include "dataplane/api/route_table.hpp"
#include "dataplane/base/ring.hpp"
#include "dataplane/base/status.hpp"

namespace lk {

class EnginePort {
 public:
  explicit EnginePort(Ring<Command>& commands) : commands_(commands) {}

  void install_routes(std::unique_ptr<const RouteTable> table);
  void create_group(const GroupSpec& group, const PlanSpec& plan);
  void shrink_group(const GroupSpec& group, const PlanSpec& plan);
  void end_group(GroupId group, Status status, NodeId lost);
  void install_plan(const PlanSpec& plan);
  void hold_ops(GroupId group, OpNumber from);
  void release_hold(GroupId group);
  void peer_dead(NodeId node);
  void peer_alive(NodeId node, Incarnation incarnation);
  void set_lane_off(LaneId lane, Direction d, bool off);
  void take_snapshot(Snapshot* snapshot);

  void take_back(const void* lent);  // of an event's pointer
  void flush();
  bool idle() const noexcept { return backlog_.empty(); }

 private:
  void push(const Command& command);
  template <typename T>
  const T* lend(const T& value, std::map<const void*, std::unique_ptr<const T>>& lent);

  Ring<Command>& commands_;
  std::deque<Command> backlog_;
  std::map<const void*, std::unique_ptr<const RouteTable>> routes_;
  std::map<const void*, std::unique_ptr<const GroupSpec>> groups_;
  std::map<const void*, std::unique_ptr<const PlanSpec>> plans_;
};

}  // namespace lk

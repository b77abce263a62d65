// Membership: what becomes of a group when a node of it is lost. Only the side with more than half of the group's ranks
// (of exactly half: the side with rank 0) goes on; the other ends as partitioned. The survivors agree:
//   the lowest surviving node of the group says Propose(membership, nodes that are gone);
//   each takes those nodes for dead as well (its engine first hears of them: nothing of theirs may land any more) and
//   answers with the last op that all its local ranks have finished; one that knows of more losses says so instead,
//   as does one that loses a node which the coordinator still hears;
//   all answered → Commit(first op = the least of those + 1, the new plan), and every engine gets the smaller group.
// Of two proposals for one membership only one can be answered by all its nodes: losses only add up, and two majorities
// share a node. A node that was left behind by a coordinator's death takes a later membership as well.
// Owner: the control thread. Nothing fails; what is not settled by the deadline ends the group.
#pragma once

#include <optional>
#include <vector>

#include "control/peers/plan_agreement.hpp"

namespace lk {

class Membership {
 public:
  Membership(const GroupContext& context, GroupTable& groups, PlanAgreement& plans)
      : context_(context), groups_(groups), plans_(plans) {}

  // Called after the engine was told that the node is dead.
  void node_lost(NodeId node, Nanos now);
  // The engine gave a group's old description back: it has taken over a smaller one.
  void engine_shrunk(GroupId group);
  bool take(NodeId from, const Record& record, Nanos now);
  void tick(Nanos now);
  Nanos next_time() const noexcept;

 private:
  bool may_go_on(const GroupRecord& group) const;
  NodeId coordinator(const GroupRecord& group) const noexcept;  // kNoId16: nobody is left
  void reconsider(GroupRecord& group, Nanos now);
  void propose(GroupRecord& group, Nanos now);
  void on_propose(GroupRecord& group, NodeId from, RecordReader& in, const Record& record, Nanos now);
  void on_ack(GroupRecord& group, NodeId from, RecordReader& in, Nanos now);
  void on_nack(GroupRecord& group, NodeId from, RecordReader& in, Nanos now);
  void on_commit(GroupRecord& group, NodeId from, RecordReader& in, Nanos now);
  std::optional<GroupSpec> shrunk_spec(GroupRecord& group, const std::vector<NodeId>& gone, std::uint16_t target,
                                       OpNumber first_op, Nanos now);
  void commit(GroupRecord& group, Nanos now);
  void adopt(GroupRecord& group, const GroupSpec& spec, const PlanSpec& plan, Nanos now);
  bool take_for_dead(const GroupRecord& group, const std::vector<NodeId>& nodes, NodeId from);

  GroupContext context_;
  GroupTable& groups_;
  PlanAgreement& plans_;
};

}  // namespace lk

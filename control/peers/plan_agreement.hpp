// PlanAgreement: how all nodes of a group change to another plan at the same op. The proposer is the node of rank 0:
//   it picks an op a little ahead and makes its own engine hold ops from there on;
//   Propose(plan, from) → every node makes its engine hold, and acknowledges if none of its ranks has entered `from`,
//   else refuses with the highest op entered; all acknowledged → Commit, else (refusal, deadline) → Abort.
// A node that acknowledged waits, holding, until it is told. When that takes too long it asks every node of the group:
// one that has the plan in force repeats the commit, the proposer may say that it gave up. When the proposer is dead,
// the smaller membership settles it (membership.hpp): it brings its own plan, and no op of the old one can finish.
// So no two nodes ever run the same op of one membership with different plans.
// Owner: the control thread. Nothing fails.
#pragma once

#include "control/peers/group_table.hpp"
#include "dataplane/api/event.hpp"

namespace lk {

class PlanAgreement {
 public:
  PlanAgreement(const GroupContext& context, GroupTable& groups) : context_(context), groups_(groups) {}

  // Whether this node may propose for the group now.
  bool may_propose(const GroupRecord& group, Nanos now) const noexcept;
  // version and from_op are filled in here.
  void propose(GroupRecord& group, const PlanSpec& wanted, Nanos now);

  void hold_taken(const Event& event, Nanos now);  // kHoldTaken
  bool take(NodeId from, const Record& record, Nanos now);
  // What is under way no longer counts. `release` is false when membership changes: the engine then holds all ops of
  // the group until it has shrunk or ended.
  void drop(GroupRecord& group, bool release = true);
  void tick(Nanos now);
  Nanos next_time() const noexcept;

 private:
  void own_hold(GroupRecord& group, OpNumber from);
  void on_propose(GroupRecord& group, NodeId from, RecordReader& in, Nanos now);
  void on_ack(GroupRecord& group, NodeId from, std::uint32_t version, Nanos now);
  void on_nack(GroupRecord& group, std::uint32_t version, OpNumber highest, Nanos now);
  void on_commit(GroupRecord& group, const PlanSpec& plan, Nanos now);
  void on_query(GroupRecord& group, NodeId from, std::uint32_t version);
  void commit(GroupRecord& group, Nanos now);
  void abort(GroupRecord& group, Nanos wait_ns, const std::string& why, Nanos now);
  void adopt(GroupRecord& group, const PlanSpec& plan, Nanos now);
  Bytestring plan_record(const GroupRecord& group, const PlanSpec& plan) const;
  RecordWriter round_record(const GroupRecord& group, std::uint32_t version) const;

  GroupContext context_;
  GroupTable& groups_;
};

}  // namespace lk

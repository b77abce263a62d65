#include "control/peers/plan_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {
namespace {

constexpr OpNumber kAhead = 3;       // ops between the highest known and the first of the new plan
constexpr unsigned kQuickTries = 4;  // refusals in a row that are answered at once with a later op

}  // namespace

RecordWriter PlanAgreement::round_record(const GroupRecord& group, std::uint32_t version) const {
  RecordWriter out = about(group.spec);
  out.put(group.spec.membership).put(version);
  return out;
}

Bytestring PlanAgreement::plan_record(const GroupRecord& group, const PlanSpec& plan) const {
  RecordWriter out = round_record(group, plan.version);
  put_plan(out, plan);
  return out.bytes();
}

bool PlanAgreement::may_propose(const GroupRecord& group, Nanos now) const noexcept {
  return group.state == GroupState::kReady && !group.shrink.open && group.round.phase == PlanPhase::kIdle &&
         group.proposer(context_.cluster) == context_.self && now >= group.round.not_before;
}

void PlanAgreement::propose(GroupRecord& group, const PlanSpec& wanted, Nanos now) {
  PlanRound& round = group.round;
  round.plan = wanted;
  round.plan.version = ++round.highest_version;
  round.deadline = now + context_.thresholds.plan_deadline_ns;
  round.phase = PlanPhase::kOwnHold;
  round.awaited = group.nodes;
  erase(round.awaited, context_.self);
  own_hold(group, std::max({round.highest_entered, least_done(group), group.spec.first_op}) + kAhead);
}

void PlanAgreement::own_hold(GroupRecord& group, OpNumber from) {
  group.round.plan.from_op = from;
  context_.engine.hold_ops(group.spec.id, from);
}

void PlanAgreement::hold_taken(const Event& event, Nanos now) {
  GroupRecord* group = groups_.find(event.group);
  if (group == nullptr || !group->live()) return;
  PlanRound& round = group->round;
  const bool waits = round.phase == PlanPhase::kOwnHold || round.phase == PlanPhase::kHolding;
  if (!waits || event.op != round.plan.from_op) return;
  round.highest_entered = std::max(round.highest_entered, static_cast<OpNumber>(event.value));
  const bool late = event.value >= round.plan.from_op;
  if (late) context_.engine.release_hold(group->spec.id);
  if (round.phase == PlanPhase::kOwnHold) {
    if (late) return own_hold(*group, event.value + kAhead);  // nobody else knows of it yet
    round.phase = PlanPhase::kVoting;
    context_.send_all(*group, RecordKind::kPlanPropose, plan_record(*group, round.plan));
    if (round.awaited.empty()) commit(*group, now);
    return;
  }
  RecordWriter out = round_record(*group, round.plan.version);
  const NodeId proposer = group->proposer(context_.cluster);
  if (late) {
    round.phase = PlanPhase::kIdle;
    out.put(static_cast<std::uint64_t>(event.value));
    context_.peers.send(proposer, RecordKind::kPlanNack, out.bytes());
    return;
  }
  round.phase = PlanPhase::kInDoubt;
  round.deadline = now + context_.thresholds.plan_deadline_ns;
  context_.peers.send(proposer, RecordKind::kPlanAck, out.bytes());
}

bool PlanAgreement::take(NodeId from, const Record& record, Nanos now) {
  if (record.kind < RecordKind::kPlanPropose || record.kind > RecordKind::kPlanQuery) return false;
  RecordReader in(record.body);
  const GroupId id = in.get<std::uint16_t>();
  GroupRecord* group = groups_.find(id, in.get<std::uint64_t>());
  const auto membership = in.get<std::uint16_t>();
  const auto version = in.get<std::uint32_t>();
  if (group == nullptr || !in.ok() || !group->live() || group->shrink.open) return true;
  if (membership != group->spec.membership || !contains(group->nodes, from)) return true;
  const bool by_proposer = from == group->proposer(context_.cluster);
  switch (record.kind) {
    case RecordKind::kPlanPropose:
      if (by_proposer) on_propose(*group, from, in, now);
      break;
    case RecordKind::kPlanAck:
      on_ack(*group, from, version, now);
      break;
    case RecordKind::kPlanNack:
      on_nack(*group, version, in.get<std::uint64_t>(), now);
      break;
    case RecordKind::kPlanCommit: {
      const PlanSpec plan = get_plan(in, group->spec, membership);
      if (in.done() && plan_fits(group->spec, plan)) on_commit(*group, plan, now);
      break;
    }
    case RecordKind::kPlanAbort:
      if (by_proposer && group->round.plan.version == version) drop(*group);
      break;
    default:
      on_query(*group, from, version);
  }
  return true;
}

void PlanAgreement::on_propose(GroupRecord& group, NodeId from, RecordReader& in, Nanos now) {
  const PlanSpec plan = get_plan(in, group.spec, group.spec.membership);
  PlanRound& round = group.round;
  // The proposer's words come in order: an older round of its own that is still open here was aborted before this one.
  if (!in.done() || !plan_fits(group.spec, plan) || plan.version <= round.highest_version || from == context_.self)
    return;
  drop(group);
  round.highest_version = plan.version;
  round.plan = plan;
  round.phase = PlanPhase::kHolding;
  round.deadline = now + context_.thresholds.plan_deadline_ns;
  context_.engine.hold_ops(group.spec.id, plan.from_op);
}

void PlanAgreement::on_ack(GroupRecord& group, NodeId from, std::uint32_t version, Nanos now) {
  PlanRound& round = group.round;
  if (round.phase != PlanPhase::kVoting || round.plan.version != version) return;
  erase(round.awaited, from);
  if (round.awaited.empty()) commit(group, now);
}

void PlanAgreement::on_nack(GroupRecord& group, std::uint32_t version, OpNumber highest, Nanos now) {
  PlanRound& round = group.round;
  if (round.phase != PlanPhase::kVoting || round.plan.version != version) return;
  round.highest_entered = std::max(round.highest_entered, highest);
  const PlanSpec wanted = round.plan;
  const bool again = ++round.tries < kQuickTries;
  abort(group, again ? 0 : context_.thresholds.plan_interval_ns, again ? "" : "its ops run ahead of every proposal",
        now);
  if (again) propose(group, wanted, now);
}

void PlanAgreement::commit(GroupRecord& group, Nanos now) {
  context_.send_all(group, RecordKind::kPlanCommit, plan_record(group, group.round.plan));
  adopt(group, group.round.plan, now);
}

void PlanAgreement::on_commit(GroupRecord& group, const PlanSpec& plan, Nanos now) {
  PlanRound& round = group.round;
  // Only a plan that this node has acknowledged: its engine holds, so nothing has run past it.
  if (round.phase != PlanPhase::kInDoubt || round.plan.version != plan.version) return;
  adopt(group, round.plan, now);
}

void PlanAgreement::adopt(GroupRecord& group, const PlanSpec& plan, Nanos now) {
  group.plan = plan;
  group.round.phase = PlanPhase::kIdle;
  group.round.deadline = kNever;
  group.round.tries = 0;
  group.round.again = false;
  group.round.not_before = now + context_.thresholds.plan_interval_ns;
  context_.engine.install_plan(plan);
  groups_.note_change();
  context_.journal.add(now, JournalLevel::kInfo,
                       fmt::format("group {}: plan {} from op {} on, chunks of {} KiB", group.spec.name, plan.version,
                                   plan.from_op, plan.chunk_bytes / kKiB));
}

void PlanAgreement::abort(GroupRecord& group, Nanos wait_ns, const std::string& why, Nanos now) {
  if (group.round.phase == PlanPhase::kVoting) {
    context_.send_all(group, RecordKind::kPlanAbort, round_record(group, group.round.plan.version).bytes());
  }
  const std::uint32_t version = group.round.plan.version;
  drop(group);
  group.round.again = true;
  group.round.not_before = now + wait_ns;
  if (why.empty()) return;
  group.round.tries = 0;
  context_.journal.add(now, JournalLevel::kWarning,
                       fmt::format("group {}: plan {} given up: {}", group.spec.name, version, why));
}

void PlanAgreement::drop(GroupRecord& group, bool release) {
  if (group.round.phase == PlanPhase::kIdle) return;
  group.round.phase = PlanPhase::kIdle;
  group.round.deadline = kNever;
  if (release) context_.engine.release_hold(group.spec.id);
}

// One who acknowledged and was not told. Only two can answer: who has that plan in force, and the proposer.
void PlanAgreement::on_query(GroupRecord& group, NodeId from, std::uint32_t version) {
  if (group.plan.version == version) {
    context_.peers.send(from, RecordKind::kPlanCommit, plan_record(group, group.plan));
    return;
  }
  if (group.proposer(context_.cluster) != context_.self) return;
  if (group.round.phase == PlanPhase::kVoting && group.round.plan.version == version) return;
  context_.peers.send(from, RecordKind::kPlanAbort, round_record(group, version).bytes());
}

void PlanAgreement::tick(Nanos now) {
  for (auto& [id, owned] : groups_.all()) {
    GroupRecord& group = *owned;
    PlanRound& round = group.round;
    if (round.phase == PlanPhase::kIdle || now < round.deadline) continue;
    round.deadline = now + context_.thresholds.plan_deadline_ns;
    switch (round.phase) {
      case PlanPhase::kOwnHold:
        abort(group, context_.thresholds.plan_interval_ns, "the engine did not hold its ops", now);
        break;
      case PlanPhase::kVoting: {
        const std::string& name = context_.cluster.nodes[round.awaited.front()].name;
        abort(group, context_.thresholds.plan_interval_ns, fmt::format("{} did not answer", name), now);
        break;
      }
      case PlanPhase::kHolding:
        drop(group);
        break;  // it has promised nothing
      default:
        context_.send_all(group, RecordKind::kPlanQuery, round_record(group, round.plan.version).bytes());
    }
  }
}

Nanos PlanAgreement::next_time() const noexcept {
  Nanos next = kNever;
  for (const auto& [id, group] : groups_.all()) {
    if (group->round.phase != PlanPhase::kIdle) next = std::min(next, group->round.deadline);
  }
  return next;
}

}  // namespace lk

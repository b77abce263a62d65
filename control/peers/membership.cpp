#include "control/peers/membership.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "control/peers/group_builder.hpp"
#include "dataplane/base/error.hpp"

namespace lk {

void Membership::node_lost(NodeId node, Nanos now) {
  for (auto& [id, owned] : groups_.all()) {
    GroupRecord& group = *owned;
    if (!group.live() || !contains(group.nodes, node)) continue;
    if (group.state == GroupState::kInstalling) {
      groups_.end(group, Status::kNodeLost, node,
                  fmt::format("{} died before the group was ready", context_.cluster.nodes[node].name), true, now);
      continue;
    }
    erase(group.nodes, node);
    insert(group.gone, node);
    plans_.drop(group, false);
    if (!group.shrink.open) {
      group.shrink.open = true;
      group.shrink.since = now;
    }
    group.shrink.deadline = now + context_.thresholds.shrink_deadline_ns;
    reconsider(group, now);
  }
}

void Membership::engine_shrunk(GroupId id) {
  GroupRecord* group = groups_.find(id);
  if (group == nullptr || group->shrinking == 0 || --group->shrinking > 0) return;
  if (group->state == GroupState::kInstalled) group->state = GroupState::kReady;
}

bool Membership::may_go_on(const GroupRecord& group) const {
  std::size_t left = 0;
  for (const EndpointId gpu : group.spec.members)
    left += contains(group.nodes, context_.cluster.gpus[gpu].node) ? 1 : 0;
  const std::size_t all = group.spec.members.size();
  const bool first = contains(group.nodes, context_.cluster.gpus[group.spec.members.front()].node);
  return 2 * left > all || (2 * left == all && first);
}

NodeId Membership::coordinator(const GroupRecord& group) const noexcept {
  return group.nodes.empty() ? kNoId16 : group.nodes.front();
}

void Membership::reconsider(GroupRecord& group, Nanos now) {
  if (!may_go_on(group)) {
    groups_.end(group, Status::kPartitioned, group.gone.back(),
                fmt::format("only {} of its nodes are left with this one, which is not the larger part of its ranks",
                            group.nodes.size()),
                true, now);
    return;
  }
  if (coordinator(group) == context_.self) return propose(group, now);
  // The coordinator may hear that node well: one of the two that do not hear each other has to go.
  RecordWriter out = about(group.spec);
  out.put(std::uint16_t{0}).put(group.spec.membership).put_list(group.gone);
  context_.peers.send(coordinator(group), RecordKind::kShrinkNack, out.bytes());
}

void Membership::propose(GroupRecord& group, Nanos now) {
  ShrinkRound& shrink = group.shrink;
  shrink.target = std::max(shrink.target, static_cast<std::uint16_t>(group.spec.membership + 1));
  shrink.gone = group.gone;
  shrink.least_done = least_done(group);
  shrink.highest_version = group.round.highest_version;
  shrink.awaited = group.nodes;
  erase(shrink.awaited, context_.self);
  RecordWriter out = about(group.spec);
  out.put(shrink.target).put_list(shrink.gone);
  context_.send_all(group, RecordKind::kShrinkPropose, out.bytes());
  if (shrink.awaited.empty()) commit(group, now);
}

// True if one of them was alive here and is dead now; what follows from that comes before anything else.
bool Membership::take_for_dead(const GroupRecord& group, const std::vector<NodeId>& nodes, NodeId from) {
  bool news = false;
  for (const NodeId node : nodes) {
    if (node == from || !contains(group.nodes, node)) continue;
    const bool declared =
        context_.peers.declare_dead(node, fmt::format("by the word of {}", context_.cluster.nodes[from].name));
    // Dead already and still in the group: its own silence was just noticed here, and is what comes next.
    news |= declared || context_.peers.state(node) == PeerState::kDead;
  }
  return news;
}

bool Membership::take(NodeId from, const Record& record, Nanos now) {
  if (record.kind < RecordKind::kShrinkPropose || record.kind > RecordKind::kShrinkCommit) return false;
  RecordReader in(record.body);
  const GroupId id = in.get<std::uint16_t>();
  GroupRecord* group = groups_.find(id, in.get<std::uint64_t>());
  if (group == nullptr || !in.ok() || !group->live() || !contains(group->nodes, from)) return true;
  switch (record.kind) {
    case RecordKind::kShrinkPropose:
      on_propose(*group, from, in, record, now);
      break;
    case RecordKind::kShrinkAck:
      on_ack(*group, from, in, now);
      break;
    case RecordKind::kShrinkNack:
      on_nack(*group, from, in, now);
      break;
    default:
      on_commit(*group, from, in, now);
  }
  return true;
}

void Membership::on_propose(GroupRecord& group, NodeId from, RecordReader& in, const Record& record, Nanos now) {
  const auto target = in.get<std::uint16_t>();
  const std::vector<NodeId> gone = in.get_list<NodeId>();
  if (!in.done() || contains(gone, context_.self)) return;
  if (take_for_dead(group, gone, from)) return context_.peers.repeat(from, record);
  RecordWriter out = about(group.spec);
  out.put(target);
  if (gone != group.gone || target <= group.spec.membership) {
    out.put(group.spec.membership).put_list(group.gone);
    context_.peers.send(from, RecordKind::kShrinkNack, out.bytes());
    return;
  }
  if (coordinator(group) != from) return;
  plans_.drop(group, false);
  group.shrink.open = true;
  group.shrink.deadline = now + context_.thresholds.shrink_deadline_ns;
  out.put_list(gone).put(least_done(group)).put(group.round.highest_version);
  context_.peers.send(from, RecordKind::kShrinkAck, out.bytes());
}

void Membership::on_ack(GroupRecord& group, NodeId from, RecordReader& in, Nanos now) {
  ShrinkRound& shrink = group.shrink;
  const auto target = in.get<std::uint16_t>();
  const std::vector<NodeId> gone = in.get_list<NodeId>();
  const auto done = in.get<std::uint64_t>();
  const auto version = in.get<std::uint32_t>();
  const bool asked = shrink.open && coordinator(group) == context_.self && contains(shrink.awaited, from);
  if (!in.done() || !asked || target != shrink.target || gone != shrink.gone) return;
  shrink.least_done = std::min(shrink.least_done, done);
  shrink.highest_version = std::max(shrink.highest_version, version);
  erase(shrink.awaited, from);
  if (shrink.awaited.empty()) commit(group, now);
}

void Membership::on_nack(GroupRecord& group, NodeId from, RecordReader& in, Nanos now) {
  ShrinkRound& shrink = group.shrink;
  const auto target = in.get<std::uint16_t>();
  const auto membership = in.get<std::uint16_t>();
  const std::vector<NodeId> gone = in.get_list<NodeId>();
  if (!in.done() || contains(gone, context_.self) || coordinator(group) != context_.self) return;
  const bool asked = shrink.open && target == shrink.target;
  if (asked) shrink.target = std::max(shrink.target, static_cast<std::uint16_t>(membership + 1));
  // A loss that is news here leads to a proposal by itself.
  if (!take_for_dead(group, gone, from) && asked && shrink.target != target) propose(group, now);
}

// Those who are left, laid over their domains; when they cannot all reach each other the group has ended.
std::optional<GroupSpec> Membership::shrunk_spec(GroupRecord& group, const std::vector<NodeId>& gone,
                                                 std::uint16_t target, OpNumber first_op, Nanos now) {
  try {
    return make_shrunk_spec(context_.cluster, group.spec, gone, target, first_op);
  } catch (const InputError& e) {
    groups_.end(group, Status::kNodeLost, gone.back(), e.what(), true, now);
    return std::nullopt;
  }
}

void Membership::commit(GroupRecord& group, Nanos now) {
  ShrinkRound& shrink = group.shrink;
  const auto shrunk = shrunk_spec(group, shrink.gone, shrink.target, shrink.least_done + 1, now);
  if (!shrunk) return;
  const GroupSpec& spec = *shrunk;
  PlanSpec plan = context_.plans.best_plan(spec, group.chunk_most_bytes);
  plan.version = shrink.highest_version + 1;
  RecordWriter out = about(spec);
  out.put(spec.membership).put(spec.first_op).put_list(shrink.gone);
  put_plan(out, plan);
  context_.send_all(group, RecordKind::kShrinkCommit, out.bytes());
  adopt(group, spec, plan, now);
}

void Membership::on_commit(GroupRecord& group, NodeId from, RecordReader& in, Nanos now) {
  const auto target = in.get<std::uint16_t>();
  const auto first_op = in.get<std::uint64_t>();
  const std::vector<NodeId> gone = in.get_list<NodeId>();
  const PlanSpec plan = get_plan(in, group.spec, target);
  if (!in.done() || target <= group.spec.membership || contains(gone, context_.self)) return;
  if (!std::includes(group.gone.begin(), group.gone.end(), gone.begin(), gone.end())) return;
  if (!group.shrink.open || coordinator(group) != from) return;
  const auto spec = shrunk_spec(group, gone, target, first_op, now);
  if (spec && plan_fits(*spec, plan)) adopt(group, *spec, plan, now);
}

void Membership::adopt(GroupRecord& group, const GroupSpec& spec, const PlanSpec& plan, Nanos now) {
  const std::size_t before = group.spec.members.size();
  group.spec = spec;
  group.plan = plan;
  group.state = GroupState::kInstalled;  // ready when the engine gives the old description back
  ++group.shrinking;
  group.round = {};
  group.round.highest_version = plan.version;
  group.round.highest_entered = spec.first_op - 1;
  group.round.not_before = now + context_.thresholds.plan_interval_ns;
  const Nanos since = group.shrink.since;
  group.shrink = {};
  restart_progress(context_.cluster, context_.self, group);
  context_.engine.shrink_group(spec, plan);
  groups_.note_change();
  context_.journal.add(
      now, JournalLevel::kWarning,
      fmt::format("group {}: membership {} with {} of {} ranks goes on from op {}, {} ms after the loss", spec.name,
                  spec.membership, spec.members.size(), before, spec.first_op, (now - since) / kMilli));
  const std::vector<NodeId> named = nodes_of(context_.cluster, spec);
  if (named == group.nodes) return;
  // Another was lost between this answer and the commit.
  group.shrink.open = true;
  group.shrink.since = now;
  group.shrink.deadline = now + context_.thresholds.shrink_deadline_ns;
  reconsider(group, now);
}

void Membership::tick(Nanos now) {
  for (auto& [id, group] : groups_.all()) {
    if (!group->shrink.open || now < group->shrink.deadline) continue;
    groups_.end(*group, Status::kPartitioned, group->gone.empty() ? kNoId16 : group->gone.back(),
                "its survivors did not agree before the deadline", true, now);
  }
}

Nanos Membership::next_time() const noexcept {
  Nanos next = kNever;
  for (const auto& [id, group] : groups_.all()) {
    if (group->shrink.open) next = std::min(next, group->shrink.deadline);
  }
  return next;
}

}  // namespace lk

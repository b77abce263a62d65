#include "control/peers/group_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "control/peers/group_builder.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::size_t kEndedKept = 256;

std::string names_of(const ClusterSpec& cluster, const std::vector<NodeId>& nodes) {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const NodeId node : nodes) names.push_back(cluster.nodes[node].name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool in_use(const GroupRecord* group) { return group != nullptr && group->state != GroupState::kEnded; }

}  // namespace

GroupRecord* GroupTable::find(GroupId id) noexcept {
  const auto it = groups_.find(id);
  return it == groups_.end() ? nullptr : it->second.get();
}

const GroupRecord* GroupTable::find(GroupId id) const noexcept {
  const auto it = groups_.find(id);
  return it == groups_.end() ? nullptr : it->second.get();
}

GroupRecord* GroupTable::find(GroupId id, std::uint64_t uuid_lo) noexcept {
  GroupRecord* group = find(id);
  return in_use(group) && group->spec.uuid_lo == uuid_lo ? group : nullptr;
}

const GroupRecord* GroupTable::find_name(const std::string& name) const noexcept {
  for (const auto& [id, group] : groups_) {
    if (group->state != GroupState::kEnded && group->spec.name == name) return group.get();
  }
  return nullptr;
}

GroupId GroupTable::draw_id() {
  const std::size_t nodes = context_.cluster.nodes.size();
  const auto ids = static_cast<std::uint32_t>(kNoId16 / nodes);
  for (std::uint32_t tried = 0; tried < ids; ++tried) {
    const auto id = static_cast<GroupId>((drawn_++ % ids) * nodes + context_.self);
    if (!in_use(find(id))) return id;
  }
  throw InputError(fmt::format("group: all {} ids of {} are in use", ids, context_.cluster.nodes[context_.self].name));
}

// Empty if the group may be here.
std::string GroupTable::why_not(const GroupSpec& spec, Nanos now) const {
  const GroupRecord* other = find_name(spec.name);
  if (other == nullptr && in_use(find(spec.id))) other = find(spec.id);
  if (other == nullptr) return {};
  return fmt::format("the name is in use on {} by {} for {} s", context_.cluster.nodes[context_.self].name,
                     other->owner, (now - other->created_at) / kSecond);
}

GroupRecord& GroupTable::add(const GroupSpec& spec, const PlanSpec& plan, const std::string& owner, NodeId creator,
                             Nanos now) {
  auto group = std::make_unique<GroupRecord>();
  group->spec = spec;
  group->plan = plan;
  group->round.highest_version = plan.version;
  group->owner = owner;
  group->creator = creator;
  group->created_at = now;
  group->nodes = nodes_of(context_.cluster, spec);
  restart_progress(context_.cluster, context_.self, *group);
  ++changes_;
  return *(groups_[spec.id] = std::move(group));
}

GroupId GroupTable::create(const std::string& name, std::span<const EndpointId> members, const GroupOptions& options,
                           Nanos now) {
  if (name.empty() || name.size() > 255) throw InputError("group: expected a name of 1 to 255 bytes");
  GroupIdentity identity{draw_id(), name, random_.next(), random_.next()};
  const GroupSpec spec = make_group_spec(context_.cluster, members, identity);
  const std::string& self = context_.cluster.nodes[context_.self].name;
  const NodeId first = context_.cluster.gpus[spec.members.front()].node;
  if (first != context_.self) {
    throw InputError(fmt::format("group {}: rank 0 is on {}, which must create it, not {}", name,
                                 context_.cluster.nodes[first].name, self));
  }
  if (const std::string why = why_not(spec, now); !why.empty())
    throw InputError(fmt::format("group {}: {}", name, why));
  GroupRecord& group =
      add(spec, context_.plans.best_plan(spec, options.chunk_most_bytes), options.owner, context_.self, now);
  group.state = GroupState::kOffering;
  group.chunk_most_bytes = options.chunk_most_bytes;
  group.deadline = now + (options.deadline_ns > 0 ? options.deadline_ns : context_.thresholds.group_deadline_ns);
  group.awaited = group.nodes;
  erase(group.awaited, context_.self);
  if (group.awaited.empty()) all_accepted(group, now);
  return spec.id;
}

// An offer waits for nodes that have not been seen: they may just be starting.
void GroupTable::tick(Nanos now) {
  for (auto& [id, owned] : groups_) {
    GroupRecord& group = *owned;
    if (group.state == GroupState::kOffering) {
      for (const NodeId node : group.nodes) {
        if (node == context_.self || contains(group.offered, node) || !context_.peers.present(node)) continue;
        insert(group.offered, node);
        RecordWriter out = about(group.spec);
        out.put(group.spec.uuid_hi).put_text(group.spec.name).put_text(group.owner).put_list(group.spec.members);
        out.put(group.chunk_most_bytes);
        put_plan(out, group.plan);
        context_.peers.send(node, RecordKind::kGroupOffer, out.bytes());
      }
    }
    if (now < group.deadline || group.state == GroupState::kEnded) continue;
    const bool creator = group.creator == context_.self;
    end(group, Status::kDeadline, group.awaited.empty() ? kNoId16 : group.awaited.front(),
        creator ? fmt::format("no answer from {} before the deadline", names_of(context_.cluster, group.awaited))
                : fmt::format("{} did not finish its creation", context_.cluster.nodes[group.creator].name),
        creator, now);
  }
  forget_old(now);
}

Nanos GroupTable::next_time() const noexcept {
  Nanos next = kNever;
  for (const auto& [id, group] : groups_) {
    if (group->state != GroupState::kEnded) next = std::min(next, group->deadline);
  }
  return next;
}

void GroupTable::forget_old(Nanos /*now*/) {
  std::size_t ended = 0;
  for (const auto& [id, group] : groups_) ended += group->state == GroupState::kEnded ? 1 : 0;
  for (auto it = groups_.begin(); it != groups_.end() && ended > kEndedKept;) {
    const bool drop = it->second->state == GroupState::kEnded;
    ended -= drop ? 1 : 0;
    it = drop ? groups_.erase(it) : std::next(it);
  }
}

void GroupTable::refuse(NodeId to, GroupId id, std::uint64_t uuid_lo, const std::string& why) {
  RecordWriter out;
  out.put(id).put(uuid_lo).put_text(why);
  context_.peers.send(to, RecordKind::kGroupRefuse, out.bytes());
}

void GroupTable::offer(NodeId from, RecordReader& in, Nanos now) {
  GroupIdentity identity;
  identity.id = in.get<std::uint16_t>();
  identity.uuid_lo = in.get<std::uint64_t>();
  identity.uuid_hi = in.get<std::uint64_t>();
  identity.name = in.get_text();
  const std::string owner = in.get_text();
  const std::vector<EndpointId> members = in.get_list<std::uint16_t>();
  const Bytes chunk_most = in.get<std::uint64_t>();
  GroupSpec spec;
  PlanSpec plan = get_plan(in, spec, 1);
  plan.group = identity.id;
  std::string why;
  try {
    spec = make_group_spec(context_.cluster, members, identity);
    if (!in.done() || !plan_fits(spec, plan)) why = "its description cannot be read here";
  } catch (const InputError& e) {
    why = e.what();
  }
  if (why.empty()) why = why_not(spec, now);
  if (!why.empty()) return refuse(from, identity.id, identity.uuid_lo, why);
  GroupRecord& group = add(spec, plan, owner, from, now);
  group.state = GroupState::kOffered;
  group.chunk_most_bytes = chunk_most;
  group.deadline = now + 2 * context_.thresholds.group_deadline_ns;
  context_.peers.send(from, RecordKind::kGroupAccept, about(spec).bytes());
}

void GroupTable::install(GroupRecord& group) {
  context_.engine.create_group(group.spec, group.plan);
  ++changes_;
}

void GroupTable::all_accepted(GroupRecord& group, Nanos now) {
  group.state = GroupState::kInstalling;
  install(group);
  context_.send_all(group, RecordKind::kGroupInstall, about(group.spec).bytes());
  group.awaited = group.nodes;
  erase(group.awaited, context_.self);
  if (group.awaited.empty()) all_installed(group, now);
}

void GroupTable::all_installed(GroupRecord& group, Nanos now) {
  group.state = GroupState::kReady;
  group.deadline = kNever;
  context_.send_all(group, RecordKind::kGroupReady, about(group.spec).bytes());
  context_.journal.add(now, JournalLevel::kInfo,
                       fmt::format("group {} ready: {} ranks on {}", group.spec.name, group.spec.members.size(),
                                   names_of(context_.cluster, group.nodes)));
}

void GroupTable::answered(GroupRecord& group, NodeId from, bool installed, Nanos now) {
  if (group.state != (installed ? GroupState::kInstalling : GroupState::kOffering)) return;
  erase(group.awaited, from);
  if (!group.awaited.empty()) return;
  if (installed) {
    all_installed(group, now);
  } else {
    all_accepted(group, now);
  }
}

bool GroupTable::take(NodeId from, const Record& record, Nanos now) {
  if (record.kind < RecordKind::kGroupOffer || record.kind > RecordKind::kGroupEnded) return false;
  RecordReader in(record.body);
  if (record.kind == RecordKind::kGroupOffer) return offer(from, in, now), true;
  const GroupId id = in.get<std::uint16_t>();
  GroupRecord* group = find(id, in.get<std::uint64_t>());
  if (group == nullptr || !in.ok() || !contains(group->nodes, from)) return true;
  const bool by_creator = from == group->creator;
  switch (record.kind) {
    case RecordKind::kGroupAccept:
      answered(*group, from, false, now);
      break;
    case RecordKind::kGroupInstalled:
      answered(*group, from, true, now);
      break;
    case RecordKind::kGroupRefuse: {
      const std::string why = in.get_text();
      if (group->state == GroupState::kOffering) {
        end(*group, Status::kInvalid, from, fmt::format("{} refused it: {}", context_.cluster.nodes[from].name, why),
            true, now);
      }
      break;
    }
    case RecordKind::kGroupInstall:
      if (!by_creator || group->state != GroupState::kOffered) break;
      group->state = GroupState::kInstalled;
      group->deadline = kNever;  // from here on the creator's death is a lost member
      install(*group);
      context_.peers.send(from, RecordKind::kGroupInstalled, about(group->spec).bytes());
      break;
    case RecordKind::kGroupReady:
      if (by_creator && group->state == GroupState::kInstalled && group->shrinking == 0)
        group->state = GroupState::kReady;
      break;
    default: {
      const auto status = static_cast<Status>(in.get<std::uint8_t>());
      const std::string why = in.get_text();
      if (in.done())
        end(*group, status, from, fmt::format("{}: {}", context_.cluster.nodes[from].name, why), false, now);
    }
  }
  return true;
}

void GroupTable::node_lost(NodeId node, Nanos now) {
  for (auto& [id, group] : groups_) {
    const bool early = group->state == GroupState::kOffering || group->state == GroupState::kOffered;
    if (!early || !contains(group->nodes, node)) continue;
    end(*group, Status::kNodeLost, node,
        fmt::format("{} died before the group was made", context_.cluster.nodes[node].name), true, now);
  }
}

void GroupTable::destroy(GroupRecord& group, Nanos now) {
  end(group, Status::kCancelled, kNoId16, "it was closed", true, now);
}

void GroupTable::end(GroupRecord& group, Status status, NodeId lost, const std::string& why, bool tell, Nanos now) {
  if (group.state == GroupState::kEnded) return;
  if (tell) {
    RecordWriter out = about(group.spec);
    out.put(static_cast<std::uint8_t>(status)).put_text(why);
    context_.send_all(group, RecordKind::kGroupEnded, out.bytes());
  }
  if (group.live()) context_.engine.end_group(group.spec.id, status, lost);
  group.state = GroupState::kEnded;
  group.end_status = status;
  group.error = why;
  group.deadline = kNever;
  group.round.phase = PlanPhase::kIdle;
  group.shrink.open = false;
  ++changes_;
  const bool asked = status == Status::kCancelled;
  context_.journal.add(now, asked ? JournalLevel::kInfo : JournalLevel::kError,
                       fmt::format("group {} ended ({}): {}", group.spec.name, name_of(status), why));
}

void GroupTable::note_result(const OpResult& result) {
  GroupRecord* group = find(result.group);
  // Ranks are counted anew after a loss, and results of before may still be on their way.
  if (group == nullptr || result.status != Status::kOk || result.membership != group->spec.membership) return;
  const auto it = group->progress.find(result.rank);
  if (it == group->progress.end() || result.number <= it->second.done) return;
  RankProgress& progress = it->second;
  progress.ahead.insert(result.number);
  while (!progress.ahead.empty() && *progress.ahead.begin() == progress.done + 1) {
    progress.ahead.erase(progress.ahead.begin());
    ++progress.done;
  }
  group->round.highest_entered = std::max(group->round.highest_entered, result.number);
}

}  // namespace lk

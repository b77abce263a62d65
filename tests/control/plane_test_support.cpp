#include "tests/control/plane_test_support.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "control/peers/group_builder.hpp"
#include "tests/control/balance_test_support.hpp"

namespace lk::plane_test {

ClusterSpec small_cluster(int nodes) {
  balance_test::Board board;
  board.nodes = nodes;
  board.gpus = 2;
  board.bundles = {{0, 1, 4}};
  board.gpu_of_nic = {0, 1};
  ClusterSpec cluster = balance_test::build(board);
  for (int n = 0; n < nodes; ++n) {
    const auto first = static_cast<EndpointId>(2 * n);
    cluster.nodes.push_back({fmt::format("n{}", n), first, 2, 2});
    cluster.domains.push_back({{first, static_cast<EndpointId>(first + 1)}, 0});
  }
  return cluster;
}

// An engine says nothing to a node that is dead to it.
Nanos FakeEngine::last_heard(NodeId node) const {
  return world_.reachable(node, node_) && !world_.engine(node).dead.contains(node_) ? world_.now : -1;
}

LinkReading FakeEngine::read(LinkId link) {
  const auto it = readings.find(link);
  return it == readings.end() ? LinkReading{LinkSignal::kUp, {1, 1}, 0} : it->second;
}

void FakeEngine::emit(Event event, Nanos now) {
  event.number = ++event_number_;
  event.at = now;
  events.push(event);
}

Event FakeEngine::lane_event(EventKind kind, LaneId lane, Direction d, Cause cause) const {
  Event e;
  e.kind = kind;
  e.lane = lane;
  e.direction = d;
  e.cause = cause;
  return e;
}

void FakeEngine::release(EventKind kind, const void* pointer, Nanos now, GroupId group) {
  if (pointer == nullptr) return;
  Event e;
  e.kind = kind;
  e.group = group;
  e.pointer = const_cast<void*>(pointer);
  emit(e, now);
}

void FakeEngine::shrink(Group& group, const Command& c, Nanos now) {
  release(EventKind::kGroupReleased, group.lent_spec, now, c.group);
  for (const PlanSpec* p : group.lent_plans) release(EventKind::kPlanReleased, p, now);
  for (const NodeId n : nodes_of(world_.cluster, *c.group_spec)) {
    if (!dead.contains(n)) continue;
    world_.adopted_with_dead += fmt::format("{} adopts membership {} with {}; ", world_.cluster.nodes[node_].name,
                                            c.group_spec->membership, world_.cluster.nodes[n].name);
  }
  group.spec = *c.group_spec;
  group.plans = {*c.plan_spec};
  group.lent_spec = c.group_spec;
  group.lent_plans = {c.plan_spec};
  group.started = group.done = group.spec.first_op - 1;
  group.hold_from = ~OpNumber{0};
  world_.adopted(group.spec);
}

void FakeEngine::take(const Command& c, Nanos now) {
  if (c.kind != CommandKind::kInstallRoutes) log.push_back(c);
  const auto it = groups.find(c.group);
  Group* group = it == groups.end() ? nullptr : &it->second;
  switch (c.kind) {
    case CommandKind::kInstallRoutes:
      table = *c.routes;
      ++tables;
      release(EventKind::kRoutesReleased, lent_table_, now);
      lent_table_ = c.routes;
      break;
    case CommandKind::kCreateGroup: {
      Group& g = groups[c.group_spec->id] = {};
      g.spec = *c.group_spec;
      g.plans = {*c.plan_spec};
      g.lent_spec = c.group_spec;
      g.lent_plans = {c.plan_spec};
      g.started = g.done = g.spec.first_op - 1;
      world_.adopted(g.spec);
      break;
    }
    case CommandKind::kShrinkGroup:
      if (group != nullptr && !group->ended) shrink(*group, c, now);
      break;
    case CommandKind::kInstallPlan:
      if (group == nullptr || c.plan_spec->membership != group->spec.membership) {
        release(EventKind::kPlanReleased, c.plan_spec, now);
        break;
      }
      group->plans.push_back(*c.plan_spec);
      group->lent_plans.push_back(c.plan_spec);
      group->hold_from = ~OpNumber{0};
      break;
    case CommandKind::kHoldOps: {
      if (group == nullptr || !answers_holds) break;
      if (group->started < c.op) group->hold_from = std::min(group->hold_from, c.op);
      Event e;
      e.kind = EventKind::kHoldTaken;
      e.group = c.group;
      e.op = c.op;
      e.value = group->started;
      emit(e, now);
      break;
    }
    case CommandKind::kReleaseHold:
      if (group != nullptr) group->hold_from = ~OpNumber{0};
      break;
    case CommandKind::kEndGroup:
      if (group == nullptr) break;
      group->ended = true;
      group->end_status = static_cast<Status>(c.value);
      break;
    case CommandKind::kPeerDead:
      dead.insert(c.peer);
      for (auto& [id, g] : groups) {
        for (const EndpointId gpu : g.spec.members) {
          if (world_.cluster.gpus[gpu].node == c.peer) g.hold_from = 0;
        }
      }
      break;
    case CommandKind::kPeerAlive:
      dead.erase(c.peer);
      break;
    case CommandKind::kTakeSnapshot:
      release(EventKind::kSnapshotReady, c.snapshot, now);
      break;
    default:
      break;
  }
}

// A rank enters op after op; an op is done here when every node of the membership has started it.
void FakeEngine::run_ops(Nanos /*now*/) {
  for (auto& [id, g] : groups) {
    const GroupRecord* record = world_.plane(node_).group(id);
    if (g.ended || record == nullptr || record->state != GroupState::kReady) continue;
    const OpNumber next = g.started + 1;
    if (next < g.hold_from && g.started < g.done + 4 && world_.random_.chance(world_.faults.pace)) {
      const PlanSpec* plan = nullptr;
      for (const PlanSpec& p : g.plans) {
        if (p.from_op <= next) plan = &p;
      }
      g.started = next;
      world_.op_started(node_, g, next, plan->version);
    }
    const std::vector<NodeId> nodes = nodes_of(world_.cluster, g.spec);
    while (g.hold_from != 0 && g.done < g.started &&
           world_.started_[{g.spec.uuid_lo, g.spec.membership, g.done + 1}].size() == nodes.size()) {
      ++g.done;
      for (const Rank rank : ranks_on(world_.cluster, g.spec, node_)) {
        OpResult r;
        r.number = g.done;
        r.group = id;
        r.rank = rank;
        r.membership = g.spec.membership;
        world_.plane(node_).note_result(r);
      }
    }
  }
}

void FakeEngine::step(Nanos now) {
  Command c;
  while (commands.pop(c)) take(c, now);
  PeerMessage m;
  while (peer_out.pop(m)) {
    if (!dead.contains(m.to)) world_.carry(m, true);
  }
  run_ops(now);
}

World::World(const ClusterSpec& c, std::uint64_t seed, const ControlOptions& options)
    : cluster(c), options_(options), random_(seed) {
  bus_.world = this;
  nodes_.resize(cluster.nodes.size());
  cut_.assign(nodes_.size(), std::vector<bool>(nodes_.size(), false));
  for (std::size_t n = 0; n < nodes_.size(); ++n) start(static_cast<NodeId>(n));
}

bool World::Bus::send(const PeerMessage& message) {
  if (world->bus_cut) return false;
  if (!world->bus_silent) world->carry(message, false);
  return true;
}

void World::carry(const PeerMessage& message, bool in_band) {
  if (cut_[message.from][message.to]) return;
  for (int copy = 0; copy < 2; ++copy) {
    if (copy == 1 && !random_.chance(faults.duplicate)) break;
    if (random_.chance(faults.loss)) continue;
    const Nanos delay =
        20 * kMicro + static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(faults.most_delay_ns) + 1));
    flights_.emplace(now + delay, Flight{message, in_band});
  }
}

void World::kill(NodeId node) { nodes_[node].reset(); }

void World::start(NodeId node) {
  auto fresh = std::make_unique<Node>();
  fresh->engine = std::make_unique<FakeEngine>(*this, node);
  FakeEngine& e = *fresh->engine;
  fresh->plane =
      std::make_unique<ControlPlane>(cluster, node, random_.next() | 1, options_,
                                     EngineRings{e.commands, e.events, e.peer_out, e.peer_in}, bus_, e, e, memo_);
  nodes_[node] = std::move(fresh);
}

void World::run(Nanos span) {
  for (const Nanos end = now + span; now < end;) {
    now += kMilli;
    while (!flights_.empty() && flights_.begin()->first <= now) {
      const Flight flight = flights_.begin()->second;
      flights_.erase(flights_.begin());
      const PeerMessage& m = flight.message;
      if (!reachable(m.from, m.to)) continue;
      if (flight.in_band) {
        engine(m.to).peer_in.push(m);
      } else {
        plane(m.to).receive(m, now);
      }
    }
    for (auto& node : nodes_) {
      if (node == nullptr) continue;
      node->engine->step(now);
      if (node->plane->next_time(now) <= now) node->plane->tick(now);
    }
  }
}

GroupId World::create(const std::vector<EndpointId>& members, const std::string& name) {
  const NodeId node = cluster.gpus[members.front()].node;
  return plane(node).create_group(name, members, {"tester", kMiB, 0}, now);
}

bool World::ready(GroupId group) const {
  for (const auto& node : nodes_) {
    if (node == nullptr) continue;
    const GroupRecord* record = node->plane->group(group);
    if (record == nullptr || record->state != GroupState::kReady) return false;
  }
  return true;
}

void World::op_started(NodeId node, const FakeEngine::Group& group, OpNumber op, std::uint32_t version) {
  const OpKey key{group.spec.uuid_lo, group.spec.membership, op};
  const auto [it, fresh] = version_of_.emplace(key, version);
  if (!fresh && it->second != version && wrong_.empty()) {
    wrong_ =
        fmt::format("op {} of membership {} runs with plans {} and {}", op, group.spec.membership, it->second, version);
  }
  started_[key].insert(node);
}

void World::adopted(const GroupSpec& spec) {
  const auto [it, fresh] = members_of_.emplace(std::pair{spec.uuid_lo, spec.membership}, spec.members);
  if (!fresh && it->second != spec.members && wrong_.empty()) {
    wrong_ = fmt::format("membership {} means two different lists of ranks", spec.membership);
  }
}

std::string World::journals() const {
  std::string text;
  for (const auto& node : nodes_) {
    if (node == nullptr) continue;
    for (const std::string& line : node->plane->journal().lines()) text += "\n" + line;
  }
  return text;
}

void World::check_settled(GroupId id) {
  std::vector<NodeId> on;
  const GroupSpec* spec = nullptr;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n] == nullptr) continue;
    const GroupRecord* record = nodes_[n]->plane->group(id);
    if (record == nullptr || record->state == GroupState::kEnded) continue;
    on.push_back(static_cast<NodeId>(n));
    const auto complain = [&](const std::string& what) {
      if (wrong_.empty()) wrong_ = fmt::format("{}: {}", cluster.nodes[n].name, what);
    };
    if (record->shrink.open) complain("its membership is not settled");
    if (record->round.phase == PlanPhase::kInDoubt) complain("it is in doubt about a plan");
    const FakeEngine::Group& group = nodes_[n]->engine->groups.at(id);
    if (group.hold_from == 0) complain("its engine holds all ops");
    if (spec != nullptr && spec->members != record->spec.members) complain("two sides go on");
    spec = &record->spec;
  }
  if (spec != nullptr && nodes_of(cluster, *spec) != on && wrong_.empty()) {
    wrong_ = fmt::format("{} nodes go on, but the group's ranks are on {}", on.size(), nodes_of(cluster, *spec).size());
  }
}

}  // namespace lk::plane_test

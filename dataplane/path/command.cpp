// Command: what the control plane asks: routes, groups, plans, holds, dead peers, lanes off and on, snapshots.
// Groups and plans are made here, between ops: this is the only place of the turn that may allocate.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {

unsigned Engine::take_commands(Nanos now) noexcept {
  Command c;
  unsigned n = 0;
  for (; n < 16 && commands_.pop(c); ++n) {
    switch (c.kind) {
      case CommandKind::kInstallRoutes:
        install_routes(c.routes, now);
        break;
      case CommandKind::kCreateGroup:
        create_group(c.group_spec, c.plan_spec, now);
        break;
      case CommandKind::kInstallPlan:
        install_plan(c.plan_spec, now);
        break;
      case CommandKind::kHoldOps:
        hold_ops(c, now);
        break;
      case CommandKind::kReleaseHold:
        if (EngineGroup* g = group(c.group); g != nullptr) {
          g->hold_from = ~OpNumber{0};
          start_ready(*g, now);
        }
        break;
      case CommandKind::kShrinkGroup:
        shrink_group(c.group_spec, c.plan_spec, now);
        break;
      case CommandKind::kEndGroup:
        end_group(c, now);
        break;
      case CommandKind::kPeerDead:
        forget_peer(c.peer, now);
        break;
      case CommandKind::kPeerAlive:
        peers_[c.peer].dead = false;
        peers_[c.peer].incarnation = c.value;
        for (const std::uint32_t side : peers_[c.peer].sides) {
          if (sides_[side].state == LaneState::kDown) schedule_probe(sides_[side], now);
        }
        break;
      case CommandKind::kLaneOff:
        set_off(c.lane, static_cast<Direction>(c.value), true, now);
        break;
      case CommandKind::kLaneOn:
        set_off(c.lane, static_cast<Direction>(c.value), false, now);
        break;
      case CommandKind::kTakeSnapshot: {
        fill_snapshot(*c.snapshot, now);
        Event e;
        e.kind = EventKind::kSnapshotReady;
        e.pointer = c.snapshot;
        emit(e, now);
        break;
      }
    }
  }
  return n;
}

void Engine::install_routes(const RouteTable* table, Nanos now) noexcept {
  for (const std::uint32_t side : ours_) {
    LaneSide& s = sides_[side];
    const LaneRoute& r = table->routes[side];
    if (s.rate_GBps != r.rate_GBps) take_turn(s, r.rate_GBps);
    s.standby_GBps = r.standby_GBps;
    s.fresh = r.seen_event >= s.last_event;
  }
  if (table->link_GBps.size() == link_rate_.size())
    std::copy(table->link_GBps.begin(), table->link_GBps.end(), link_rate_.begin());
  for (std::uint32_t t = 0; t < trunks_.size(); ++t) {
    for (const std::uint32_t f : trunks_[t].flows) {
      if (flows_[f].head != kNoId) mark_dirty(t);
    }
  }
  const RouteTable* old = routes_;
  routes_ = table;
  if (old == nullptr) return;
  Event e;
  e.kind = EventKind::kRoutesReleased;
  e.pointer = const_cast<RouteTable*>(old);
  emit(e, now);
}

void Engine::create_group(const GroupSpec* spec, const PlanSpec* plan, Nanos now) {
  if (groups_.size() <= spec->id) groups_.resize(spec->id + std::size_t{1});
  groups_[spec->id] = std::make_unique<EngineGroup>();
  EngineGroup& g = *groups_[spec->id];
  g.running.reserve(options_.active_ops + 1U);
  adopt_members(g, spec, plan, now);
}

void Engine::adopt_members(EngineGroup& g, const GroupSpec* spec, const PlanSpec* plan, Nanos now) {
  g.spec = spec;
  g.plans.assign(1, plan);
  g.local.clear();
  g.nodes.clear();
  g.local_place.assign(spec->members.size(), kNoId16);
  for (Rank r = 0; r < spec->members.size(); ++r) {
    const NodeId node = cluster_.gpus[spec->members[r]].node;
    if (node == node_) {
      g.local_place[r] = static_cast<std::uint16_t>(g.local.size());
      g.local.push_back(r);
      g.domain = spec->domain_of[r];
    } else if (std::find(g.nodes.begin(), g.nodes.end(), node) == g.nodes.end()) {
      g.nodes.push_back(node);
      peers_[node].wanted = true;
    }
  }
  g.next_start = spec->first_op;
  g.highest_started = g.highest_entered = spec->first_op - 1;
  g.hold_from = ~OpNumber{0};
  add_flows(g);
  next_heartbeat_ = std::min(next_heartbeat_, now + options_.heartbeat_ns);
  arm(next_heartbeat_);
}

namespace {

// Pairs of ranks that a plan may make talk: inside the domain all, between domains the owners of a column.
bool may_talk(const GroupSpec& spec, Rank x, Rank y) noexcept {
  if (spec.domain_of[x] == spec.domain_of[y]) return x != y;
  for (std::uint16_t j = 0; j < spec.columns; ++j) {
    if (spec.owner(spec.domain_of[x], j) == x && spec.owner(spec.domain_of[y], j) == y) return true;
  }
  return false;
}

}  // namespace

// Slots of one flow and chunks under way at one owner: what the options say, or less where the busiest node of the
// group has so many flows that a quarter of its slots would not do. Every node computes the same from the same group.
void Engine::size_windows(EngineGroup& g) const noexcept {
  const GroupSpec& spec = *g.spec;
  std::size_t most = 1;
  for (NodeId node = 0; node < cluster_.nodes.size(); ++node) {
    std::size_t flows = 0;
    for (Rank to = 0; to < spec.members.size(); ++to) {
      if (cluster_.gpus[spec.members[to]].node != node) continue;
      for (Rank from = 0; from < spec.members.size(); ++from) {
        if (cluster_.gpus[spec.members[from]].node != node && may_talk(spec, from, to)) ++flows;
      }
    }
    most = std::max(most, flows);
  }
  const std::size_t part = std::max<std::size_t>(slots_.size() / 4 / most, kAtOnceSlots + 2);
  g.slots_per_flow = static_cast<unsigned>(std::min<std::size_t>(options_.slots_per_flow, part));
  g.active_chunks = std::min(options_.active_chunks, g.slots_per_flow - kAtOnceSlots);
}

void Engine::add_flows(EngineGroup& g) {
  const GroupSpec& spec = *g.spec;
  const std::size_t n = spec.members.size();
  size_windows(g);
  g.flow_out.assign(g.local.size() * n, kNoId);
  g.flows_in.clear();
  const auto flow_of = [&](EndpointId from, EndpointId to, bool outgoing) {
    for (std::uint32_t i = 0; i < flows_.size(); ++i) {
      if (flows_[i].group == spec.id && flows_[i].from == from && flows_[i].to == to && flows_[i].outgoing == outgoing)
        return i;
    }
    Flow f;
    f.group = spec.id;
    f.from = from;
    f.to = to;
    f.outgoing = outgoing;
    flows_.push_back(std::move(f));
    return static_cast<std::uint32_t>(flows_.size() - 1);
  };
  for (Flow& f : flows_) {
    if (f.group == spec.id) f.active = false;
  }
  for (std::size_t p = 0; p < g.local.size(); ++p) {
    const EndpointId me = spec.members[g.local[p]];
    for (Rank r = 0; r < n; ++r) {
      if (!may_talk(spec, g.local[p], r)) continue;
      const EndpointId other = spec.members[r];
      const std::uint32_t out = flow_of(me, other, true);
      Flow& f = flows_[out];
      f.active = true;
      f.granted_op = 0;
      f.remote.reserve(options_.slots_per_flow * std::size_t{2});
      f.trunk = find_trunk(me, other);
      LK_CHECK(f.trunk != kNoId);
      auto& list = trunks_[f.trunk].flows;
      if (std::find(list.begin(), list.end(), out) == list.end()) list.push_back(out);
      g.flow_out[p * n + r] = out;
      if (cluster_.gpus[other].node == node_) continue;
      const std::uint32_t in = flow_of(other, me, false);
      flows_[in].active = true;
      flows_[in].granted_op = 0;
      flows_[in].granted.reserve(options_.slots_per_flow);
      flows_[in].to_advertise.reserve(options_.slots_per_flow * std::size_t{2});
      grant_slots(flows_[in], in, g.slots_per_flow);
      flows_[in].to_advertise.assign(flows_[in].granted.begin(), flows_[in].granted.end());
      g.flows_in.push_back(in);
    }
  }
}

// New membership after a loss: all ops of the old one have failed; numbering goes on at first_op.
void Engine::shrink_group(const GroupSpec* spec, const PlanSpec* plan, Nanos now) {
  EngineGroup* g = group(spec->id);
  if (g == nullptr || g->ended) return;
  for (auto& op : g->ops) {
    if (op != nullptr && op->open) fail_op(*op, Status::kNodeLost, kNoId16, kNoId16, false, now);
  }
  deliver_failed_all(now);
  const bool waiting = std::any_of(failing_.begin(), failing_.end(), [&](const OpState* op) { return op->group == g; });
  if (waiting) {  // requests of the old membership are still under way: a moment later
    shrinks_.emplace_back(spec, plan);
    arm(now + kMilli / 4);
    return;
  }
  const GroupSpec* old = g->spec;
  const auto old_plans = g->plans;
  g->closed = {};
  adopt_members(*g, spec, plan, now);
  Event e;
  e.group = spec->id;
  e.kind = EventKind::kGroupReleased;
  e.pointer = const_cast<GroupSpec*>(old);
  emit(e, now);
  for (const PlanSpec* p : old_plans) {
    e.kind = EventKind::kPlanReleased;
    e.pointer = const_cast<PlanSpec*>(p);
    emit(e, now);
  }
}

void Engine::end_group(const Command& c, Nanos now) noexcept {
  EngineGroup* g = group(c.group);
  if (g == nullptr) return;
  g->end_status = static_cast<Status>(c.value);
  g->end_node = c.peer;
  for (auto& op : g->ops) {
    if (op != nullptr && op->open) fail_op(*op, g->end_status, c.peer, kNoId16, false, now);
  }
  g->ended = true;
  // Its slots stay granted: a sender that has not heard yet may still write them. What lands is given back.
  for (const std::uint32_t f : g->flows_in) flows_[f].active = false;
}

void Engine::install_plan(const PlanSpec* plan, Nanos now) noexcept {
  EngineGroup* g = group(plan->group);
  if (g == nullptr || plan->membership != g->spec->membership) {
    Event e;
    e.kind = EventKind::kPlanReleased;
    e.pointer = const_cast<PlanSpec*>(plan);
    emit(e, now);
    return;
  }
  // A plan that no open op can use any more goes back.
  while (g->plans.size() >= 2 && g->plans[1]->from_op <= g->next_start &&
         std::none_of(g->running.begin(), g->running.end(),
                      [&](const OpState* op) { return op->plan == g->plans.front(); })) {
    Event e;
    e.kind = EventKind::kPlanReleased;
    e.pointer = const_cast<PlanSpec*>(g->plans.front());
    emit(e, now);
    g->plans.erase(g->plans.begin());
  }
  g->plans.push_back(plan);
  g->hold_from = ~OpNumber{0};
  Event e;
  e.kind = EventKind::kPlanAdopted;
  e.group = plan->group;
  e.op = plan->from_op;
  e.value = plan->version;
  emit(e, now);
  start_ready(*g, now);
}

void Engine::hold_ops(const Command& c, Nanos now) noexcept {
  EngineGroup* g = group(c.group);
  if (g == nullptr) return;
  Event e;
  e.kind = EventKind::kHoldTaken;
  e.group = c.group;
  e.op = c.op;
  e.value = g->highest_started;
  if (g->highest_started < c.op) g->hold_from = std::min(g->hold_from, c.op);
  emit(e, now);
}

void Engine::set_off(LaneId lane, Direction d, bool off, Nanos now) noexcept {
  const std::uint32_t side = our_side(lane, d);
  LaneSide& s = sides_[side];
  if (!s.ours) return;
  if (!off) {
    if (s.state != LaneState::kOff) return;
    s.state = LaneState::kUp;
    std::erase(ailing_, side);
    mark_dirty(s.trunk);
    return;
  }
  // Drained, not cut: what is under way finishes; a lane that is down is left to its probes.
  if (s.state != LaneState::kUp && s.state != LaneState::kStalled) return;
  if (s.state == LaneState::kUp) ailing_.push_back(side);
  s.state = LaneState::kOff;
  emit_lane(EventKind::kLaneDown, s, Cause::kOperator, 0, now);
}

void Engine::fill_snapshot(Snapshot& out, Nanos now) noexcept {
  out.at = now;
  out.node = node_;
  out.lanes.clear();
  for (const std::uint32_t side : ours_) {
    const LaneSide& s = sides_[side];
    if (out.lanes.size() == out.lanes.capacity()) break;
    LaneSnapshot l;
    l.lane = s.lane;
    l.direction = static_cast<std::uint8_t>(s.direction);
    l.state = s.state;
    l.epoch = s.epoch;
    l.rate_GBps = s.fresh ? s.rate_GBps : 0;
    l.measured_GBps = s.measured_GBps;
    l.queued_bytes = s.queued_bytes;
    l.sent_bytes = s.sent_bytes;
    l.chunks = s.chunks;
    l.resent = s.resent;
    l.failures = s.failures;
    l.down_since = s.state == LaneState::kUp ? 0 : s.failed_at;
    l.last_event = s.last_event;
    out.lanes.push_back(l);
  }
  out.ops.clear();
  for (const auto& g : groups_) {
    if (g == nullptr) continue;
    for (const auto& op : g->ops) {
      if (op == nullptr || !op->open || out.ops.size() == out.ops.capacity()) continue;
      OpSnapshot o;
      o.group = g->spec->id;
      o.number = op->number;
      o.bytes = op->bytes;
      o.chunks = op->chunks;
      o.placed_least = op->chunks;
      for (const LocalRank& r : op->ranks) o.placed_least = std::min(o.placed_least, r.placed);
      o.age_ns = now - op->entered_at;
      o.status = op->status;
      out.ops.push_back(o);
    }
  }
  out.counters = counters_;
  out.slots_total = slots_.size();
  out.slots_granted = slots_.count(SlotState::kGranted);
  out.slots_held = slots_.count(SlotState::kHeld);
  out.slots_quarantined = 0;
  for (const std::uint32_t side : ailing_) out.slots_quarantined += sides_[side].fence_count;
}

}  // namespace lk

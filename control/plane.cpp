#include "control/plane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "control/peers/group_builder.hpp"

namespace lk {
namespace {

// Ops have begun with the plan in force: until then another one would only hold them again.
bool in_use(const GroupRecord& group) noexcept {
  return group.plan.from_op <= group.spec.first_op || group.round.highest_entered >= group.plan.from_op;
}

}  // namespace

ControlPlane::ControlPlane(const ClusterSpec& cluster, NodeId node, Incarnation incarnation,
                           const ControlOptions& options, const EngineRings& rings, PeerBus& bus, LinkWatch& watch,
                           const Liveness& liveness, BalanceMemo& memo)
    : cluster_(cluster),
      node_(node),
      options_(options),
      rings_(rings),
      watch_(watch),
      journal_(cluster.nodes[node].name),
      engine_(rings.commands),
      peers_(cluster, node, incarnation, options_.thresholds, bus, liveness, rings.peer_out),
      view_(cluster),
      routes_(cluster, node, options_.thresholds, options.policy, memo),
      groups_({cluster, node, options_.thresholds, peers_, engine_, journal_, *this}, incarnation),
      plans_({cluster, node, options_.thresholds, peers_, engine_, journal_, *this}, groups_),
      membership_({cluster, node, options_.thresholds, peers_, engine_, journal_, *this}, groups_, plans_),
      tally_(cluster),
      lane_tracks_(cluster.lanes.size() * 2) {
  for (LinkId link = 0; link < cluster.links.size(); ++link) {
    if (cluster.links[link].node != node) continue;
    own_links_.push_back(link);
    link_health_.emplace(link, LinkHealth(options_.thresholds));
  }
  for (LaneId lane = 0; lane < cluster.lanes.size(); ++lane) {
    for (const Direction d : {Direction::kForward, Direction::kBackward}) {
      if (view_.sender_of(lane, d) == node) own_sides_.push_back(std::size_t{lane} * 2 + static_cast<std::size_t>(d));
    }
  }
  for (Snapshot& snapshot : snapshots_) {
    snapshot.lanes.reserve(own_sides_.size());
    snapshot.ops.reserve(1024);
  }
}

PlanSpec ControlPlane::best_plan(const GroupSpec& group, Bytes chunk_most_bytes) {
  return routes_.best_plan(view_, group, chunk_most_bytes);
}

void ControlPlane::receive(const PeerMessage& message, Nanos now) { peers_.receive(message, now, false); }

// Events first: what failed is in the routes of this same turn.
void ControlPlane::tick(Nanos now) {
  ticked_at_ = now;
  PeerMessage message;
  while (rings_.peer_in.pop(message)) peers_.receive(message, now, true);
  take_events(now);
  take_readings(now);
  advance_timers(now);
  peers_.tick(now);
  take_notices(now);
  groups_.tick(now);
  plans_.tick(now);
  membership_.tick(now);
  take_notices(now);
  update_routes(now);
  propose_plans(now);
  advertise();
  tally_.write(journal_, now);
  peers_.flush(now);
  engine_.flush();
}

Nanos ControlPlane::next_time(Nanos now) const noexcept {
  if (!rings_.events.empty() || !rings_.peer_in.empty() || table_due_ || wanted_ == Urgency::kNow) return now;
  if (!unsaid_links_.empty() || !unsaid_sides_.empty()) return now;
  Nanos next = std::min({next_reading_, calm_at_, tally_.next_time(), peers_.next_time(now), groups_.next_time(),
                         plans_.next_time(), membership_.next_time()});
  for (const auto& [link, health] : link_health_) next = std::min(next, health.next_time());
  for (const std::size_t side : timed_sides_) next = std::min(next, lane_tracks_[side].next_time(options_.thresholds));
  if (!engine_.idle()) next = std::min(next, now + kMilli);
  for (const auto& [id, group] : groups_.all()) {
    if (group->state == GroupState::kReady && plan_due(*group) && group->round.phase == PlanPhase::kIdle &&
        !group->shrink.open && group->proposer(cluster_) == node_) {
      next = std::min(next, group->round.not_before);
    }
  }
  return std::max(next, now);
}

// The engine says that it has a smaller membership before any result of it.
void ControlPlane::note_result(const OpResult& result) {
  take_events(ticked_at_);
  groups_.note_result(result);
}

void ControlPlane::take_events(Nanos now) {
  Event event;
  while (rings_.events.pop(event)) take_event(event, now);
}

void ControlPlane::take_event(const Event& event, Nanos now) {
  tally_.add(event);
  if (event.lane < cluster_.lanes.size() && view_.sender_of(event.lane, event.direction) == node_) {
    const std::size_t side = std::size_t{event.lane} * 2 + static_cast<std::size_t>(event.direction);
    LaneTrack& track = lane_tracks_[side];
    if (event.number > track.seen_event()) table_due_ = true;
    if (track.take(event, options_.thresholds)) lane_changed(event.lane, event.direction, now);
  }
  switch (event.kind) {
    case EventKind::kLinkDown:
    case EventKind::kLinkUp: {
      const auto it = link_health_.find(event.link);
      if (it == link_health_.end()) break;
      const LinkState before = it->second.state();
      const bool changed =
          event.kind == EventKind::kLinkDown ? it->second.port_down(event.at) : it->second.port_up(event.at);
      if (changed) link_changed(event.link, before, now);
      break;
    }
    case EventKind::kHoldTaken:
      plans_.hold_taken(event, now);
      break;
    case EventKind::kPeerRestarted:
      peers_.heard_incarnation(event.peer, event.value, now);
      break;
    case EventKind::kGroupReleased:
      membership_.engine_shrunk(event.group);
      engine_.take_back(event.pointer);
      break;
    case EventKind::kPlanReleased:
    case EventKind::kRoutesReleased:
      engine_.take_back(event.pointer);
      break;
    case EventKind::kSnapshotReady:
      shown_ = event.pointer == &snapshots_[0] ? 0 : 1;
      have_snapshot_ = true;
      snapshot_lent_ = false;
      break;
    default:
      break;
  }
}

void ControlPlane::take_readings(Nanos now) {
  if (now < next_reading_) return;
  next_reading_ = now + options_.thresholds.reading_interval_ns;
  for (const LinkId link : own_links_) {
    LinkHealth& health = link_health_.at(link);
    const LinkState before = health.state();
    if (health.take_reading(watch_.read(link), now)) link_changed(link, before, now);
  }
}

void ControlPlane::advance_timers(Nanos now) {
  for (auto& [link, health] : link_health_) {
    if (health.next_time() > now) continue;
    const LinkState before = health.state();
    if (health.advance(now)) link_changed(link, before, now);
  }
  for (auto it = timed_sides_.begin(); it != timed_sides_.end();) {
    LaneTrack& track = lane_tracks_[*it];
    const auto lane = static_cast<LaneId>(*it / 2);
    const auto d = static_cast<Direction>(*it % 2);
    if (track.next_time(options_.thresholds) <= now && track.advance(options_.thresholds, now))
      lane_changed(lane, d, now);
    it = track.next_time(options_.thresholds) == kNever ? timed_sides_.erase(it) : std::next(it);
  }
}

void ControlPlane::take_notices(Nanos now) {
  auto& notices = peers_.notices();
  while (!notices.empty()) {
    const Notice notice = std::move(notices.front());
    notices.pop_front();
    take_notice(notice, now);
  }
}

void ControlPlane::take_notice(const Notice& notice, Nanos now) {
  const std::string& name = name_of_node(notice.node);
  switch (notice.kind) {
    case NoticeKind::kAlive:
      peer_alive(notice.node, notice.incarnation, now);
      break;
    case NoticeKind::kDead:
      peer_dead(notice, now);
      break;
    case NoticeKind::kSuspect:
      journal_.add(now, JournalLevel::kWarning, name + " is not heard, suspected");
      break;
    case NoticeKind::kTrusted:
      journal_.add(now, JournalLevel::kInfo, name + " is heard again");
      break;
    case NoticeKind::kBusLost:
      journal_.add(
          now, JournalLevel::kWarning,
          "control channel to " + name + " is silent; messages to it travel over its lanes, its traffic goes on");
      break;
    case NoticeKind::kBusBack:
      journal_.add(now, JournalLevel::kInfo, "control channel to " + name + " is back");
      break;
    case NoticeKind::kRefused:
      journal_.add(now, JournalLevel::kError,
                   name + " has declared this node dead and takes nothing from it until its agent starts anew");
      break;
    case NoticeKind::kRecord:
      if (!peers_.present(notice.node)) break;  // said before it died
      if (notice.record.kind == RecordKind::kHealth) {
        take_health(notice.node, notice.record, now);
      } else if (!groups_.take(notice.node, notice.record, now) && !plans_.take(notice.node, notice.record, now)) {
        membership_.take(notice.node, notice.record, now);
      }
  }
}

void ControlPlane::peer_alive(NodeId node, Incarnation incarnation, Nanos now) {
  engine_.peer_alive(node, incarnation);
  view_.forget(node);
  want(Urgency::kNow);
  journal_.add(now, JournalLevel::kInfo,
               fmt::format("{} is alive (incarnation {:016x})", name_of_node(node), incarnation));
  advertise_all(node);
}

// The engine hears of it first: nothing of that node may land while the rest is being settled.
void ControlPlane::peer_dead(const Notice& notice, Nanos now) {
  engine_.peer_dead(notice.node);
  journal_.add(now, JournalLevel::kError, fmt::format("{} is dead: {}", name_of_node(notice.node), notice.reason));
  view_.forget(notice.node);
  want(Urgency::kNow);
  groups_.node_lost(notice.node, now);
  membership_.node_lost(notice.node, now);
}

// The groups that are there; without one all GPUs that may be, as if they were one group.
std::vector<Demand> ControlPlane::demands() const {
  std::vector<Demand> out;
  for (const auto& [id, group] : groups_.all()) {
    if (!group->live() || group->spec.members.size() < 2) continue;
    Demand demand{group->spec.members, fractions_of(group->spec, group->plan)};
    if (std::find(out.begin(), out.end(), demand) == out.end()) out.push_back(std::move(demand));
  }
  if (!out.empty()) return out;
  Demand everyone;
  for (std::size_t gpu = 0; gpu < cluster_.gpus.size(); ++gpu) {
    const NodeId node = cluster_.gpus[gpu].node;
    if (node == node_ || peers_.state(node) != PeerState::kDead)
      everyone.members.push_back(static_cast<EndpointId>(gpu));
  }
  return {everyone};
}

void ControlPlane::update_routes(Nanos now) {
  if (groups_.changes() != groups_seen_) want(Urgency::kNow);
  groups_seen_ = groups_.changes();
  const bool calm = wanted_ && *wanted_ != Urgency::kNow;
  if (calm && now < routes_.changed_at() + options_.thresholds.route_interval_ns) {
    calm_at_ = routes_.changed_at() + options_.thresholds.route_interval_ns;
  } else if (wanted_) {
    calm_at_ = kNever;
    const Urgency urgency = *wanted_;
    wanted_.reset();
    if (routes_.consider(view_, demands(), urgency, now)) {
      if (!routes_.line().empty()) journal_.add(now, JournalLevel::kInfo, routes_.line());
      // A quick answer is looked at again when there is time.
      if (urgency == Urgency::kNow && !routes_.exact()) want(Urgency::kCalm);
    }
    table_due_ = true;  // stand-by rates follow the view in any case
    if (wanted_) calm_at_ = now + options_.thresholds.route_interval_ns;
  }
  if (!table_due_) return;
  table_due_ = false;
  engine_.install_routes(routes_.make_table(view_, lane_tracks_));
}

bool ControlPlane::plan_due(const GroupRecord& group) const noexcept {
  if (group.spec.members.size() < 2) return false;
  const auto it = plan_checks_.find(group.spec.id);
  if (group.round.again || it == plan_checks_.end() || it->second.view != view_.version()) return true;
  return it->second.waits && in_use(group);
}

void ControlPlane::propose_plans(Nanos now) {
  for (auto& [id, owned] : groups_.all()) {
    GroupRecord& group = *owned;
    if (!plans_.may_propose(group, now) || !plan_due(group)) continue;
    PlanCheck& check = plan_checks_[id];
    check = {view_.version(), false};
    const double gain = routes_.plan_gain(view_, group.spec, group.plan);
    const PlanSpec wanted = best_plan(group.spec, group.chunk_most_bytes);
    const bool worth = gain >= options_.thresholds.plan_gain_least && wanted.share != group.plan.share;
    group.round.again = false;
    if (!worth && wanted.chunk_bytes == group.plan.chunk_bytes) continue;
    if (std::isfinite(gain) && !in_use(group)) {
      check.waits = true;
      continue;
    }
    if (std::isfinite(gain)) {
      journal_.add(now, JournalLevel::kInfo,
                   fmt::format("group {}: another plan would gain {:.1f} %, proposed", group.spec.name, 100 * gain));
    } else {
      journal_.add(now, JournalLevel::kWarning,
                   fmt::format("group {}: its plan asks for traffic that no lane can carry, another is proposed",
                               group.spec.name));
    }
    plans_.propose(group, wanted, now);
  }
}

}  // namespace lk

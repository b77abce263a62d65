// The plane's part that shows: JSON objects, units in the names. Null where nothing is known.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "control/plane.hpp"

namespace lk {
namespace {

using nlohmann::json;

std::string gpu_name(const ClusterSpec& cluster, EndpointId gpu) {
  return fmt::format("{}.gpu{}", cluster.nodes[cluster.gpus[gpu].node].name, cluster.gpus[gpu].index);
}

json or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

std::map<std::size_t, const LaneSnapshot*> by_side(const Snapshot* snapshot) {
  std::map<std::size_t, const LaneSnapshot*> out;
  if (snapshot == nullptr) return out;
  for (const LaneSnapshot& lane : snapshot->lanes) out[std::size_t{lane.lane} * 2 + lane.direction] = &lane;
  return out;
}

}  // namespace

bool ControlPlane::request_snapshot() {
  if (snapshot_lent_) return false;
  snapshot_lent_ = true;
  engine_.take_snapshot(&snapshots_[have_snapshot_ ? 1 - shown_ : 0]);
  return true;
}

json ControlPlane::status(Nanos now) const {
  std::map<std::string, unsigned> states;
  for (const auto& [link, health] : link_health_) ++states[name_of(health.state())];
  unsigned unwell = 0;
  for (const std::size_t side : own_sides_) unwell += lane_tracks_[side].verdict() == LaneVerdict::kUp ? 0 : 1;
  unsigned live = 0;
  for (const auto& [id, group] : groups_.all()) live += group->live() ? 1 : 0;
  json out = {{"node", name_of_node(node_)},
              {"incarnation", fmt::format("{:016x}", peers_.incarnation())},
              {"at_ns", now},
              {"gpus", cluster_.nodes[node_].gpu_count},
              {"links", states},
              {"lane_directions", own_sides_.size()},
              {"lane_directions_not_up", unwell},
              {"groups", live},
              {"routes_version", routes_.version()},
              {"routes_changed_at_ns", routes_.version() == 0 ? json(nullptr) : json(routes_.changed_at())},
              {"chunks_resent", tally_.resent_chunks()},
              {"longest_failover_ns", tally_.longest_failover_ns()},
              {"peers", peers()}};
  return out;
}

json ControlPlane::peers() const {
  json out = json::array();
  for (std::size_t n = 0; n < cluster_.nodes.size(); ++n) {
    const auto node = static_cast<NodeId>(n);
    if (node == node_) continue;
    const Incarnation incarnation = peers_.incarnation_of(node);
    out.push_back({{"node", name_of_node(node)},
                   {"state", name_of(peers_.state(node))},
                   {"control_channel", peers_.bus_silent(node) ? "silent" : "up"},
                   {"incarnation", incarnation == 0 ? json(nullptr) : json(fmt::format("{:016x}", incarnation))}});
  }
  return out;
}

json ControlPlane::links() const {
  json out = json::array();
  for (const auto& [link, health] : link_health_) {
    const LinkSpec& spec = cluster_.links[link];
    out.push_back({{"name", spec.name},
                   {"kind", name_of(spec.kind)},
                   {"state", name_of(health.state())},
                   {"since_ns", health.since()},
                   {"reason", health.reason()},
                   {"nominal_GBps", spec.nominal_GBps},
                   {"weight_forward", health.weight(Direction::kForward)},
                   {"weight_backward", health.weight(Direction::kBackward)},
                   {"width", spec.width},
                   {"device", or_null(spec.device)},
                   {"failures", health.failures()}});
  }
  return out;
}

json ControlPlane::lanes() const {
  const auto seen = by_side(snapshot());
  json out = json::array();
  for (const std::size_t side : own_sides_) {
    const auto lane = static_cast<LaneId>(side / 2);
    const auto d = static_cast<Direction>(side % 2);
    const LaneSpec& spec = cluster_.lanes[lane];
    const LaneTrack& track = lane_tracks_[side];
    const bool forward = d == Direction::kForward;
    json row = {{"name", spec.name},
                {"kind", name_of(spec.kind)},
                {"rung", spec.rung},
                {"direction", forward ? "forward" : "backward"},
                {"from", gpu_name(cluster_, forward ? spec.a : spec.b)},
                {"to", gpu_name(cluster_, forward ? spec.b : spec.a)},
                {"state", name_of(track.verdict())},
                {"weight", track.weight()},
                {"rate_GBps", routes_.rate(lane, d)},
                {"nominal_GBps", spec.nominal_GBps},
                {"allowed", !routes_.barred(lane) && !view_.forbidden(lane)},
                {"failures", track.failures()}};
    const auto it = seen.find(side);
    const LaneSnapshot* s = it == seen.end() ? nullptr : it->second;
    if (s != nullptr) row["state"] = name_of(s->state);
    row["measured_GBps"] = s != nullptr ? json(s->measured_GBps) : json(nullptr);
    row["sent_bytes"] = s != nullptr ? json(s->sent_bytes) : json(nullptr);
    row["queued_bytes"] = s != nullptr ? json(s->queued_bytes) : json(nullptr);
    row["chunks"] = s != nullptr ? json(s->chunks) : json(nullptr);
    row["resent"] = s != nullptr ? json(s->resent) : json(nullptr);
    out.push_back(std::move(row));
  }
  return out;
}

// What carries a trunk instead, for a person.
std::string ControlPlane::carrier_text(TrunkId id, Direction d) const {
  const TrunkSpec& trunk = cluster_.trunks[id];
  LaneId best = kNoId;
  for (LaneId lane = trunk.first_lane; lane < trunk.first_lane + trunk.lane_count; ++lane) {
    if (routes_.rate(lane, d) > (best == kNoId ? 0 : routes_.rate(best, d))) best = lane;
  }
  return best == kNoId ? "nothing carries its trunk" : fmt::format("its trunk goes over {}", cluster_.lanes[best].name);
}

std::vector<std::string> ControlPlane::sick_lanes(Nanos now) const {
  struct Kind {
    unsigned lanes = 0;
    Nanos since = kNever;
    std::size_t first = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const std::size_t side : own_sides_) {
    const LaneTrack& track = lane_tracks_[side];
    const bool told = track.cause() == Cause::kFencedByPeer || track.cause() == Cause::kPeerDead;  // of the other node
    if (!track.off() && (!track.down() || told)) continue;
    const LaneSpec& lane = cluster_.lanes[side / 2];
    const auto is_sick = [this](const Hop& hop) {
      const auto it = link_health_.find(hop.link);
      return it != link_health_.end() && it->second.state() != LinkState::kUp;
    };
    if (std::any_of(lane.near_hops.begin(), lane.near_hops.end(), is_sick) ||
        std::any_of(lane.far_hops.begin(), lane.far_hops.end(), is_sick)) {
      continue;
    }
    Kind& kind = kinds[track.off() ? track.reason() : fmt::format("down: {}", track.reason())];
    if (kind.lanes++ == 0) kind.first = side;
    kind.since = std::min(kind.since, track.since());
  }
  std::vector<std::string> lines;
  for (const auto& [what, kind] : kinds) {
    const auto d = static_cast<Direction>(kind.first % 2);
    const LaneSpec& lane = cluster_.lanes[kind.first / 2];
    lines.push_back(fmt::format("lane {} {}{} for {:.1f} s {}; {}", lane.name,
                                d == Direction::kForward ? "forward" : "backward",
                                kind.lanes == 1 ? "" : fmt::format(" and {} more", kind.lanes - 1),
                                static_cast<double>(now - kind.since) / 1e9, what, carrier_text(lane.trunk, d)));
  }
  return lines;
}

json ControlPlane::trunks() const {
  const auto seen = by_side(snapshot());
  json out = json::array();
  for (const TrunkSpec& trunk : cluster_.trunks) {
    for (const Direction d : {Direction::kForward, Direction::kBackward}) {
      const bool forward = d == Direction::kForward;
      const EndpointId from = forward ? trunk.a : trunk.b, to = forward ? trunk.b : trunk.a;
      if (cluster_.gpus[from].node != node_) continue;
      GBps rate = 0;
      Bytes sent = 0;
      unsigned used = 0, up = 0;
      LaneId best = kNoId;
      for (LaneId lane = trunk.first_lane; lane < trunk.first_lane + trunk.lane_count; ++lane) {
        const std::size_t side = std::size_t{lane} * 2 + static_cast<std::size_t>(d);
        const GBps r = routes_.rate(lane, d);
        rate += r;
        used += r > 0 ? 1 : 0;
        up += lane_tracks_[side].verdict() == LaneVerdict::kUp ? 1 : 0;
        if (r > 0 && (best == kNoId || r > routes_.rate(best, d))) best = lane;
        if (const auto it = seen.find(side); it != seen.end()) sent += it->second->sent_bytes;
      }
      out.push_back({{"from", gpu_name(cluster_, from)},
                     {"to", gpu_name(cluster_, to)},
                     {"lanes", trunk.lane_count},
                     {"lanes_up", up},
                     {"lanes_used", used},
                     {"rate_GBps", rate},
                     {"most_over", best == kNoId ? json(nullptr) : json(cluster_.lanes[best].name)},
                     {"rung", best == kNoId ? json(nullptr) : json(cluster_.lanes[best].rung)},
                     {"sent_bytes", seen.empty() ? json(nullptr) : json(sent)}});
    }
  }
  return out;
}

json ControlPlane::groups(Nanos now) const {
  json out = json::array();
  for (const auto& [id, group] : groups_.all()) {
    json members = json::array();
    for (const EndpointId gpu : group->spec.members) members.push_back(gpu_name(cluster_, gpu));
    out.push_back({{"id", id},
                   {"name", group->spec.name},
                   {"uuid", fmt::format("{:016x}{:016x}", group->spec.uuid_hi, group->spec.uuid_lo)},
                   {"state", name_of(group->state)},
                   {"error", or_null(group->error)},
                   {"owner", group->owner},
                   {"age_ns", now - group->created_at},
                   {"membership", group->spec.membership},
                   {"members", members},
                   {"first_op", group->spec.first_op},
                   {"plan_version", group->plan.version},
                   {"plan_from_op", group->plan.from_op},
                   {"chunk_bytes", group->plan.chunk_bytes},
                   {"shares", group->plan.share}});
  }
  return out;
}

}  // namespace lk

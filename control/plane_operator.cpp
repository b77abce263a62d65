// The plane's part that people talk to: drain, off, weights, rebalance, and why things are as they are.
#include <fmt/format.h>

#include "control/plane.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr Direction kBoth[] = {Direction::kForward, Direction::kBackward};

const char* text_of(Direction d) { return d == Direction::kForward ? "forward" : "backward"; }

void check_lane(const ClusterSpec& cluster, LaneId lane) {
  if (lane >= cluster.lanes.size()) {
    throw InputError(fmt::format("lane {} is unknown, expected below {}", lane, cluster.lanes.size()));
  }
}

}  // namespace

GroupId ControlPlane::create_group(const std::string& name, std::span<const EndpointId> members,
                                   const GroupOptions& options, Nanos now) {
  return groups_.create(name, members, options, now);
}

void ControlPlane::end_group(GroupId id, Nanos now) {
  GroupRecord* group = groups_.find(id);
  if (group == nullptr || group->state == GroupState::kEnded) throw InputError(fmt::format("group {} is not here", id));
  groups_.destroy(*group, now);
}

LinkHealth& ControlPlane::own_link(LinkId link) {
  if (link >= cluster_.links.size()) {
    throw InputError(fmt::format("link {} is unknown, expected below {}", link, cluster_.links.size()));
  }
  const auto it = link_health_.find(link);
  if (it != link_health_.end()) return it->second;
  const LinkSpec& spec = cluster_.links[link];
  throw InputError(fmt::format("{} belongs to {}, ask there", spec.name, name_of_node(spec.node)));
}

void ControlPlane::drain_link(LinkId link, bool drained, Nanos now) {
  LinkHealth& health = own_link(link);
  const LinkState before = health.state();
  if (health.set_drained(drained, now)) link_changed(link, before, now);
}

void ControlPlane::set_link_off(LinkId link, bool off, Nanos now) {
  LinkHealth& health = own_link(link);
  const LinkState before = health.state();
  if (health.set_off(off, now)) link_changed(link, before, now);
}

void ControlPlane::set_lane_off(LaneId lane, bool off, Nanos now) {
  check_lane(cluster_, lane);
  bool ours = false;
  for (const Direction d : kBoth) {
    if (view_.sender_of(lane, d) != node_) continue;
    ours = true;
    if (!lane_tracks_[std::size_t{lane} * 2 + static_cast<std::size_t>(d)].set_off(off, now)) continue;
    engine_.set_lane_off(lane, d, off);
    lane_changed(lane, d, now);
  }
  const std::string& name = cluster_.lanes[lane].name;
  if (!ours) throw InputError(fmt::format("lane {} does not begin on {}", name, name_of_node(node_)));
  journal_.add(now, JournalLevel::kInfo, fmt::format("lane {} {} by the operator", name, off ? "off" : "on"));
}

void ControlPlane::set_lane_weight(LaneId lane, double weight, Nanos now) {
  check_lane(cluster_, lane);
  const std::string& name = cluster_.lanes[lane].name;
  if (!(weight >= 0 && weight <= 1)) {
    throw InputError(fmt::format("lane {}: weight {}, expected 0 to 1", name, weight));
  }
  bool ours = false;
  for (const Direction d : kBoth) {
    if (view_.sender_of(lane, d) != node_) continue;
    ours = true;
    if (lane_tracks_[std::size_t{lane} * 2 + static_cast<std::size_t>(d)].set_factor(weight))
      lane_changed(lane, d, now);
  }
  if (!ours) throw InputError(fmt::format("lane {} does not begin on {}", name, name_of_node(node_)));
  want(Urgency::kNow);
  journal_.add(now, JournalLevel::kInfo, fmt::format("lane {}: weight {:.3g} set by the operator", name, weight));
}

std::vector<Change> ControlPlane::rebalance(bool apply, Nanos now) {
  std::vector<Change> changes = routes_.changes(view_, demands());
  if (!apply) return changes;
  want(Urgency::kSettled);
  routes_.consider(view_, demands(), Urgency::kSettled, now);
  wanted_.reset();
  table_due_ = true;
  journal_.add(now, JournalLevel::kInfo,
               fmt::format("rebalanced by the operator: {} lane directions changed", changes.size()));
  return changes;
}

std::vector<std::string> ControlPlane::explain_link(LinkId link) const {
  if (link >= cluster_.links.size()) {
    throw InputError(fmt::format("link {} is unknown, expected below {}", link, cluster_.links.size()));
  }
  const LinkSpec& spec = cluster_.links[link];
  const LinkView& v = view_.link(link);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} ({} link of {}, nominal {:.4g} GB/s each way): {}", spec.name, name_of(spec.kind),
                              name_of_node(spec.node), spec.nominal_GBps, name_of(v.state)));
  const auto it = link_health_.find(link);
  if (it == link_health_.end()) {
    lines.push_back(fmt::format("as {} says; its reasons are known there", name_of_node(spec.node)));
  } else {
    lines.push_back(fmt::format("since {}: {}; {} failures so far", seconds_text(it->second.since()),
                                it->second.reason(), it->second.failures()));
  }
  lines.push_back(fmt::format("weight {:.3g} forward, {:.3g} backward", fraction_of_weight(v.weight[0]),
                              fraction_of_weight(v.weight[1])));
  unsigned lanes = 0;
  const auto over = [&](const std::vector<Hop>& hops) {
    for (const Hop& hop : hops) {
      if (hop.link == link) return true;
    }
    return false;
  };
  for (const LaneSpec& lane : cluster_.lanes) lanes += over(lane.near_hops) || over(lane.far_hops) ? 1 : 0;
  lines.push_back(fmt::format("{} lanes go over it", lanes));
  return lines;
}

std::vector<std::string> ControlPlane::explain_lane(LaneId lane) const {
  check_lane(cluster_, lane);
  const LaneSpec& spec = cluster_.lanes[lane];
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} ({}, rung {}, nominal {:.4g} GB/s)", spec.name, name_of(spec.kind), spec.rung,
                              spec.nominal_GBps));
  lines.push_back(routes_.reason(view_, lane));
  for (const Direction d : kBoth) {
    const LaneView& v = view_.lane(lane, d);
    if (view_.sender_of(lane, d) != node_) {
      lines.push_back(fmt::format("{}: weight {:.3g}{}, as {} says", text_of(d), fraction_of_weight(v.weight),
                                  v.off ? ", off" : "", name_of_node(view_.sender_of(lane, d))));
      continue;
    }
    const LaneTrack& track = lane_tracks_[std::size_t{lane} * 2 + static_cast<std::size_t>(d)];
    lines.push_back(fmt::format("{}: {} since {}: {}; rate {:.4g} GB/s, {} failures so far", text_of(d),
                                name_of(track.verdict()), seconds_text(track.since()), track.reason(),
                                routes_.rate(lane, d), track.failures()));
  }
  const auto tell_hops = [&](const std::vector<Hop>& hops) {
    for (const Hop& hop : hops) {
      const LinkView& v = view_.link(hop.link);
      const auto it = link_health_.find(hop.link);
      lines.push_back(fmt::format("over {}: {}, weight {:.3g} forward, {:.3g} backward{}",
                                  cluster_.links[hop.link].name, name_of(v.state), fraction_of_weight(v.weight[0]),
                                  fraction_of_weight(v.weight[1]),
                                  it == link_health_.end() ? "" : "; " + it->second.reason()));
    }
  };
  tell_hops(spec.near_hops);
  tell_hops(spec.far_hops);
  return lines;
}

}  // namespace lk

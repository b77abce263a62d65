// The plane's part that keeps the view of the cluster: this node's health into it and to the others, theirs from them.
#include <fmt/format.h>

#include <algorithm>

#include "control/plane.hpp"

namespace lk {
namespace {

std::string weight_text(const LinkHealth& health) {
  const double forward = health.weight(Direction::kForward), backward = health.weight(Direction::kBackward);
  if (forward == backward) return fmt::format("weight {:.3g}", forward);
  return fmt::format("weight {:.3g} forward, {:.3g} backward", forward, backward);
}

bool worse(const std::array<Weight, 2>& before, const std::array<Weight, 2>& after) {
  return after[0] < before[0] || after[1] < before[1];
}

}  // namespace

void ControlPlane::want(Urgency urgency) noexcept {
  if (!wanted_ || urgency > *wanted_) wanted_ = urgency;
}

void ControlPlane::link_changed(LinkId link, LinkState before, Nanos now) {
  const LinkHealth& health = link_health_.at(link);
  const LinkView old = view_.link(link);
  view_.set_link(link, {health.state(),
                        {weight_of(health.weight(Direction::kForward)), weight_of(health.weight(Direction::kBackward))},
                        weight_of(health.ramp())});
  unsaid_links_.insert(link);
  const bool revived = old.weight[0] + old.weight[1] == 0;
  if (worse(old.weight, view_.link(link).weight) || revived) {
    want(Urgency::kNow);
  } else {
    want(health.state() != before ? Urgency::kSettled : Urgency::kCalm);
  }
  if (health.state() == before && health.state() != LinkState::kDegraded) return;
  const bool bad = health.state() == LinkState::kDown || health.state() == LinkState::kDegraded;
  journal_.add(now, bad ? JournalLevel::kWarning : JournalLevel::kInfo,
               fmt::format("{} {} ({}) since {}, was {}; {}", cluster_.links[link].name, name_of(health.state()),
                           health.reason(), seconds_text(health.since()), name_of(before), weight_text(health)));
}

void ControlPlane::lane_changed(LaneId lane, Direction d, Nanos /*now*/) {
  const std::size_t side = std::size_t{lane} * 2 + static_cast<std::size_t>(d);
  const LaneTrack& track = lane_tracks_[side];
  const LaneView old = view_.lane(lane, d);
  const LaneView now{weight_of(track.weight()), track.off()};
  view_.set_lane(lane, d, now);
  unsaid_sides_.insert(side);
  if (track.next_time(options_.thresholds) != kNever) timed_sides_.insert(side);
  const bool turned = old.off != now.off || old.weight == 0 || now.weight < old.weight;
  if (turned) {
    want(Urgency::kNow);
  } else {
    want(now.weight == kWholeWeight ? Urgency::kSettled : Urgency::kCalm);
  }
}

Bytestring ControlPlane::health_record(bool reset, const std::set<LinkId>& links,
                                       const std::set<std::size_t>& sides) const {
  RecordWriter out;
  out.put(static_cast<std::uint8_t>(reset ? 1 : 0)).put(static_cast<std::uint32_t>(links.size()));
  for (const LinkId link : links) {
    const LinkView& v = view_.link(link);
    out.put(link).put(static_cast<std::uint8_t>(v.state)).put(v.weight[0]).put(v.weight[1]).put(v.ramp);
  }
  out.put(static_cast<std::uint32_t>(sides.size()));
  for (const std::size_t side : sides) {
    const LaneView& v = view_.lane(static_cast<LaneId>(side / 2), static_cast<Direction>(side % 2));
    out.put(static_cast<std::uint32_t>(side)).put(v.weight).put(static_cast<std::uint8_t>(v.off ? 1 : 0));
  }
  return out.bytes();
}

void ControlPlane::advertise() {
  if (unsaid_links_.empty() && unsaid_sides_.empty()) return;
  const Bytestring record = health_record(false, unsaid_links_, unsaid_sides_);
  for (std::size_t n = 0; n < cluster_.nodes.size(); ++n) {
    const auto node = static_cast<NodeId>(n);
    if (node != node_ && peers_.present(node)) peers_.send(node, RecordKind::kHealth, record);
  }
  unsaid_links_.clear();
  unsaid_sides_.clear();
}

void ControlPlane::advertise_all(NodeId to) {
  std::set<LinkId> links;
  std::set<std::size_t> sides;
  for (const LinkId link : own_links_) {
    if (view_.link(link) != LinkView{}) links.insert(link);
  }
  for (const std::size_t side : own_sides_) {
    const LaneView& v = view_.lane(static_cast<LaneId>(side / 2), static_cast<Direction>(side % 2));
    if (v != LaneView{}) sides.insert(side);
  }
  peers_.send(to, RecordKind::kHealth, health_record(true, links, sides));
}

void ControlPlane::take_health(NodeId from, const Record& record, Nanos now) {
  RecordReader in(record.body);
  if (in.get<std::uint8_t>() != 0) view_.forget(from);
  const auto links = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < links && in.ok(); ++i) {
    const auto link = in.get<std::uint32_t>();
    LinkView v;
    v.state = static_cast<LinkState>(
        std::min<std::uint8_t>(in.get<std::uint8_t>(), static_cast<std::uint8_t>(LinkState::kDrained)));
    v.weight[0] = in.get<std::uint16_t>();
    v.weight[1] = in.get<std::uint16_t>();
    v.ramp = in.get<std::uint16_t>();
    if (!in.ok() || link >= cluster_.links.size() || cluster_.links[link].node != from) continue;
    const LinkView old = view_.link(link);
    if (old == v) continue;
    view_.set_link(link, v);
    const bool now_needed =
        worse(old.weight, v.weight) || old.weight[0] + old.weight[1] == 0 || v.state == LinkState::kDrained;
    want(now_needed ? Urgency::kNow : v.state != old.state ? Urgency::kSettled : Urgency::kCalm);
    if (v.state == old.state) continue;
    journal_.add(now, JournalLevel::kInfo,
                 fmt::format("{} says: {} {}, was {}", name_of_node(from), cluster_.links[link].name, name_of(v.state),
                             name_of(old.state)));
  }
  const auto sides = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < sides && in.ok(); ++i) {
    const auto side = in.get<std::uint32_t>();
    LaneView v;
    v.weight = in.get<std::uint16_t>();
    v.off = in.get<std::uint8_t>() != 0;
    const auto lane = static_cast<LaneId>(side / 2);
    const auto d = static_cast<Direction>(side % 2);
    if (!in.ok() || lane >= cluster_.lanes.size() || view_.sender_of(lane, d) != from) continue;
    const LaneView old = view_.lane(lane, d);
    if (old == v) continue;
    view_.set_lane(lane, d, v);
    const bool turned = old.off != v.off || old.weight == 0 || v.weight < old.weight;
    want(turned ? Urgency::kNow : v.weight == kWholeWeight ? Urgency::kSettled : Urgency::kCalm);
  }
}

}  // namespace lk

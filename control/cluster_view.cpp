#include "control/cluster_view.hpp"

#include <algorithm>
#include <cmath>

namespace lk {

Weight weight_of(double fraction) noexcept {
  if (fraction <= 0) return 0;
  const double scaled = std::round(std::min(fraction, 1.0) * kWholeWeight);
  return std::max(Weight{1}, static_cast<Weight>(scaled));
}

double fraction_of_weight(Weight weight) noexcept { return static_cast<double>(weight) / kWholeWeight; }

ClusterView::ClusterView(const ClusterSpec& cluster)
    : cluster_(cluster), links_(cluster.links.size()), lanes_(cluster.lanes.size()) {}

void ClusterView::set_link(LinkId link, const LinkView& view) {
  if (links_[link] == view) return;
  links_[link] = view;
  ++version_;
}

void ClusterView::set_lane(LaneId lane, Direction d, const LaneView& view) {
  LaneView& mine = lanes_[lane][static_cast<std::size_t>(d)];
  if (mine == view) return;
  mine = view;
  ++version_;
}

void ClusterView::forget(NodeId node) {
  for (LinkId link = 0; link < links_.size(); ++link) {
    if (cluster_.links[link].node == node) set_link(link, {});
  }
  for (LaneId lane = 0; lane < lanes_.size(); ++lane) {
    for (const Direction d : {Direction::kForward, Direction::kBackward}) {
      if (sender_of(lane, d) == node) set_lane(lane, d, {});
    }
  }
}

NodeId ClusterView::sender_of(LaneId lane, Direction d) const noexcept {
  const LaneSpec& spec = cluster_.lanes[lane];
  return cluster_.gpus[d == Direction::kForward ? spec.a : spec.b].node;
}

LinkCapacities ClusterView::capacities() const {
  LinkCapacities capacity(links_.size());
  for (LinkId link = 0; link < links_.size(); ++link) {
    for (std::size_t d = 0; d < 2; ++d) {
      capacity[link][d] = cluster_.links[link].nominal_GBps * fraction_of_weight(links_[link].weight[d]);
    }
  }
  return capacity;
}

bool ClusterView::forbidden(LaneId lane) const noexcept {
  if (lanes_[lane][0].off || lanes_[lane][1].off) return true;
  const auto drained = [&](const Hop& hop) { return links_[hop.link].state == LinkState::kDrained; };
  const LaneSpec& spec = cluster_.lanes[lane];
  return std::any_of(spec.near_hops.begin(), spec.near_hops.end(), drained) ||
         std::any_of(spec.far_hops.begin(), spec.far_hops.end(), drained);
}

LaneHealth ClusterView::lane_health(const std::vector<bool>& barred) const {
  LaneHealth health(lanes_.size());
  for (LaneId lane = 0; lane < lanes_.size(); ++lane) {
    if (barred[lane] || lanes_[lane][0].off || lanes_[lane][1].off) continue;
    Weight ramp = kWholeWeight;
    for (const Hop& hop : cluster_.lanes[lane].near_hops) ramp = std::min(ramp, links_[hop.link].ramp);
    for (const Hop& hop : cluster_.lanes[lane].far_hops) ramp = std::min(ramp, links_[hop.link].ramp);
    for (std::size_t d = 0; d < 2; ++d) {
      const double weight = fraction_of_weight(lanes_[lane][d].weight);
      health[lane][d] = ramp == 0 ? weight : std::min(1.0, weight / fraction_of_weight(ramp));
    }
  }
  return health;
}

}  // namespace lk

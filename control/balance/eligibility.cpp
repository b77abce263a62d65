#include "control/balance/eligibility.hpp"

#include <algorithm>

namespace lk {
namespace {

bool path_alive(const BalanceInput& input, LaneId lane, Direction d) {
  if (input.health[lane][index_of(d)] <= 0.0) return false;
  const auto alive = [&](const Hop& hop) {
    const Direction over = d == Direction::kForward ? hop.direction : opposite(hop.direction);
    return input.capacity[hop.link][index_of(over)] > kDeadGBps;
  };
  const LaneSpec& spec = input.cluster.lanes[lane];
  if (spec.near_hops.empty() && spec.far_hops.empty()) return spec.nominal_GBps > kDeadGBps;
  return std::all_of(spec.near_hops.begin(), spec.near_hops.end(), alive) &&
         std::all_of(spec.far_hops.begin(), spec.far_hops.end(), alive);
}

bool last_resort(LaneKind kind) { return kind == LaneKind::kHost || kind == LaneKind::kTcp; }

}  // namespace

std::vector<Hop> hops_of(const LaneSpec& lane, Direction d) {
  std::vector<Hop> hops = lane.near_hops;
  hops.insert(hops.end(), lane.far_hops.begin(), lane.far_hops.end());
  if (d == Direction::kBackward) {
    for (Hop& hop : hops) hop.direction = opposite(hop.direction);
  }
  return hops;
}

std::optional<GBps> own_limit(const ClusterSpec& cluster, const LaneSpec& lane) {
  if (lane.near_hops.empty() && lane.far_hops.empty()) return lane.nominal_GBps;
  if (lane.nominal_GBps <= 0) return std::nullopt;
  GBps least = std::numeric_limits<GBps>::infinity();
  for (const Hop& hop : lane.near_hops) least = std::min(least, cluster.links[hop.link].nominal_GBps);
  for (const Hop& hop : lane.far_hops) least = std::min(least, cluster.links[hop.link].nominal_GBps);
  if (lane.nominal_GBps >= kFull * least) return std::nullopt;
  return lane.nominal_GBps;
}

bool lane_alive(const BalanceInput& input, LaneId lane, Direction d) {
  if (!path_alive(input, lane, d)) return false;
  return input.cluster.lanes[lane].addressable || path_alive(input, lane, opposite(d));
}

bool nvlink_healthy(const BalanceInput& input, LaneId lane, Direction d) {
  const LaneSpec& spec = input.cluster.lanes[lane];
  if (spec.kind != LaneKind::kNvlink || !lane_alive(input, lane, d)) return false;
  if (input.health[lane][index_of(d)] < kFull) return false;
  const std::vector<Hop> hops = hops_of(spec, d);
  return std::all_of(hops.begin(), hops.end(), [&](const Hop& hop) {
    return input.capacity[hop.link][index_of(hop.direction)] >= kFull * input.cluster.links[hop.link].nominal_GBps;
  });
}

GBps lane_reach(const BalanceInput& input, LaneId lane, Direction d) {
  if (!lane_alive(input, lane, d)) return 0;
  const LaneSpec& spec = input.cluster.lanes[lane];
  GBps least = own_limit(input.cluster, spec).value_or(std::numeric_limits<GBps>::infinity());
  for (const Hop& hop : hops_of(spec, d)) {
    least = std::min(least, input.capacity[hop.link][index_of(hop.direction)]);
  }
  const double health = input.health[lane][index_of(d)];
  return health >= kFull ? least : least * health;
}

std::optional<Hop> weakest_hop(const BalanceInput& input, LaneId lane, Direction d) {
  std::optional<Hop> weakest;
  double least = 0;
  for (const Hop& hop : hops_of(input.cluster.lanes[lane], d)) {
    const double fraction =
        input.capacity[hop.link][index_of(hop.direction)] / input.cluster.links[hop.link].nominal_GBps;
    if (weakest && fraction >= least) continue;
    weakest = hop;
    least = fraction;
  }
  return weakest;
}

std::vector<LaneId> eligible_lanes(const BalanceInput& input, TrunkId trunk, Direction d) {
  const TrunkSpec& spec = input.cluster.trunks[trunk];
  std::vector<LaneId> main, last;
  for (LaneId lane = spec.first_lane; lane < spec.first_lane + spec.lane_count; ++lane) {
    if (nvlink_healthy(input, lane, d)) return {lane};
    if (!lane_alive(input, lane, d)) continue;
    (last_resort(input.cluster.lanes[lane].kind) ? last : main).push_back(lane);
  }
  std::vector<LaneId>& lanes = main.empty() ? last : main;
  std::stable_sort(lanes.begin(), lanes.end(),
                   [&](LaneId x, LaneId y) { return input.cluster.lanes[x].rung < input.cluster.lanes[y].rung; });
  return lanes;
}

}  // namespace lk

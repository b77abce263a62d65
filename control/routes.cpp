#include "control/routes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "control/balance/eligibility.hpp"
#include "control/peers/group_builder.hpp"

namespace lk {
namespace {

// Work that a failure may wait for, and that may be spent when there is time (balance.hpp: about a nanosecond each).
constexpr BalanceLimits kQuick{2500, 4'000'000};
constexpr BalanceLimits kThorough{2500, 20'000'000};

constexpr double kTrickle = 1.0 / 64;  // of nominal: a lane that is thought to be down
constexpr double kInUse = 0.005;       // of its trunk's bytes: below this a lane does not set the size of chunks
constexpr double kToldChange = 0.005;  // of its trunk's bytes
constexpr Direction kBoth[] = {Direction::kForward, Direction::kBackward};

double fraction_of(const ClusterSpec& cluster, const std::vector<std::array<GBps, 2>>& rates, LaneId lane,
                   Direction d) {
  const TrunkSpec& trunk = cluster.trunks[cluster.lanes[lane].trunk];
  double sum = 0;
  for (LaneId other = trunk.first_lane; other < trunk.first_lane + trunk.lane_count; ++other)
    sum += rates[other][index_of(d)];
  return sum > 0 ? rates[lane][index_of(d)] / sum : 0;
}

}  // namespace

RoutePlanner::RoutePlanner(const ClusterSpec& cluster, NodeId self, const Thresholds& thresholds,
                           const RoutePolicy& policy, BalanceMemo& memo)
    : cluster_(cluster), self_(self), thresholds_(thresholds), memo_(memo), rates_(cluster.lanes.size(), {0, 0}) {
  for (const LaneSpec& lane : cluster.lanes) barred_.push_back(policy.never[static_cast<std::size_t>(lane.kind)]);
}

RoutePlanner::Inputs RoutePlanner::inputs_of(const ClusterView& view) const {
  return {view.capacities(), view.lane_health(barred_)};
}

bool RoutePlanner::sent_here(LaneId lane, Direction d) const noexcept {
  const LaneSpec& spec = cluster_.lanes[lane];
  return cluster_.gpus[d == Direction::kForward ? spec.a : spec.b].node == self_;
}

bool RoutePlanner::consider(const ClusterView& view, const std::vector<Demand>& demands, Urgency urgency, Nanos now) {
  const Inputs in = inputs_of(view);
  const BalanceLimits& limits = urgency == Urgency::kNow ? kQuick : kThorough;
  std::vector<Balance> proposed;
  proposed.reserve(demands.size());
  for (const Demand& demand : demands)
    proposed.push_back(memo_.solve(input(in, demand.members), demand.shares, limits));
  if (urgency == Urgency::kCalm && demands == demands_ && !worth_it(in, demands, proposed, now)) return false;
  adopt(in, demands, std::move(proposed), now);
  return true;
}

bool RoutePlanner::worth_it(const Inputs& in, const std::vector<Demand>& demands, const std::vector<Balance>& proposed,
                            Nanos now) {
  const RebalancePolicy policy{thresholds_.route_gain_least, thresholds_.route_interval_ns};
  for (std::size_t i = 0; i < demands.size(); ++i) {
    const auto decision =
        decide_rebalance(input(in, demands[i].members), balances_[i], proposed[i], policy, now - changed_at_);
    if (decision.apply) return true;
  }
  return false;
}

void RoutePlanner::adopt(const Inputs& in, const std::vector<Demand>& demands, std::vector<Balance> proposed,
                         Nanos now) {
  const auto before = rates_;
  exact_ = true;
  for (auto& rate : rates_) rate = {0, 0};
  // A trunk that a group's plan uses counts before one that it only could use.
  for (const bool planned : {true, false}) {
    for (const Balance& b : proposed) {
      for (LaneId lane = 0; lane < rates_.size(); ++lane) {
        const TrunkId trunk = cluster_.lanes[lane].trunk;
        for (std::size_t d = 0; d < 2; ++d) {
          bool elsewhere = false;
          for (const Balance& other : proposed) elsewhere = elsewhere || other.trunk_GBps[trunk][d] > 0;
          if (planned ? b.trunk_GBps[trunk][d] > 0 : !elsewhere)
            rates_[lane][d] = std::max(rates_[lane][d], b.lane_GBps[lane][d]);
        }
      }
    }
  }
  for (const Balance& b : proposed) exact_ = exact_ && b.exact;
  demands_ = demands;
  balances_ = std::move(proposed);
  changed_at_ = now;
  tell(in, before);
}

// How many of this node's sending sides changed, and the first of them with its reason.
void RoutePlanner::tell(const Inputs& in, const std::vector<std::array<GBps, 2>>& before) {
  line_.clear();
  unsigned changed = 0;
  LaneId first = kNoId;
  Direction direction{};
  double most = 0;
  for (LaneId lane = 0; lane < rates_.size(); ++lane) {
    for (const Direction d : kBoth) {
      if (!sent_here(lane, d)) continue;
      const double moved = std::fabs(fraction_of(cluster_, rates_, lane, d) - fraction_of(cluster_, before, lane, d));
      if (moved <= kToldChange) continue;
      ++changed;
      if (moved <= most) continue;
      most = moved;
      first = lane;
      direction = d;
    }
  }
  if (first == kNoId || balances_.empty()) return;
  const auto& members = demands_.front().members;
  line_ = fmt::format("routes: {} lane directions changed; most {} {}, {:.0f} % of its trunk before, {:.0f} % now: {}",
                      changed, cluster_.lanes[first].name, direction == Direction::kForward ? "forward" : "backward",
                      100 * fraction_of(cluster_, before, first, direction),
                      100 * fraction_of(cluster_, rates_, first, direction),
                      lane_reason(input(in, members), balances_.front(), first, direction));
}

std::unique_ptr<const RouteTable> RoutePlanner::make_table(const ClusterView& view, const std::vector<LaneTrack>& own) {
  const Inputs in = inputs_of(view);
  const std::vector<EndpointId> nobody;
  auto table = std::make_unique<RouteTable>();
  table->version = ++version_;
  table->routes.resize(cluster_.lanes.size() * 2);
  for (LaneId lane = 0; lane < cluster_.lanes.size(); ++lane) {
    const bool forbidden = barred_[lane] || view.forbidden(lane);
    for (const Direction d : kBoth) {
      if (!sent_here(lane, d)) continue;
      const std::size_t side = std::size_t{lane} * 2 + index_of(d);
      LaneRoute& route = table->routes[side];
      route.seen_event = own[side].seen_event();
      if (forbidden || (view.lane(lane, d).weight == 0 && !own[side].down())) continue;  // set to 0 by the operator
      route.rate_GBps = lane_alive(input(in, nobody), lane, d) ? rates_[lane][index_of(d)] : 0;
      route.standby_GBps =
          std::max(lane_reach(input(in, nobody), lane, d), cluster_.lanes[lane].nominal_GBps * kTrickle);
    }
  }
  table->link_GBps.reserve(cluster_.links.size() * 2);
  for (LinkId link = 0; link < cluster_.links.size(); ++link) {
    for (std::size_t d = 0; d < 2; ++d) {
      table->link_GBps.push_back(std::max(in.capacity[link][d], cluster_.links[link].nominal_GBps * kTrickle));
    }
  }
  return table;
}

std::vector<Change> RoutePlanner::changes(const ClusterView& view, const std::vector<Demand>& demands) {
  const Inputs in = inputs_of(view);
  std::vector<Change> out;
  for (std::size_t i = 0; i < demands.size(); ++i) {
    const BalanceInput now = input(in, demands[i].members);
    const Balance proposed = memo_.solve(now, demands[i].shares, kThorough);
    Balance current = proposed;
    current.lane_GBps = rates_;
    for (Change& change : changes_between(now, current, proposed)) {
      if (sent_here(change.lane, change.direction)) out.push_back(std::move(change));
    }
  }
  return out;
}

std::string RoutePlanner::reason(const ClusterView& view, LaneId lane) const {
  if (barred_[lane]) return fmt::format("not used: the policy forbids {}", name_of(cluster_.lanes[lane].kind));
  if (balances_.empty()) return "no routes yet";
  const Inputs in = inputs_of(view);
  // The group that uses its trunk, if there is one.
  std::size_t at = 0;
  for (std::size_t i = balances_.size(); i-- > 0;) {
    const auto& asked = balances_[i].trunk_GBps[cluster_.lanes[lane].trunk];
    if (asked[0] > 0 || asked[1] > 0) at = i;
  }
  return lane_reason(input(in, demands_[at].members), balances_[at], lane);
}

PlanSpec RoutePlanner::best_plan(const ClusterView& view, const GroupSpec& group, Bytes chunk_most_bytes) {
  ChunkLimits limits;
  limits.most_bytes = chunk_most_bytes;
  PlanSpec plan = default_plan(cluster_, group, limits);
  const Inputs in = inputs_of(view);
  const BalanceInput now = input(in, group.members);
  const Balance best = memo_.solve(now, {}, kThorough);
  if (!best.feasible || best.share.empty()) return plan;
  plan.share = whole_shares(best.share);
  GBps slowest = std::numeric_limits<GBps>::infinity();
  for (LaneId lane = 0; lane < cluster_.lanes.size(); ++lane) {
    for (const Direction d : kBoth) {
      const GBps asked = best.trunk_GBps[cluster_.lanes[lane].trunk][index_of(d)];
      if (asked <= 0 || best.lane_GBps[lane][index_of(d)] < kInUse * asked) continue;
      slowest = std::min(slowest, lane_reach(now, lane, d));
    }
  }
  plan.chunk_bytes = chunk_bytes_at(slowest, limits);
  return plan;
}

double RoutePlanner::plan_gain(const ClusterView& view, const GroupSpec& group, const PlanSpec& plan) {
  const Inputs in = inputs_of(view);
  const BalanceInput now = input(in, group.members);
  const Balance best = memo_.solve(now, {}, kThorough);
  const double with_plan = memo_.solve(now, fractions_of(group, plan), kThorough).predicted_ns_per_byte;
  if (!best.feasible || best.predicted_ns_per_byte <= 0) return 0;
  return with_plan / best.predicted_ns_per_byte - 1;
}

}  // namespace lk

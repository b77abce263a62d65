#include "control/balance/rebalance.hpp"

#include <fmt/format.h>

#include <cmath>

#include "control/balance/eligibility.hpp"

namespace lk {
namespace {

double fraction_of(const ClusterSpec& cluster, const Balance& state, LaneId lane, Direction d) {
  const TrunkSpec& trunk = cluster.trunks[cluster.lanes[lane].trunk];
  double sum = 0;
  for (LaneId other = trunk.first_lane; other < trunk.first_lane + trunk.lane_count; ++other) {
    sum += state.lane_GBps[other][index_of(d)];
  }
  return sum > 0 ? state.lane_GBps[lane][index_of(d)] / sum : 0;
}

}  // namespace

RebalanceDecision decide_rebalance(const BalanceInput& input, const Balance& current, const Balance& proposed,
                                   const RebalancePolicy& policy, Nanos since_last_ns) {
  RebalanceDecision decision;
  decision.current_ns_per_byte = predicted_ns_per_byte(input, current.share, current.lane_GBps);
  decision.proposed_ns_per_byte = proposed.predicted_ns_per_byte;
  if (!proposed.feasible) {
    decision.reason = "refused: no set of lanes joins all members";
    return decision;
  }
  if (!std::isfinite(decision.current_ns_per_byte)) {
    decision.apply = true;
    decision.gain = std::numeric_limits<double>::infinity();
    decision.reason = "applied: lanes in use cannot carry anything now";
    return decision;
  }
  decision.gain =
      decision.proposed_ns_per_byte > 0 ? decision.current_ns_per_byte / decision.proposed_ns_per_byte - 1 : 0;
  const double percent = 100 * decision.gain;
  const bool large = decision.gain >= policy.min_gain && since_last_ns >= policy.min_interval_ns;
  const bool patient = decision.gain >= policy.min_gain / 10 && since_last_ns / 10 >= policy.min_interval_ns;
  decision.apply = large || patient;
  if (decision.apply) {
    decision.reason = fmt::format("applied: gains {:.1f} %", percent);
  } else if (decision.gain < policy.min_gain) {
    decision.reason = fmt::format("refused: gains {:.1f} %, needs {:.1f} %", percent, 100 * policy.min_gain);
  } else {
    decision.reason = fmt::format("refused: gains {:.1f} %, but the last change is {} ms old and {} ms must pass",
                                  percent, since_last_ns / kMilli, policy.min_interval_ns / kMilli);
  }
  return decision;
}

std::vector<Change> changes_between(const BalanceInput& input, const Balance& current, const Balance& proposed,
                                    double least) {
  std::vector<Change> changes;
  for (LaneId lane = 0; lane < input.cluster.lanes.size(); ++lane) {
    for (const Direction d : {Direction::kForward, Direction::kBackward}) {
      const double from = fraction_of(input.cluster, current, lane, d);
      const double to = fraction_of(input.cluster, proposed, lane, d);
      if (std::fabs(to - from) <= least) continue;
      changes.push_back({lane, d, from, to, lane_reason(input, proposed, lane, d)});
    }
  }
  return changes;
}

}  // namespace lk

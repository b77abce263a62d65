#include "control/balance/balance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "control/balance/eligibility.hpp"
#include "control/balance/flow_program.hpp"
#include "control/balance/problem.hpp"
#include "control/balance/proportional.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr double kSame = 1e-6;  // times nearer than this fraction are the same
constexpr double kInfinite = std::numeric_limits<double>::infinity();

using Splits = std::vector<std::vector<double>>;  // per demand, per option

struct Solution {
  GBps bound = 0;  // rate of the whole, 1 / bound_ns_per_byte
  bool exact = true;
  bool best_shares = false;  // proved
  std::vector<double> shares;
  Splits splits;
};

Splits splits_of(const FlowProgram& program, std::size_t demands) {
  Splits splits(demands);
  for (std::size_t t = 0; t < demands; ++t) splits[t] = program.split(t);
  return splits;
}

// Time per byte of given shares and splits, from the loads themselves and not from the solver's word.
double time_of(const Problem& problem, const std::vector<double>& shares, const Splits& splits) {
  std::vector<double> loads(problem.capacity.size(), 0.0);
  for (std::size_t t = 0; t < splits.size(); ++t) {
    const TrunkDemand& demand = problem.demands[t];
    const double bytes = demand_of(demand, shares);
    if (bytes <= 0) continue;
    if (demand.options.empty()) return kInfinite;
    for (std::size_t k = 0; k < splits[t].size(); ++k) {
      for (const std::uint32_t r : problem.resources_of(demand.options[k])) loads[r] += bytes * splits[t][k];
    }
  }
  double time = 0;
  for (std::size_t r = 0; r < loads.size(); ++r) {
    if (loads[r] > 0) time = std::max(time, loads[r] / problem.capacity[r]);
  }
  return time;
}

// The same bytes for every home of a column.
std::vector<double> homes_evened(const Problem& problem, const std::vector<double>& shares) {
  std::vector<double> evened(shares.size());
  for (std::size_t j = 0; j < problem.columns; ++j) {
    const auto first = shares.begin() + static_cast<std::ptrdiff_t>(j * problem.homes);
    double sum = 0;
    for (std::size_t h = 0; h < problem.homes; ++h) sum += first[static_cast<std::ptrdiff_t>(h)];
    for (std::size_t h = 0; h < problem.homes; ++h) {
      evened[j * problem.homes + h] = sum / static_cast<double>(problem.homes);
    }
  }
  return evened;
}

Solution solve_given(const Problem& problem, const BalanceLimits& limits, std::vector<double> shares) {
  Solution solution;
  solution.shares = std::move(shares);
  FlowProgram program(problem, limits, solution.shares);
  program.maximise();
  solution.bound = program.total();
  solution.exact = program.exact();
  solution.best_shares = program.no_shares_are_better();
  program.settle_ties();
  solution.splits = splits_of(program, problem.demands.size());
  return solution;
}

// Even shares where they are as good as the best; else the best, as even as can be.
Solution solve_free(const Problem& problem, BalanceLimits limits) {
  Solution even = solve_given(problem, limits, even_shares(problem));
  if (even.best_shares) return even;
  FlowProgram free(problem, limits);
  free.maximise();
  if (even.bound >= free.total() * (1 - kSame)) {
    even.exact = free.exact();
    return even;
  }
  Solution best;
  best.bound = free.total();
  best.exact = free.exact();
  free.settle_ties();
  best.shares = free.shares();
  best.splits = splits_of(free, problem.demands.size());
  const std::vector<double> evened = homes_evened(problem, best.shares);
  if (time_of(problem, evened, best.splits) * best.bound <= 1 + kSame) best.shares = evened;
  return best;
}

Solution solve_by_rule(const Problem& problem, std::vector<double> shares) {
  Solution solution;
  solution.exact = false;
  solution.shares = std::move(shares);
  solution.splits = proportional_splits(problem, solution.shares);
  const double time = time_of(problem, solution.shares, solution.splits);
  solution.bound = time > 0 ? 1 / time : 0;
  return solution;
}

// A trunk without a plan: its first lane alone while that is whole, else what each of its lanes could carry.
void fill_unplanned(const BalanceInput& input, Balance& result) {
  for (TrunkId trunk = 0; trunk < input.cluster.trunks.size(); ++trunk) {
    for (const Direction d : {Direction::kForward, Direction::kBackward}) {
      if (result.trunk_GBps[trunk][index_of(d)] > 0) continue;
      const std::vector<LaneId> lanes = eligible_lanes(input, trunk, d);
      for (const LaneId lane : lanes) {
        const GBps reach = lane_reach(input, lane, d);
        result.lane_GBps[lane][index_of(d)] = reach;
        if (lane == lanes.front() && reach >= kFull * input.cluster.lanes[lane].nominal_GBps) break;
      }
    }
  }
}

Balance to_balance(const BalanceInput& input, const Problem& problem, const Solution& solution) {
  Balance result;
  result.exact = solution.exact;
  result.lane_GBps.assign(input.cluster.lanes.size(), {0, 0});
  result.trunk_GBps.assign(input.cluster.trunks.size(), {0, 0});
  result.share.assign(problem.columns, std::vector<double>(problem.homes));
  for (std::size_t j = 0; j < problem.columns; ++j) {
    for (std::size_t h = 0; h < problem.homes; ++h) result.share[j][h] = solution.shares[j * problem.homes + h];
  }
  result.predicted_ns_per_byte = solution.bound > 0 ? time_of(problem, solution.shares, solution.splits) : kInfinite;
  if (problem.demands.empty()) {  // one member: nothing to move
    result.predicted_ns_per_byte = 0;
    result.exact = true;
  }
  result.feasible = result.predicted_ns_per_byte < kInfinite;
  // Not above what was just shown to be possible (rounding in the solver).
  result.bound_ns_per_byte =
      std::min(result.predicted_ns_per_byte, solution.bound > 0 ? 1 / solution.bound : kInfinite);
  for (std::size_t t = 0; t < problem.demands.size() && result.feasible; ++t) {
    const TrunkDemand& demand = problem.demands[t];
    if (demand.options.empty()) continue;
    const std::size_t d = index_of(demand.direction);
    const GBps rate = demand_of(demand, solution.shares) / result.predicted_ns_per_byte;
    result.trunk_GBps[demand.trunk][d] = rate;
    for (std::size_t k = 0; k < demand.options.size(); ++k) {
      result.lane_GBps[demand.options[k].lane][d] = rate * solution.splits[t][k];
    }
  }
  fill_unplanned(input, result);
  return result;
}

std::vector<double> flatten(const Problem& problem, const Shares& shares) {
  std::vector<double> flat;
  for (const auto& homes : shares) flat.insert(flat.end(), homes.begin(), homes.end());
  const bool shaped =
      shares.size() == problem.columns &&
      std::all_of(shares.begin(), shares.end(), [&](const auto& homes) { return homes.size() == problem.homes; });
  if (!shaped) {
    throw InputError(fmt::format("balance: shares for {} columns, expected {} columns of {} homes", shares.size(),
                                 problem.columns, problem.homes));
  }
  return flat;
}

}  // namespace

LinkCapacities nominal_capacities(const ClusterSpec& cluster) {
  LinkCapacities capacity;
  for (const LinkSpec& link : cluster.links) capacity.push_back({link.nominal_GBps, link.nominal_GBps});
  return capacity;
}

LaneHealth full_health(const ClusterSpec& cluster) { return LaneHealth(cluster.lanes.size(), {1.0, 1.0}); }

Balance balance(const BalanceInput& input, const BalanceLimits& limits) {
  const Problem problem = make_problem(input);
  const bool small = problem.part_count() <= limits.max_variables;
  return to_balance(input, problem, small ? solve_free(problem, limits) : solve_by_rule(problem, even_shares(problem)));
}

Balance balance_with_shares(const BalanceInput& input, const Shares& shares, const BalanceLimits& limits) {
  const Problem problem = make_problem(input);
  std::vector<double> flat = flatten(problem, shares);
  const bool small = problem.part_count() <= limits.max_variables;
  return to_balance(input, problem,
                    small ? solve_given(problem, limits, std::move(flat)) : solve_by_rule(problem, std::move(flat)));
}

double predicted_ns_per_byte(const BalanceInput& input, const Shares& shares,
                             const std::vector<std::array<GBps, 2>>& lane_GBps) {
  const Problem problem = make_problem(input);
  const std::vector<double> flat = flatten(problem, shares);
  std::vector<std::array<double, 2>> loads(input.cluster.links.size(), {0, 0});
  double time = 0;
  for (const TrunkDemand& demand : problem.demands) {
    const double bytes = demand_of(demand, flat);
    if (bytes <= 0) continue;
    if (demand.trunk == kNoId) return kInfinite;
    const TrunkSpec& trunk = input.cluster.trunks[demand.trunk];
    const std::size_t d = index_of(demand.direction);
    double sum = 0;
    for (LaneId lane = trunk.first_lane; lane < trunk.first_lane + trunk.lane_count; ++lane) sum += lane_GBps[lane][d];
    if (sum <= 0) return kInfinite;
    for (LaneId lane = trunk.first_lane; lane < trunk.first_lane + trunk.lane_count; ++lane) {
      const double part = bytes * lane_GBps[lane][d] / sum;
      if (part <= 0) continue;
      const GBps reach = lane_reach(input, lane, demand.direction);
      if (reach <= 0) return kInfinite;  // what waits for a dead lane never ends
      time = std::max(time, part / reach);
      for (const Hop& hop : hops_of(input.cluster.lanes[lane], demand.direction)) {
        loads[hop.link][index_of(hop.direction)] += part;
      }
    }
  }
  for (std::size_t link = 0; link < loads.size(); ++link) {
    for (std::size_t d = 0; d < 2; ++d) {
      if (loads[link][d] > 0) time = std::max(time, loads[link][d] / input.capacity[link][d]);
    }
  }
  return time;
}

}  // namespace lk

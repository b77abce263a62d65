// lane_reason(): the sentence behind a lane's weight, built only when somebody asks.
#include <fmt/format.h>

#include "control/balance/balance.hpp"
#include "control/balance/eligibility.hpp"

namespace lk {
namespace {

const char* kind_name(const BalanceInput& input, LaneId lane) { return name_of(input.cluster.lanes[lane].kind); }

// "n0.mlx5_0.port1 runs at 6.2 of 25 GB/s"; empty when every hop is whole.
std::string weakness(const BalanceInput& input, LaneId lane, Direction d) {
  const std::optional<Hop> hop = weakest_hop(input, lane, d);
  if (!hop) return {};
  const LinkSpec& link = input.cluster.links[hop->link];
  const GBps now = input.capacity[hop->link][index_of(hop->direction)];
  if (now <= kDeadGBps) return fmt::format("{} carries nothing", link.name);
  if (now >= kFull * link.nominal_GBps) return {};
  return fmt::format("{} runs at {:.3g} of {:.3g} GB/s", link.name, now, link.nominal_GBps);
}

std::string why_dead(const BalanceInput& input, LaneId lane, Direction d) {
  const bool own = input.health[lane][index_of(d)] > 0;
  if (!own) return "not used: it is off, down or held down";
  if (const std::string weak = weakness(input, lane, d); !weak.empty() && lane_reach(input, lane, d) <= 0) {
    const std::optional<Hop> hop = weakest_hop(input, lane, d);
    if (input.capacity[hop->link][index_of(hop->direction)] <= kDeadGBps) return "not used: " + weak;
  }
  if (input.health[lane][index_of(opposite(d))] <= 0) {
    return "not used: its other direction is off, and a queue pair needs both";
  }
  return fmt::format("not used: its other direction is dead ({}), and a queue pair needs both",
                     weakness(input, lane, opposite(d)));
}

std::string why_barred(const BalanceInput& input, LaneId lane, Direction d, const std::vector<LaneId>& eligible) {
  if (nvlink_healthy(input, eligible.front(), d)) return "not used: nvlink of this trunk is healthy";
  return fmt::format("not used: {} is only for a trunk with nothing else left", kind_name(input, lane));
}

// Why the trunk is not all on its best lane: that lane's weakness, or none.
std::string cause_of_split(const BalanceInput& input, LaneId lane, Direction d) {
  if (const std::string own = weakness(input, lane, d); !own.empty()) return ": " + own;
  if (input.health[lane][index_of(d)] < kFull) {
    return fmt::format(": its health is {:.2f}", input.health[lane][index_of(d)]);
  }
  const TrunkSpec& trunk = input.cluster.trunks[input.cluster.lanes[lane].trunk];
  const LaneId best = trunk.first_lane;
  if (best == lane) return {};
  const std::string weak = weakness(input, best, d);
  return weak.empty() ? std::string{} : fmt::format(": {} of this trunk is weak, {}", kind_name(input, best), weak);
}

}  // namespace

std::string lane_reason(const BalanceInput& input, const Balance& result, LaneId lane, Direction d) {
  if (!lane_alive(input, lane, d)) return why_dead(input, lane, d);
  const TrunkId trunk = input.cluster.lanes[lane].trunk;
  const std::vector<LaneId> eligible = eligible_lanes(input, trunk, d);
  bool allowed = false;
  for (const LaneId other : eligible) allowed = allowed || other == lane;
  if (!allowed) return why_barred(input, lane, d, eligible);
  const GBps rate = result.lane_GBps[lane][index_of(d)];
  const GBps asked = result.trunk_GBps[trunk][index_of(d)];
  const std::string cause = cause_of_split(input, lane, d);
  if (asked <= 0) {
    return fmt::format("no planned load; may carry {:.3g} GB/s{}", lane_reach(input, lane, d), cause);
  }
  const double percent = 100 * rate / asked;
  if (percent < 0.05) return "not needed: the trunk's other lanes carry it within the slowest link's time" + cause;
  if (percent > 99.95) return fmt::format("carries its trunk alone, {:.3g} GB/s{}", rate, cause);
  return fmt::format("carries {:.3g} % of its trunk, {:.3g} GB/s{}", percent, rate, cause);
}

std::string lane_reason(const BalanceInput& input, const Balance& result, LaneId lane) {
  std::string forward = lane_reason(input, result, lane, Direction::kForward);
  const std::string backward = lane_reason(input, result, lane, Direction::kBackward);
  if (forward == backward) return forward;
  return fmt::format("forward: {}; backward: {}", forward, backward);
}

}  // namespace lk

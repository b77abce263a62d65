// balance: which lane of which trunk carries how much of an all-reduce, and which shard sizes go with it. Pure: the
// same input gives the same output to the bit; no clock, no state; any thread may call it.
//
// The plan of one all-reduce over `members` (rank order; domains in the order of their ids): M = the largest number of
// members in a domain; column j = 0..M-1 is owned in domain d by member j mod m_d. A part (j, h) of the bytes goes from
// every member to its domain's owner, from each owner to that of home domain h and back, and from the owners to all.
// share[j][h] is that part's fraction. Each trunk's bytes may be split over its eligible lanes (eligibility.hpp). The
// bound is the least time in which no link direction carries more than its capacity: a linear program
// (flow_program.hpp). Ties: even shares first, then lower rungs. Beyond the limits a proportional rule takes its place
// (proportional.hpp) and `exact` is false.
//
// Units: rates in GB/s (byte/ns) of payload, times in ns per byte of the reduced buffer (count · size).
// Fails: InputError where the sizes of the tables differ from the cluster's or a member is unknown or twice there.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dataplane/api/cluster.hpp"

namespace lk {

using LinkCapacities = std::vector<std::array<GBps, 2>>;  // per link, by Direction; 0 = carries nothing
using LaneHealth = std::vector<std::array<double, 2>>;    // per lane, by Direction; 0 = may not be used, 1 = in full
using Shares = std::vector<std::vector<double>>;          // [column][home], sum 1

struct BalanceInput {
  const ClusterSpec& cluster;
  const LinkCapacities& capacity;
  const LaneHealth& health;
  std::span<const EndpointId> members;
};

struct BalanceLimits {
  std::size_t max_variables = 2500;      // shares and flows of the linear program
  std::uint64_t max_work = 150'000'000;  // multiplications, of each of its up to three programs
};

struct Balance {
  bool feasible = false;  // else some members cannot reach each other: times are infinite
  bool exact = false;     // the bound is proved (linear program); else it is what the proportional rule reaches
  double bound_ns_per_byte = std::numeric_limits<double>::infinity();      // shares free
  double predicted_ns_per_byte = std::numeric_limits<double>::infinity();  // with these shares and rates
  Shares share;
  // Per lane and direction: what it carries at predicted_ns_per_byte. A trunk that this group's plan does not use gets
  // what each of its lanes could carry (trunk_GBps is 0 there), so that the ratio of its lanes is always defined.
  std::vector<std::array<GBps, 2>> lane_GBps;
  std::vector<std::array<GBps, 2>> trunk_GBps;  // per trunk and direction: what the plan asks of it
};

// The capacities of a cluster with no fault, and lanes that may all be used.
LinkCapacities nominal_capacities(const ClusterSpec& cluster);
LaneHealth full_health(const ClusterSpec& cluster);

Balance balance(const BalanceInput& input, const BalanceLimits& limits = {});

// The best rates for given shares (a plan in force). bound_ns_per_byte is then the least time with these shares.
Balance balance_with_shares(const BalanceInput& input, const Shares& shares, const BalanceLimits& limits = {});

// The time that given rates would take: each trunk's bytes are split in the ratio of its lanes' rates. Infinite where a
// trunk with bytes has no lane that may be used.
double predicted_ns_per_byte(const BalanceInput& input, const Shares& shares,
                             const std::vector<std::array<GBps, 2>>& lane_GBps);

// One line: why a lane carries what it carries, in one direction or in both.
std::string lane_reason(const BalanceInput& input, const Balance& result, LaneId lane, Direction d);
std::string lane_reason(const BalanceInput& input, const Balance& result, LaneId lane);

}  // namespace lk

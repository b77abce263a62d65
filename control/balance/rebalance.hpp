// rebalance: whether a proposed balance is worth its change, and what would change. Pure: the caller gives the time.
// Gain = time with the rates in force over time with the proposed ones, both under the capacities of now, less 1
// (infinite when traffic is on a dead lane: such a change never waits). A change is applied when it gains min_gain and
// min_interval has passed; a tenth of that gain is enough after ten times the interval, so that a clean cluster does
// not stay slightly off for ever. Any thread. Fails as balance() does.
#pragma once

#include <string>
#include <vector>

#include "control/balance/balance.hpp"

namespace lk {

struct RebalancePolicy {
  double min_gain = 0.03;  // fraction
  Nanos min_interval_ns = 200 * kMilli;
};

struct RebalanceDecision {
  bool apply = false;
  double gain = 0;  // fraction; infinite when what is in force cannot end
  double current_ns_per_byte = 0;
  double proposed_ns_per_byte = 0;
  std::string reason;  // one line, for the journal and the dry run
};

struct Change {
  LaneId lane = kNoId;
  Direction direction{};
  double from = 0, to = 0;  // fraction of its trunk's bytes in this direction
  std::string reason;       // of the proposed value
};

// `input`: the cluster as it is now. `since_last_ns`: time since the last change was applied.
RebalanceDecision decide_rebalance(const BalanceInput& input, const Balance& current, const Balance& proposed,
                                   const RebalancePolicy& policy, Nanos since_last_ns);

// Every lane direction whose fraction moves by more than `least` (absolute), in the order of lanes.
std::vector<Change> changes_between(const BalanceInput& input, const Balance& current, const Balance& proposed,
                                    double least = 0.005);

}  // namespace lk

// proportional: the rule for clusters too large for the linear program (BalanceLimits). Shares stay even; each demand
// starts on its best lane and is then placed anew, twice, in 16 slices: each slice goes to the lane on whose links the
// fullest stays least full, a lower rung first. Near the bound where rails are alike, not proved.
// Pure, deterministic, any thread; nothing fails.
#pragma once

#include <vector>

#include "control/balance/problem.hpp"

namespace lk {

// Equal over all parts that can be moved; over all parts when none can.
std::vector<double> even_shares(const Problem& problem);

// Per demand, per option: its fraction of the demand, sum 1; empty for a demand without options.
std::vector<std::vector<double>> proportional_splits(const Problem& problem, const std::vector<double>& shares);

}  // namespace lk

// BalanceMemo: answers of balance() that were asked for a moment ago. The answer is a pure function of the question,
// and the planes of one process ask the same ones one after another. Keeps a few, forgets the oldest. Owner: the
// control thread, for all planes that it steps. Fails as balance() does.
#pragma once

#include <deque>
#include <vector>

#include "control/balance/balance.hpp"

namespace lk {

class BalanceMemo {
 public:
  // Empty shares: they are free. The answer stays valid until the next call.
  const Balance& solve(const BalanceInput& input, const Shares& shares, const BalanceLimits& limits);
  std::uint64_t solved() const noexcept { return solved_; }  // that were really computed

 private:
  struct Entry {
    const ClusterSpec* cluster;
    LinkCapacities capacity;
    LaneHealth health;
    std::vector<EndpointId> members;
    Shares shares;
    BalanceLimits limits;
    Balance answer;
  };
  std::deque<Entry> entries_;
  std::uint64_t solved_ = 0;
};

}  // namespace lk

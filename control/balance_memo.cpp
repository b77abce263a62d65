#include "control/balance_memo.hpp"

#include <algorithm>

namespace lk {
namespace {

constexpr std::size_t kKept = 12;

}  // namespace

const Balance& BalanceMemo::solve(const BalanceInput& input, const Shares& shares, const BalanceLimits& limits) {
  for (const Entry& e : entries_) {
    if (e.cluster == &input.cluster && e.limits.max_work == limits.max_work &&
        e.limits.max_variables == limits.max_variables && e.shares == shares &&
        std::equal(e.members.begin(), e.members.end(), input.members.begin(), input.members.end()) &&
        e.capacity == input.capacity && e.health == input.health) {
      return e.answer;
    }
  }
  ++solved_;
  Balance answer = shares.empty() ? balance(input, limits) : balance_with_shares(input, shares, limits);
  if (entries_.size() >= kKept) entries_.pop_front();
  entries_.push_back({&input.cluster,
                      input.capacity,
                      input.health,
                      {input.members.begin(), input.members.end()},
                      shares,
                      limits,
                      std::move(answer)});
  return entries_.back().answer;
}

}  // namespace lk

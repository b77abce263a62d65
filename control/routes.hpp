// RoutePlanner: from the health of all links and lanes to this node's route table, with a reason for every lane. For
// each group (or all GPUs, when there is none) balance() says what every lane should carry with the plan in force;
// where several groups use a lane it gets the largest. A lane without a rate is a stand-by with what it could carry; a
// lane that the operator or the policy forbids has neither. A lane that is thought to be down keeps a trickle of
// stand-by: if the engine knows better, and nothing else is left, it may use it. A failure changes routes at once,
// within a small budget of work; anything else must gain enough and wait its turn. Owner: the control thread. Nothing
// fails: where balance() finds no way each trunk gets what its lanes could carry.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "control/balance/rebalance.hpp"
#include "control/balance_memo.hpp"
#include "control/cluster_view.hpp"
#include "control/health/lane_track.hpp"
#include "control/health/thresholds.hpp"
#include "dataplane/api/group.hpp"
#include "dataplane/api/route_table.hpp"

namespace lk {

struct RoutePolicy {
  std::array<bool, 6> never{};  // by LaneKind: rungs that may not be used at all
};

// What has to be carried: one group's all-reduce.
struct Demand {
  std::vector<EndpointId> members;
  Shares shares;  // of the plan in force; empty: free
  bool operator==(const Demand&) const = default;
};

enum class Urgency : std::uint8_t {
  kCalm,     // worth it and due, or not at all
  kSettled,  // a link's state changed for the better: due, whatever it gains
  kNow,      // something failed or came back, the operator asked
};

class RoutePlanner {
 public:
  RoutePlanner(const ClusterSpec& cluster, NodeId self, const Thresholds& thresholds, const RoutePolicy& policy,
               BalanceMemo& memo);

  // Whether the rates are other ones now. `line` is then what to tell about it.
  bool consider(const ClusterView& view, const std::vector<Demand>& demands, Urgency urgency, Nanos now);
  const std::string& line() const noexcept { return line_; }
  bool exact() const noexcept { return exact_; }  // the rates in force are balance()'s best, not its quick answer
  Nanos changed_at() const noexcept { return changed_at_; }

  // A table of the rates in force; `own` is by lane × 2 + direction.
  std::unique_ptr<const RouteTable> make_table(const ClusterView& view, const std::vector<LaneTrack>& own);
  std::uint64_t version() const noexcept { return version_; }

  // What a rebalance would change now.
  std::vector<Change> changes(const ClusterView& view, const std::vector<Demand>& demands);
  std::string reason(const ClusterView& view, LaneId lane) const;
  GBps rate(LaneId lane, Direction d) const noexcept { return rates_[lane][static_cast<std::size_t>(d)]; }
  bool barred(LaneId lane) const noexcept { return barred_[lane]; }

  PlanSpec best_plan(const ClusterView& view, const GroupSpec& group, Bytes chunk_most_bytes);
  // How much faster the best plan is than the one in force, as a fraction; infinite when that one cannot end.
  double plan_gain(const ClusterView& view, const GroupSpec& group, const PlanSpec& plan);

 private:
  struct Inputs {  // owns what BalanceInput refers to
    LinkCapacities capacity;
    LaneHealth health;
  };
  Inputs inputs_of(const ClusterView& view) const;
  BalanceInput input(const Inputs& in, const std::vector<EndpointId>& members) const {
    return {cluster_, in.capacity, in.health, members};
  }
  bool worth_it(const Inputs& in, const std::vector<Demand>& demands, const std::vector<Balance>& proposed, Nanos now);
  void adopt(const Inputs& in, const std::vector<Demand>& demands, std::vector<Balance> proposed, Nanos now);
  void tell(const Inputs& in, const std::vector<std::array<GBps, 2>>& before);
  bool sent_here(LaneId lane, Direction d) const noexcept;

  const ClusterSpec& cluster_;
  NodeId self_;
  const Thresholds& thresholds_;
  BalanceMemo& memo_;
  std::vector<bool> barred_;  // by the policy
  std::vector<Demand> demands_;
  std::vector<Balance> balances_;           // one per demand, in force
  std::vector<std::array<GBps, 2>> rates_;  // of all of them together
  bool exact_ = false;
  Nanos changed_at_ = -kSecond * 3600;
  std::uint64_t version_ = 0;
  std::string line_;
};

}  // namespace lk

// ClusterView: the health of every link and lane of the cluster as this node knows it: its own from its monitors and
// its engine, the others' as they advertised it. A link or lane of which nothing was heard is whole. Routes and plans
// are made from this and from nothing else. Each change has a number, so that readers know when to look again.
// Owner: the control thread. Nothing fails. Weights are fractions of nominal, by Direction; they are held in 1/65535,
// as they travel, so that every node computes with the same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "control/balance/balance.hpp"
#include "control/health/link_health.hpp"
#include "dataplane/api/cluster.hpp"

namespace lk {

using Weight = std::uint16_t;
inline constexpr Weight kWholeWeight = 65535;

Weight weight_of(double fraction) noexcept;  // rounded to the nearest; above 0 stays above 0
double fraction_of_weight(Weight weight) noexcept;

struct LinkView {
  LinkState state = LinkState::kUp;
  std::array<Weight, 2> weight = {kWholeWeight, kWholeWeight};
  Weight ramp = kWholeWeight;  // the part of `weight` that probation takes
  bool operator==(const LinkView&) const = default;
};

struct LaneView {
  Weight weight = kWholeWeight;  // of one direction, as its sender sees it
  bool off = false;              // by the operator
  bool operator==(const LaneView&) const = default;
};

class ClusterView {
 public:
  explicit ClusterView(const ClusterSpec& cluster);

  void set_link(LinkId link, const LinkView& view);
  void set_lane(LaneId lane, Direction d, const LaneView& view);
  void forget(NodeId node);  // what that node advertised: whole again

  const LinkView& link(LinkId link) const noexcept { return links_[link]; }
  const LaneView& lane(LaneId lane, Direction d) const noexcept { return lanes_[lane][static_cast<std::size_t>(d)]; }
  std::uint64_t version() const noexcept { return version_; }  // grows with every change

  NodeId sender_of(LaneId lane, Direction d) const noexcept;

  LinkCapacities capacities() const;
  // Health of lanes for balance(): a lane and its links that prove themselves at the same time count once. `barred`
  // lanes (by policy) have none.
  LaneHealth lane_health(const std::vector<bool>& barred) const;
  // By the operator, anywhere on its way: switched off, or over a link that is drained.
  bool forbidden(LaneId lane) const noexcept;

 private:
  const ClusterSpec& cluster_;
  std::vector<LinkView> links_;
  std::vector<std::array<LaneView, 2>> lanes_;
  std::uint64_t version_ = 1;
};

}  // namespace lk

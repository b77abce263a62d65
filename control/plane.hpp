// ControlPlane of one node: watches its links, hears its engine and the other nodes' control planes, and decides:
// health, routes, plans, membership. Deterministic: all it knows of time and chance is passed in (now, incarnation). It
// touches the data path by rings of values alone. Stepped by tick(now) whenever next_time() has come or something was
// put into a ring or receive()d.
// Owner: one control thread, which may step the planes of several nodes. Fails: operator calls throw InputError with
// one line for a wrong name, value or owner; tick() does not throw. Times in ns, rates in GB/s of one direction.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/journal/tally.hpp"
#include "control/peers/membership.hpp"
#include "control/routes.hpp"
#include "control/watch/link_watch.hpp"
#include "dataplane/api/snapshot.hpp"

namespace lk {

struct ControlOptions {
  Thresholds thresholds;
  RoutePolicy policy;
};

struct EngineRings {
  Ring<Command>& commands;
  Ring<Event>& events;
  Ring<PeerMessage>& peer_out;
  Ring<PeerMessage>& peer_in;
};

class ControlPlane final : private PlanSource {
 public:
  ControlPlane(const ClusterSpec& cluster, NodeId node, Incarnation incarnation, const ControlOptions& options,
               const EngineRings& rings, PeerBus& bus, LinkWatch& watch, const Liveness& liveness, BalanceMemo& memo);

  void tick(Nanos now);
  Nanos next_time(Nanos now) const noexcept;
  void receive(const PeerMessage& message, Nanos now);  // over the control channel
  void note_result(const OpResult& result);             // of every op of a local rank

  // Groups. create_group() returns at once; the group is ready, or ended with an error, some ticks later.
  GroupId create_group(const std::string& name, std::span<const EndpointId> members, const GroupOptions& options,
                       Nanos now);
  void end_group(GroupId group, Nanos now);
  const GroupRecord* group(GroupId id) const noexcept { return groups_.find(id); }
  const GroupRecord* group_named(const std::string& name) const noexcept { return groups_.find_name(name); }

  // The operator's.
  void drain_link(LinkId link, bool drained, Nanos now);
  void set_link_off(LinkId link, bool off, Nanos now);
  void set_lane_off(LaneId lane, bool off, Nanos now);
  void set_lane_weight(LaneId lane, double weight, Nanos now);
  std::vector<Change> rebalance(bool apply, Nanos now);
  std::vector<std::string> explain_lane(LaneId lane) const;
  std::vector<std::string> explain_link(LinkId link) const;

  // For show. Of lanes and trunks: this node's sending sides, with the engine's figures where a snapshot was taken.
  nlohmann::json status(Nanos now) const;
  nlohmann::json links() const;
  nlohmann::json lanes() const;
  std::vector<std::string> sick_lanes(Nanos now) const;  // a line for those of one reason that no link's line explains
  nlohmann::json trunks() const;
  nlohmann::json groups(Nanos now) const;
  nlohmann::json peers() const;
  nlohmann::json events(std::uint64_t after = 0) const { return journal_.to_json(after); }
  bool request_snapshot();  // false: one is under way
  const Snapshot* snapshot() const noexcept { return have_snapshot_ ? &snapshots_[shown_] : nullptr; }

  const Journal& journal() const noexcept { return journal_; }
  const ClusterView& view() const noexcept { return view_; }
  const RoutePlanner& routes() const noexcept { return routes_; }
  const Peers& peer_states() const noexcept { return peers_; }
  NodeId node() const noexcept { return node_; }

 private:
  std::string carrier_text(TrunkId trunk, Direction d) const;
  PlanSpec best_plan(const GroupSpec& group, Bytes chunk_most_bytes) override;

  // plane.cpp: a turn
  void take_events(Nanos now);
  void take_event(const Event& event, Nanos now);
  void take_readings(Nanos now);
  void advance_timers(Nanos now);
  void take_notices(Nanos now);
  void take_notice(const Notice& notice, Nanos now);
  void peer_alive(NodeId node, Incarnation incarnation, Nanos now);
  void peer_dead(const Notice& notice, Nanos now);
  void update_routes(Nanos now);
  void propose_plans(Nanos now);
  bool plan_due(const GroupRecord& group) const noexcept;  // its plan should be looked at
  std::vector<Demand> demands() const;
  // plane_health.cpp: own health into the view, the view to others and from others
  void link_changed(LinkId link, LinkState before, Nanos now);
  void lane_changed(LaneId lane, Direction d, Nanos now);
  void want(Urgency urgency) noexcept;
  void advertise();
  Bytestring health_record(bool reset, const std::set<LinkId>& links, const std::set<std::size_t>& sides) const;
  void advertise_all(NodeId to);
  void take_health(NodeId from, const Record& record, Nanos now);
  // plane_operator.cpp
  LinkHealth& own_link(LinkId link);
  const std::string& name_of_node(NodeId node) const noexcept { return cluster_.nodes[node].name; }

  const ClusterSpec& cluster_;
  NodeId node_;
  ControlOptions options_;
  EngineRings rings_;
  LinkWatch& watch_;
  Journal journal_;
  EnginePort engine_;
  Peers peers_;
  ClusterView view_;
  RoutePlanner routes_;
  GroupTable groups_;
  PlanAgreement plans_;
  Membership membership_;
  EventTally tally_;

  std::vector<LinkId> own_links_;
  std::vector<std::size_t> own_sides_;  // lane × 2 + direction
  std::map<LinkId, LinkHealth> link_health_;
  std::vector<LaneTrack> lane_tracks_;  // by lane × 2 + direction; own sides alone are used
  std::set<LinkId> unsaid_links_;       // changed and not yet advertised
  std::set<std::size_t> unsaid_sides_;
  std::set<std::size_t> timed_sides_;  // in probation

  std::optional<Urgency> wanted_;  // a change of routes
  bool table_due_ = true;          // events were seen: the engine waits for a table that says so
  Nanos calm_at_ = kNever;         // earliest time of a calm change
  std::uint64_t groups_seen_ = 0;
  struct PlanCheck {
    std::uint64_t view = 0;  // its version
    bool waits = false;      // another plan is wanted once the one in force has been used
  };
  std::map<GroupId, PlanCheck> plan_checks_;
  Nanos next_reading_ = 0;
  Nanos ticked_at_ = 0;
  std::array<Snapshot, 2> snapshots_;
  unsigned shown_ = 0;
  bool have_snapshot_ = false, snapshot_lent_ = false;
};

}  // namespace lk

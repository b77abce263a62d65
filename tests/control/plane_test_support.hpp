// A small world for the tests of the control plane: several ControlPlanes with fake engines on a lossy bus, stepped on
// one virtual clock. A fake engine does what the real one promises (path/engine.hpp): it holds, starts and finishes
// ops, stops a group whose peer is dead, gives lent objects back. Every op start is written into one ledger, which is
// how the tests see that no two nodes ran one op with two plans or two memberships.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "control/plane.hpp"
#include "dataplane/base/random.hpp"

namespace lk::plane_test {

// `nodes` nodes of two GPUs (joined by NVLink) and two NICs.
ClusterSpec small_cluster(int nodes);

struct Faults {
  double loss = 0, duplicate = 0;
  Nanos most_delay_ns = 0;  // beyond 20 µs
  double pace = 0.3;        // chance that a node enters an op in a millisecond
};

class World;

class FakeEngine final : public Liveness, public LinkWatch {
 public:
  FakeEngine(World& world, NodeId node) : world_(world), node_(node) {}
  void step(Nanos now);
  Nanos last_heard(NodeId node) const override;
  LinkReading read(LinkId link) override;

  void emit(Event event, Nanos now);
  Event lane_event(EventKind kind, LaneId lane, Direction d, Cause cause = Cause::kNone) const;

  Ring<Command> commands{4096};
  Ring<Event> events{4096};
  Ring<PeerMessage> peer_out{4096}, peer_in{4096};

  struct Group {
    GroupSpec spec;
    std::vector<PlanSpec> plans;
    OpNumber started = 0, done = 0, hold_from = ~OpNumber{0};
    bool ended = false;
    Status end_status{};
    const GroupSpec* lent_spec = nullptr;
    std::vector<const PlanSpec*> lent_plans;
  };
  std::map<GroupId, Group> groups;
  std::map<LinkId, LinkReading> readings;
  std::vector<Command> log;  // all but routes
  RouteTable table;          // in force, copied
  unsigned tables = 0;
  bool answers_holds = true;
  std::set<NodeId> dead;

 private:
  void shrink(Group& group, const Command& command, Nanos now);
  void take(const Command& command, Nanos now);
  void run_ops(Nanos now);
  void release(EventKind kind, const void* pointer, Nanos now, GroupId group = kNoId16);

  World& world_;
  NodeId node_;
  const RouteTable* lent_table_ = nullptr;
  std::uint64_t event_number_ = 0;
};

class World {
 public:
  World(const ClusterSpec& cluster, std::uint64_t seed, const ControlOptions& options = {});

  void run(Nanos span);  // in steps of 1 ms
  template <typename Condition>
  bool run_until(Condition&& done, Nanos most) {
    for (Nanos end = now + most; now < end;) {
      if (done()) return true;
      run(kMilli);
    }
    return done();
  }
  void kill(NodeId node);
  void start(NodeId node);                                                              // with a new incarnation
  void cut(NodeId a, NodeId b, bool value = true) { cut_[a][b] = cut_[b][a] = value; }  // bus and lanes
  void cut_one_way(NodeId from, NodeId to, bool value = true) { cut_[from][to] = value; }

  ControlPlane& plane(NodeId node) { return *nodes_[node]->plane; }
  FakeEngine& engine(NodeId node) { return *nodes_[node]->engine; }
  bool alive(NodeId node) const { return nodes_[node] != nullptr; }
  GroupId create(const std::vector<EndpointId>& members, const std::string& name = "g");
  bool ready(GroupId group) const;  // on all living nodes
  bool reachable(NodeId from, NodeId to) const { return alive(from) && alive(to) && !cut_[from][to]; }

  // What no run may show; empty is well.
  const std::string& wrong() const { return wrong_; }
  // Who took over a membership with a node that it knew to be dead. Right if that died after the answer to the
  // proposal.
  std::string adopted_with_dead;
  std::string journals() const;       // of all nodes, for a test that failed
  void check_settled(GroupId group);  // one set of nodes goes on, all of them agree, nothing is held

  const ClusterSpec& cluster;
  Nanos now = 0;
  Faults faults;
  bool bus_cut = false;     // says so
  bool bus_silent = false;  // swallows

 private:
  friend class FakeEngine;
  struct Bus final : PeerBus {
    World* world = nullptr;
    bool send(const PeerMessage& message) override;
  };
  struct Node {
    std::unique_ptr<FakeEngine> engine;
    std::unique_ptr<ControlPlane> plane;
    bool touched = true;
  };
  void carry(const PeerMessage& message, bool in_band);
  void op_started(NodeId node, const FakeEngine::Group& group, OpNumber op, std::uint32_t version);
  void adopted(const GroupSpec& spec);

  ControlOptions options_;
  Random random_;
  Bus bus_;
  BalanceMemo memo_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<bool>> cut_;
  struct Flight {
    PeerMessage message;
    bool in_band;
  };
  std::multimap<Nanos, Flight> flights_;
  struct OpKey {
    std::uint64_t uuid;
    std::uint16_t membership;
    OpNumber op;
    bool operator<(const OpKey& other) const noexcept {
      return std::tie(uuid, membership, op) < std::tie(other.uuid, other.membership, other.op);
    }
  };
  std::map<OpKey, std::uint32_t> version_of_;
  std::map<OpKey, std::set<NodeId>> started_;
  std::map<std::pair<std::uint64_t, std::uint16_t>, std::vector<EndpointId>> members_of_;
  std::string wrong_;
};

}  // namespace lk::plane_test

// SimCluster: a whole cluster in one thread on a virtual clock. Every node has its real engine, control plane, fault
// decorator and loopback port; only time is made: the cluster goes from event to event. The same cluster, options and
// calls give the same events to the bit.
// Owner: one thread. Set-up throws; step() does not.
#pragma once

#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "agent/fault_plan.hpp"
#include "agent/sim_node.hpp"
#include "dataplane/base/clock.hpp"
#include "dataplane/lane/loopback/net.hpp"

namespace lk {

struct SimOptions {
  EngineOptions engine;
  ControlOptions control;
  std::uint64_t seed = 1;
  std::uint32_t slots = 32768;     // landing slots of one node
  Nanos bus_ns = 50 * kMicro;      // one way over the control channel
  Nanos control_ns = 20 * kMicro;  // from an engine's event to the control thread's turn
};

class SimCluster final : public SimWorld {
 public:
  SimCluster(const ClusterSpec& cluster, const SimOptions& options);
  ~SimCluster() override;

  const ClusterSpec& cluster() const noexcept { return cluster_; }
  const SimOptions& options() const noexcept { return options_; }
  Nanos now() const noexcept override { return clock_.now(); }
  std::size_t size() const noexcept { return nodes_.size(); }
  SimNode& node(NodeId n) noexcept { return *nodes_[n]; }

  // Put a value on a node's ring, then wake it. Aborts when a ring is full: a driver that outruns an engine is a bug.
  void request(NodeId n, const OpRequest& q);
  void faults(const FaultRows& rows);
  void kill(NodeId n) noexcept;  // it does nothing any more
  void wake(NodeId n, Nanos at) noexcept { wake_part(n, Part::kEngine, at); }
  void wake_control(NodeId n, Nanos at) noexcept { wake_part(n, Part::kControl, at); }

  // What the engines told since the last call, in the order of time.
  std::vector<std::pair<NodeId, Event>> take_log() noexcept { return std::exchange(log_, {}); }

  // Capacity of a link direction now, as the faults leave it; 0 when it is cut, stalled, or its node is dead.
  GBps capacity(LinkId link, Direction d) const noexcept;

  // Runs the next event, if it is not later than `until`, and says at which node. False: nothing to do until then (the
  // clock is then there).
  bool step(Nanos until, NodeId& where);

 private:
  enum class Part : std::uint8_t { kEngine, kControl };
  struct Due {
    Nanos at;
    NodeId node;
    Part part;
    bool operator<(const Due& o) const noexcept {
      return at != o.at ? at > o.at : node != o.node ? node > o.node : part > o.part;
    }
  };
  template <typename T>
  struct Letter {
    Nanos at;
    std::uint64_t sequence;
    T what;
    bool operator<(const Letter& o) const noexcept { return at != o.at ? at > o.at : sequence > o.sequence; }
  };

  static void on_wake(void* self, NodeId node, Nanos when) noexcept;
  void wake_part(NodeId n, Part part, Nanos at) noexcept;
  bool bus_cut(NodeId from, NodeId to) const noexcept;
  // SimWorld: what a node's control plane sees of the world
  bool send(const PeerMessage& message) override;
  LinkReading read(LinkId link) override;
  void run_engine(NodeId n);
  void run_control(NodeId n);
  void deliver(Nanos at);

  const ClusterSpec& cluster_;
  SimOptions options_;
  VirtualClock clock_;
  std::unique_ptr<LoopbackNet> net_;
  BalanceMemo memo_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::priority_queue<Due> due_;
  std::priority_queue<Letter<PeerMessage>> mail_;
  std::priority_queue<Letter<Signal>> signals_;
  std::uint64_t sequence_ = 0;
  std::vector<FaultRow> rows_, control_rows_;
  std::vector<std::pair<Nanos, NodeId>> deaths_;
  std::vector<std::pair<NodeId, Event>> log_;
};

}  // namespace lk

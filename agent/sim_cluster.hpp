// SimCluster: a whole cluster in one thread on a virtual clock. Every node has its real engine, control plane, fault
// decorator and loopback port; only time is made: the cluster goes from event to event. The same cluster, options and
// calls give the same events to the bit.
// Owner: one thread. Set-up throws; step() does not.
#pragma once

#include <memory>
#include <queue>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/api/op.hpp"
#include "dataplane/base/clock.hpp"
#include "dataplane/lane/fault.hpp"
#include "dataplane/lane/loopback/net.hpp"
#include "dataplane/lane/loopback/port.hpp"
#include "dataplane/lane/loopback/rates.hpp"
#include "dataplane/memory/slots.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

struct SimOptions {
  EngineOptions engine;
  std::uint64_t seed = 1;
  std::uint32_t slots = 32768;  // landing slots of one node
};

struct SimNode {
  std::unique_ptr<SlotTable> slots;
  std::unique_ptr<LoopbackPort> port;
  std::unique_ptr<RateControl> rates;
  std::unique_ptr<FaultWire> wire;
  std::unique_ptr<Engine> engine;
  Nanos wake_at = kNever;
  bool killed = false;
};

class SimCluster {
 public:
  SimCluster(const ClusterSpec& cluster, const SimOptions& options);
  ~SimCluster();

  const ClusterSpec& cluster() const noexcept { return cluster_; }
  Nanos now() const noexcept { return clock_.now(); }
  std::size_t size() const noexcept { return nodes_.size(); }
  SimNode& node(NodeId n) noexcept { return nodes_[n]; }

  // Put a value on a node's ring, then wake it. Aborts when a ring is full: a driver that outruns an engine is a bug.
  void command(NodeId n, const Command& c);
  void request(NodeId n, const OpRequest& q);
  void fault(const FaultRow& row);
  void kill(NodeId n) noexcept;  // it does nothing any more
  void wake(NodeId n, Nanos at) noexcept;

  // Runs the next event, if it is not later than `until`. False: nothing to do until then (the clock is then there).
  bool step(Nanos until);

 private:
  struct Due {
    Nanos at;
    NodeId node;
    bool operator<(const Due& o) const noexcept { return at != o.at ? at > o.at : node > o.node; }
  };
  static void on_wake(void* self, NodeId node, Nanos when) noexcept;

  const ClusterSpec& cluster_;
  SimOptions options_;
  VirtualClock clock_;
  std::unique_ptr<LoopbackNet> net_;
  std::vector<SimNode> nodes_;
  std::priority_queue<Due> due_;
};

}  // namespace lk

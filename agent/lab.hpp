// Lab: loopback mode: a cluster of emulated nodes in one process: their run loops on threads of their own, their
// control planes stepped by one control thread, and what an operator does to them by name. Order of life: construct →
// start() → turn() again and again → stop() → destroy. stop() comes after the sessions are drained; it ends the run
// loops, and only then is anything taken apart. Threads: everything is the control thread's but wake_control() and the
// reactors' own turns. Fails: InputError for what an operator or a file says wrong, SystemError for what the machine
// refuses; at set-up and in the operator's calls only. Times in ns since the process began; rates in GB/s, as emulated
// (rate_scale included).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/core_plan.hpp"
#include "agent/fault_plan.hpp"
#include "agent/node.hpp"
#include "dataplane/loop/reactor.hpp"

namespace lk {

struct LabOptions {
  AgentConfig config;
  ControlOptions control;
  CorePlan cores;
  double rate_scale = 1;   // of the cluster's rates, which are scaled already; to be shown
  std::uint64_t seed = 0;  // of the incarnations
};

// Who gives the reactors their threads: DPDK's lcores, or plain threads in tests.
struct LabThreads {
  std::function<void(unsigned lcore, void (*call)(void*) noexcept, void* argument)> launch;
  std::function<void(unsigned lcore)> wait;
};

class Lab {
 public:
  Lab(const ClusterSpec& cluster, const LabOptions& options);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  void start(const LabThreads& threads);
  void stop();

  // Steps every control plane and carries their messages; next_time() is when to do so again at the latest.
  void turn();
  bool refresh_snapshots(Nanos limit);  // turns until every engine has given an account of itself
  Nanos next_time() const noexcept;
  int bell() const noexcept { return bell_.get(); }  // an eventfd: there is news for turn()
  void quiet_bell() noexcept;                        // before the turn that answers it
  void wake_control() noexcept;                      // any thread

  const ClusterSpec& cluster() const noexcept { return cluster_; }
  const AgentConfig& config() const noexcept { return options_.config; }
  double rate_scale() const noexcept { return options_.rate_scale; }
  Nanos now() const noexcept { return clock_.now(); }
  Incarnation incarnation() const noexcept { return incarnation_; }
  Bytes chunk_most_bytes() const noexcept { return chunk_most_bytes_; }
  NodeId nodes() const noexcept { return static_cast<NodeId>(cluster_.nodes.size()); }
  Node& node(NodeId n) noexcept { return *nodes_[n]; }
  const Node& node(NodeId n) const noexcept { return *nodes_[n]; }
  const CorePlan& cores() const noexcept { return options_.cores; }
  const Reactor& reactor(std::size_t i) const noexcept { return *reactors_[i]; }
  const FaultPlan& faults() const noexcept { return faults_; }

  // A driver in the control thread, in the place of sessions: no client has a rank at that node. Results: told().
  void enter(NodeId node, const OpRequest& request);
  // The node does nothing any more, as if its machine had lost power. Its reactor must have no other.
  void kill(NodeId node);
  bool alive(NodeId n) const noexcept { return !dead_[n]; }
  void apply(const FaultRows& rows);

  // Sessions: to the poller of the session's home.
  void send(const SessionCommand& command);
  void watch(NodeId home, int bell) { reactor_of(home).watch(bell); }
  void unwatch(NodeId home, int bell) noexcept { reactor_of(home).unwatch(bell); }

  // The operator. Names are as `lanectl show` prints them.
  LinkId link_named(const std::string& name) const;
  LaneId lane_named(const std::string& name) const;
  void drain(const std::string& link, bool drained);
  void set_off(const std::string& lane_or_link, bool off);
  void set_weight(const std::string& lane, double weight);
  std::uint32_t inject(const FaultSpec& fault);
  void clear(const std::string& words);

 private:
  static void on_message(void* self, NodeId node, Nanos when) noexcept;
  static void on_wake_node(void* self, NodeId node) noexcept;
  static void on_wake_control(void* self) noexcept;
  Reactor& reactor_of(NodeId n) noexcept { return *reactors_[place_[n]]; }
  void carry_messages();
  void carry_signals();
  std::vector<NodeId> senders_of(LaneId lane) const;

  const ClusterSpec& cluster_;
  LabOptions options_;
  MonotonicClock clock_;
  Incarnation incarnation_;
  Bytes chunk_most_bytes_;
  UniqueFd bell_;
  std::atomic<bool> rung_{false};
  std::vector<std::size_t> place_;  // by node: its reactor
  LocalBus bus_;
  BalanceMemo memo_;
  FaultPlan faults_;
  std::unique_ptr<LoopbackNet> net_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
  std::vector<std::unique_ptr<Node>> nodes_;
  LabThreads threads_;
  std::vector<bool> dead_;  // by node
  bool running_ = false;
};

// The cluster with every rate times `scale`.
ClusterSpec scaled(ClusterSpec cluster, double scale);
// What this machine's memory can copy, from a few rounds.
GBps memory_rate();
// The scale at which all links together stay under a quarter of what this machine's memory can carry, 1 at most.
double fitting_scale(const ClusterSpec& cluster);

}  // namespace lk

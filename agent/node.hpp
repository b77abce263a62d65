// Node: one (emulated) node put together, the only place where its concrete parts are made: landing slots, loopback
// port, fault decorator, engine, session poller, control plane. From the bottom up, so that each part outlives what
// stands on it.
// Threads: the engine and the session poller are the reactor's; plane() and step() are the control thread's.
// Fails at construction: SystemError (memory).
#pragma once

#include <memory>

#include "agent/config.hpp"
#include "agent/local_bus.hpp"
#include "agent/loopback_watch.hpp"
#include "agent/session_poller.hpp"
#include "control/plane.hpp"
#include "dataplane/lane/fault.hpp"
#include "dataplane/lane/loopback/net.hpp"
#include "dataplane/lane/loopback/port.hpp"
#include "dataplane/lane/loopback/rates.hpp"
#include "dataplane/memory/slots.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

struct NodeParts {  // what the nodes of one process share
  const ClusterSpec& cluster;
  const EngineOptions& engine;
  const ControlOptions& control;
  LoopbackNet& net;
  LocalBus& bus;
  BalanceMemo& memo;
  Wakers wakers;
};

class Node {
 public:
  Node(const NodeParts& parts, NodeId id, Incarnation incarnation);

  NodeId id() const noexcept { return id_; }
  Engine& engine() noexcept { return engine_; }
  SessionPoller& sessions() noexcept { return sessions_; }
  ControlPlane& plane() noexcept { return plane_; }
  const ControlPlane& plane() const noexcept { return plane_; }

  void fault(const FaultRow& row);  // false rows of others are sorted out by who gets them; the ring is large
  // One turn of the control plane. Afterwards the engine may have something to take.
  void step(Nanos now);
  bool engine_has_mail() const noexcept;

 private:
  struct Heard final : public Liveness {
    explicit Heard(const Engine& e) : engine(e) {}
    Nanos last_heard(NodeId node) const override { return engine.last_heard(node); }
    const Engine& engine;
  };

  NodeId id_;
  SlotTable slots_;
  LoopbackPort port_;
  LoopbackRates rates_;
  LoopbackWatch watch_;
  FaultWire wire_;
  Engine engine_;
  SessionPoller sessions_;
  Heard heard_;
  ControlPlane plane_;
};

}  // namespace lk

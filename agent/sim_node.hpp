// SimNode: one node of a SimCluster: the real parts, put together for one thread. SimWorld: what its control plane sees
// of the world. Owner: the simulator's thread.
#pragma once

#include <memory>

#include "control/plane.hpp"
#include "dataplane/lane/fault.hpp"
#include "dataplane/lane/loopback/port.hpp"
#include "dataplane/lane/loopback/rates.hpp"
#include "dataplane/memory/slots.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

class SimWorld : public PeerBus, public LinkWatch {
 public:
  virtual Nanos now() const noexcept = 0;
};

class EngineLiveness final : public Liveness {
 public:
  explicit EngineLiveness(const Engine& engine) : engine_(engine) {}
  Nanos last_heard(NodeId node) const override { return engine_.last_heard(node); }

 private:
  const Engine& engine_;
};

struct SimNode {
  std::unique_ptr<SlotTable> slots;
  std::unique_ptr<LoopbackPort> port;
  std::unique_ptr<LoopbackRates> rates;
  std::unique_ptr<FaultWire> wire;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EngineLiveness> liveness;
  std::unique_ptr<Ring<Event>> events;  // a copy of the engine's for whoever keeps the log
  std::unique_ptr<ControlPlane> plane;
  Nanos wake_at[2] = {kNever, kNever};
  bool killed = false;
};

}  // namespace lk

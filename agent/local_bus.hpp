// LocalBus: the control channels between the nodes of one process (the lab, the simulator), with their faults: a
// channel that is cut takes nothing and says so, and so does that of a node that is cut off. Messages wait here until
// the owner of the control planes delivers them. Owner: the thread that steps the planes. Nothing fails.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "control/peers/peers.hpp"
#include "dataplane/lane/fault_row.hpp"

namespace lk {

class LocalBus {
 public:
  explicit LocalBus(std::size_t nodes);
  ~LocalBus();

  PeerBus& port(NodeId node) noexcept;
  void advance(Nanos now) noexcept { now_ = now; }
  void fault(const FaultRow& row);  // those that are not about channels or nodes are ignored
  bool is_cut(NodeId a, NodeId b) const noexcept;

  std::optional<PeerMessage> next();  // in the order in which they were sent

 private:
  class Port;
  bool send(const PeerMessage& message);

  Nanos now_ = 0;
  std::vector<FaultRow> rows_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::deque<PeerMessage> waiting_;
};

}  // namespace lk

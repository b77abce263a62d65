#include "agent/node.hpp"

namespace lk {
namespace {

constexpr std::uint32_t kSlots = 32768;  // of a node; memory is touched where chunks land

}  // namespace

Node::Node(const NodeParts& p, NodeId id, Incarnation incarnation)
    : id_(id),
      slots_(kSlots, p.engine.chunk_most_bytes),
      port_(p.net, id, slots_.memory()),
      rates_(port_),
      watch_(p.cluster, rates_),
      wire_(p.cluster, id, port_, slots_.memory(), &watch_, FaultOptions{.payload = p.engine.payload}),
      engine_(p.cluster, id, p.engine, wire_, slots_, incarnation),
      sessions_(id, engine_, p.wakers),
      heard_(engine_),
      plane_(p.cluster, id, incarnation, p.control,
             EngineRings{engine_.commands(), engine_.events(), engine_.peer_out(), engine_.peer_in()}, p.bus.port(id),
             watch_, heard_, p.memo) {}

void Node::fault(const FaultRow& row) {
  watch_.fault(row);
  if (!wire_.rows().push(row)) throw InputError("inject: too many faults at once, expected some to be cleared first");
}

void Node::step(Nanos now) {
  watch_.advance(now);
  plane_.tick(now);
}

bool Node::engine_has_mail() const noexcept {
  auto& engine = const_cast<Engine&>(engine_);
  return !engine.commands().empty() || !engine.peer_out().empty() || !engine.signals_in().empty();
}

}  // namespace lk

#include "agent/sim_cluster.hpp"

#include <algorithm>

#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"

namespace lk {

void SimCluster::on_wake(void* self, NodeId node, Nanos when) noexcept {
  static_cast<SimCluster*>(self)->wake(node, when);
}

SimCluster::SimCluster(const ClusterSpec& cluster, const SimOptions& options) : cluster_(cluster), options_(options) {
  LoopbackOptions net;
  net.payload = options.engine.payload;
  net.staging_bytes = options.engine.chunk_most_bytes;
  net.staging_count = options.engine.payload ? 4096 : 0;
  net.inbox = 16384;
  net_ = std::make_unique<LoopbackNet>(cluster_, net, Waker{&SimCluster::on_wake, this});
  Random random(options.seed ^ 0x6c616e656b656570ULL);
  for (NodeId n = 0; n < cluster.nodes.size(); ++n) {
    auto node = std::make_unique<SimNode>();
    const Incarnation incarnation = random.next() | 1U;
    node->slots = std::make_unique<SlotTable>(options.slots, options.engine.chunk_most_bytes);
    node->port = std::make_unique<LoopbackPort>(*net_, n, node->slots->memory());
    node->rates = std::make_unique<LoopbackRates>(*node->port);
    FaultOptions fault;
    fault.payload = options.engine.payload;
    node->wire = std::make_unique<FaultWire>(cluster_, n, *node->port, node->slots->memory(), node->rates.get(), fault);
    node->engine = std::make_unique<Engine>(cluster_, n, options.engine, *node->wire, *node->slots, incarnation);
    node->liveness = std::make_unique<EngineLiveness>(*node->engine);
    node->events = std::make_unique<Ring<Event>>(16384);
    Engine& e = *node->engine;
    node->plane = std::make_unique<ControlPlane>(cluster_, n, incarnation, options.control,
                                                 EngineRings{e.commands(), *node->events, e.peer_out(), e.peer_in()},
                                                 *this, *this, *node->liveness, memo_);
    nodes_.push_back(std::move(node));
    wake_control(n, 0);
  }
}

SimCluster::~SimCluster() = default;

void SimCluster::wake_part(NodeId n, Part part, Nanos at) noexcept {
  Nanos& wake_at = nodes_[n]->wake_at[static_cast<unsigned>(part)];
  if (at >= wake_at) return;
  wake_at = at;
  due_.push({at, n, part});
}

void SimCluster::request(NodeId n, const OpRequest& q) {
  LK_CHECK(nodes_[n]->engine->requests().push(q));
  wake(n, now());
}

void SimCluster::faults(const FaultRows& rows) {
  for (const FaultRow& row : rows.wire) {
    if (row.kind == FaultKind::kClear)
      std::erase_if(rows_, [&](const FaultRow& r) { return row.fault == 0 || r.fault == row.fault; });
    else
      rows_.push_back(row);
    const bool ends = row.kind == FaultKind::kCut || row.kind == FaultKind::kStall;
    if (row.target == FaultTarget::kNode && row.until_ns == kNever && ends) {
      deaths_.emplace_back(row.at_ns, static_cast<NodeId>(row.id));
      continue;
    }
    for (NodeId n = 0; n < nodes_.size(); ++n) {
      LK_CHECK(nodes_[n]->wire->rows().push(row));
      wake(n, now());
    }
  }
  for (const FaultRow& row : rows.control) control_rows_.push_back(row);
  for (const auto& [at, n] : deaths_) wake(n, std::max(at, now()));
}

void SimCluster::kill(NodeId n) noexcept {
  nodes_[n]->killed = true;
  net_->close(n);
}

bool SimCluster::bus_cut(NodeId from, NodeId to) const noexcept {
  if (nodes_[from]->killed || nodes_[to]->killed) return true;
  for (const FaultRow& r : control_rows_) {
    const bool pair = (r.id == from && r.peer == to) || (r.id == to && r.peer == from);
    if (pair && is_active(r, now())) return true;
  }
  for (const FaultRow& r : rows_) {
    const bool cuts = r.kind == FaultKind::kCut || r.kind == FaultKind::kStall || r.kind == FaultKind::kFlap;
    if (r.target == FaultTarget::kNode && cuts && (r.id == from || r.id == to) && is_active(r, now())) return true;
  }
  return false;
}

bool SimCluster::send(const PeerMessage& message) {
  if (bus_cut(message.from, message.to)) return false;
  mail_.push({now() + options_.bus_ns, sequence_++, message});
  wake_control(message.to, now() + options_.bus_ns);
  return true;
}

LinkReading SimCluster::read(LinkId link) {
  LinkReading reading;
  reading.signal = LinkSignal::kUp;
  const LoopbackPort& port = *nodes_[cluster_.links[link].node]->port;
  for (unsigned d = 0; d < 2; ++d) reading.fraction[d] = port.rate_fraction(link, static_cast<Direction>(d));
  for (const FaultRow& r : rows_) {
    const bool cuts = r.kind == FaultKind::kCut || r.kind == FaultKind::kFlap;
    if (r.target == FaultTarget::kLink && r.id == link && cuts && r.silent == 0 && r.directions == kBothDirections &&
        is_active(r, now())) {
      reading.signal = LinkSignal::kDown;
    }
  }
  return reading;
}

GBps SimCluster::capacity(LinkId link, Direction d) const noexcept {
  const LinkSpec& spec = cluster_.links[link];
  if (nodes_[spec.node]->killed) return 0;
  const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(d));
  for (const FaultRow& r : rows_) {
    const bool dead =
        r.kind == FaultKind::kCut || r.kind == FaultKind::kStall || (r.kind == FaultKind::kFlap && is_active(r, now()));
    const bool here = (r.target == FaultTarget::kLink && r.id == link && (r.directions & bit) != 0) ||
                      (r.target == FaultTarget::kNode && r.id == spec.node);
    if (dead && here && is_active(r, now())) return 0;
  }
  return spec.nominal_GBps * nodes_[spec.node]->port->rate_fraction(link, d);
}

void SimCluster::deliver(Nanos at) {
  while (!mail_.empty() && mail_.top().at <= at) {
    const PeerMessage m = mail_.top().what;
    mail_.pop();
    if (!bus_cut(m.from, m.to)) nodes_[m.to]->plane->receive(m, at);
  }
  while (!signals_.empty() && signals_.top().at <= at) {
    const Signal s = signals_.top().what;
    signals_.pop();
    if (!bus_cut(s.from, s.to)) static_cast<void>(nodes_[s.to]->engine->signals_in().push(s));
  }
}

void SimCluster::run_engine(NodeId n) {
  SimNode& node = *nodes_[n];
  while (node.engine->poll(now()) != 0) {
  }
  wake(n, std::max(node.engine->next_time(now()), now()));
  Signal s;
  while (node.engine->signals_out().pop(s)) {
    if (bus_cut(s.from, s.to)) continue;
    signals_.push({now() + options_.bus_ns, sequence_++, s});
    wake(s.to, now() + options_.bus_ns);
  }
  Event e;
  bool news = !node.engine->peer_in().empty();
  while (node.engine->events().pop(e)) {
    log_.emplace_back(n, e);
    LK_CHECK(node.events->push(e));
    news = true;
  }
  if (news) wake_control(n, now() + options_.control_ns);
}

void SimCluster::run_control(NodeId n) {
  SimNode& node = *nodes_[n];
  node.plane->tick(now());
  wake_control(n, std::max(node.plane->next_time(now()), now() + 1));
  wake(n, now());
}

bool SimCluster::step(Nanos until, NodeId& where) {
  while (!due_.empty() && due_.top().at <= until) {
    const Due due = due_.top();
    due_.pop();
    SimNode& node = *nodes_[due.node];
    Nanos& wake_at = node.wake_at[static_cast<unsigned>(due.part)];
    if (due.at != wake_at) continue;  // was woken earlier since
    wake_at = kNever;
    clock_.advance_to(due.at);
    for (const auto& [at, dead] : deaths_) {
      if (at <= now()) kill(dead);
    }
    if (node.killed) continue;
    deliver(now());
    where = due.node;
    due.part == Part::kEngine ? run_engine(due.node) : run_control(due.node);
    return true;
  }
  clock_.advance_to(until);
  return false;
}

}  // namespace lk

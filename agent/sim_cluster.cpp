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
  net.staging_count = options.engine.payload ? 2048 : 0;
  net.inbox = 16384;
  net_ = std::make_unique<LoopbackNet>(cluster_, net, Waker{&SimCluster::on_wake, this});
  Random random(options.seed ^ 0x6c616e656b656570ULL);
  for (NodeId n = 0; n < cluster.nodes.size(); ++n) {
    SimNode node;
    node.slots = std::make_unique<SlotTable>(options.slots, options.engine.chunk_most_bytes);
    node.port = std::make_unique<LoopbackPort>(*net_, n, node.slots->memory());
    node.rates = std::make_unique<LoopbackRates>(*node.port);
    FaultOptions fault;
    fault.payload = options.engine.payload;
    node.wire = std::make_unique<FaultWire>(cluster_, n, *node.port, node.slots->memory(), node.rates.get(), fault);
    node.engine = std::make_unique<Engine>(cluster_, n, options.engine, *node.wire, *node.slots, random.next() | 1U);
    nodes_.push_back(std::move(node));
  }
}

SimCluster::~SimCluster() = default;

void SimCluster::wake(NodeId n, Nanos at) noexcept {
  SimNode& node = nodes_[n];
  if (at >= node.wake_at) return;
  node.wake_at = at;
  due_.push({at, n});
}

void SimCluster::command(NodeId n, const Command& c) {
  LK_CHECK(nodes_[n].engine->commands().push(c));
  wake(n, now());
}

void SimCluster::request(NodeId n, const OpRequest& q) {
  LK_CHECK(nodes_[n].engine->requests().push(q));
  wake(n, now());
}

void SimCluster::fault(const FaultRow& row) {
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    LK_CHECK(nodes_[n].wire->rows().push(row));
    wake(n, now());
  }
}

void SimCluster::kill(NodeId n) noexcept { nodes_[n].killed = true; }

bool SimCluster::step(Nanos until) {
  while (!due_.empty() && due_.top().at <= until) {
    const Due due = due_.top();
    due_.pop();
    SimNode& node = nodes_[due.node];
    if (due.at != node.wake_at) continue;  // was woken earlier since
    node.wake_at = kNever;
    if (node.killed) continue;
    clock_.advance_to(due.at);
    while (node.engine->poll(clock_.now()) != 0) {
    }
    wake(due.node, std::max(node.engine->next_time(clock_.now()), clock_.now()));
    return true;
  }
  clock_.advance_to(until);
  return false;
}

}  // namespace lk

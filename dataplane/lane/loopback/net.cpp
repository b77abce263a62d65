#include "dataplane/lane/loopback/net.hpp"

namespace lk {

LoopbackNet::LoopbackNet(const ClusterSpec& cluster, const LoopbackOptions& options, Waker waker)
    : cluster_(cluster),
      options_(options),
      waker_(waker),
      closed_(cluster.nodes.size()),
      staging_(options.payload ? options.staging_bytes * options.staging_count * cluster.nodes.size() : 0) {
  const std::size_t nodes = cluster.nodes.size();
  for (std::size_t n = 0; n < nodes; ++n) {
    inboxes_.push_back(std::make_unique<Ring<WireMessage>>(options.inbox, RingProducers::kMulti));
  }
  if (!options.payload || options.staging_count == 0) return;
  for (std::size_t n = 0; n < nodes; ++n) {
    free_staging_.push_back(std::make_unique<Ring<std::uint32_t>>(options.staging_count, RingProducers::kMulti));
    for (unsigned i = 0; i < options.staging_count; ++i) {
      LK_CHECK(free_staging_[n]->push(static_cast<std::uint32_t>(n * options.staging_count + i)));
    }
  }
}

bool LoopbackNet::send(NodeId to, const WireMessage& message) noexcept {
  if (closed_[to].load(std::memory_order_relaxed)) {
    if (message.staging != kNoId) free_staging(message.staging);
    return true;
  }
  if (!inboxes_[to]->push(message)) return false;
  if (waker_.call != nullptr) waker_.call(waker_.self, to, message.arrive_at);
  return true;
}

std::uint32_t LoopbackNet::take_staging(NodeId node) noexcept {
  std::uint32_t index = kNoId;
  return free_staging_[node]->pop(index) ? index : kNoId;
}

void LoopbackNet::free_staging(std::uint32_t index) noexcept {
  LK_CHECK(free_staging_[index / options_.staging_count]->push(index));
}

}  // namespace lk

// LoopbackNet: what the loopback ports of all emulated nodes share: the cluster's tables, one inbox a node and the
// staging buffers in which payload travels (a NIC has read the memory once it is on the wire; so have we).
// A port owns its node's links; a chunk for another node crosses in that node's inbox, a bounded ring.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/base/ring.hpp"
#include "dataplane/lane/wire.hpp"
#include "dataplane/memory/reserved.hpp"

namespace lk {

struct WireMessage {
  enum class Kind : std::uint32_t { kChunk, kSignal, kDelivered };
  Kind kind{};
  LaneId lane = kNoId;
  Direction direction{};
  std::uint8_t unused[3] = {};
  std::uint32_t epoch = 0;
  Nanos arrive_at = 0;   // of the last byte
  Nanos lead_ns = 0;     // kChunk: the first byte was that much earlier
  std::uint64_t id = 0;  // kChunk: the sender's record; kDelivered: the same, back
  std::uint32_t immediate = 0;
  std::uint32_t bytes = 0;
  std::uint32_t staging = kNoId;
  NodeId from = 0;
  std::uint16_t unused2 = 0;
  ChunkHeader header{};
  Signal signal{};
};

// Called when a message for `node` will arrive at `when`: the simulator steps the node then, a reactor is woken.
struct Waker {
  void (*call)(void* self, NodeId node, Nanos when) noexcept = nullptr;
  void* self = nullptr;
};

struct LoopbackOptions {
  bool payload = true;         // false: only time passes
  double rate_scale = 1.0;     // every link's rate times this
  Bytes staging_bytes = 0;     // size of one staging buffer: the largest chunk
  unsigned staging_count = 0;  // buffers of one node
  unsigned inbox = 4096;
};

class LoopbackNet {
 public:
  LoopbackNet(const ClusterSpec& cluster, const LoopbackOptions& options, Waker waker);

  const ClusterSpec& cluster() const noexcept { return cluster_; }
  const LoopbackOptions& options() const noexcept { return options_; }
  bool send(NodeId to, const WireMessage& message) noexcept;  // false: the inbox is full
  // Nobody polls that node's port any more: what is sent to it from now on is lost, as on a wire that ends nowhere.
  void close(NodeId node) noexcept { closed_[node].store(true, std::memory_order_relaxed); }  // any thread
  bool receive(NodeId node, WireMessage& out) noexcept { return inboxes_[node]->pop(out); }

  std::uint32_t take_staging(NodeId node) noexcept;  // kNoId when none is free
  void free_staging(std::uint32_t index) noexcept;   // any reactor
  std::byte* staging(std::uint32_t index) const noexcept {
    return staging_.data() + Bytes{index} * options_.staging_bytes;
  }

 private:
  const ClusterSpec& cluster_;
  LoopbackOptions options_;
  Waker waker_;
  std::vector<std::unique_ptr<Ring<WireMessage>>> inboxes_;
  std::vector<std::atomic<bool>> closed_;                           // by node
  std::vector<std::unique_ptr<Ring<std::uint32_t>>> free_staging_;  // by node
  ReservedMemory staging_;
};

}  // namespace lk

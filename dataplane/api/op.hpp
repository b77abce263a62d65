// What a rank asks for and what it gets back. Values; they cross threads on bounded rings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/dtype.hpp"
#include "dataplane/base/ids.hpp"
#include "dataplane/base/status.hpp"

namespace lk {

enum class Collective : std::uint8_t { kAllReduce = 0, kBroadcast = 1 };

constexpr const char* name_of(Collective c) noexcept {
  return c == Collective::kAllReduce ? "all_reduce" : "broadcast";
}

// One rank enters one op. The buffers stay the agent's until the OpResult; `in` may equal `out`. `scratch` is as large
// as the buffer and holds values between REDUCED and PLACED (DESIGN: an input is overwritten only in the last step).
// With payload off the three pointers are null and only time passes.
struct OpRequest {
  OpNumber number = 0;
  std::uint64_t count = 0;   // elements
  std::uint64_t cookie = 0;  // the caller's own, comes back in the result
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;
  std::uint32_t session = 0;
  GroupId group = 0;
  Rank rank = 0;
  Rank root = 0;                 // broadcast
  std::uint16_t membership = 0;  // of the group, as the caller knows it: after a loss the op is refused; 0: any
  Collective kind{};
  RedOp redop{};
  DType dtype{};
  std::uint8_t unused = 0;
};

struct OpResult {
  OpNumber number = 0;
  std::uint64_t cookie = 0;
  std::uint32_t session = 0;
  GroupId group = 0;
  Rank rank = 0;
  Status status{};
  std::uint8_t unused = 0;
  NodeId lost_node = kNoId16;    // kNodeLost, kPartitioned: the node
  Rank other_rank = kNoId16;     // kMismatch: the rank that disagrees; kNodeLost: a rank on the node
  std::uint16_t membership = 0;  // under which the op ran: what `rank` counts; a late result is of an earlier one
  std::uint32_t chunks_done = 0, chunks_total = 0;  // of this rank
  std::uint32_t unused3 = 0;
};

}  // namespace lk

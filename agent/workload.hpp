// Workload: the ops of a run, their inputs, and what must come of them. Shared by the simulator and the lab: the inputs
// are made from a seed (or read from files), the expected bits by reduce/reference, which is not the data path's code.
// Owner: one thread. Payload off: no memory, only counts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/api/group.hpp"
#include "dataplane/api/op.hpp"
#include "dataplane/base/random.hpp"

namespace lk {

struct PlannedOp {
  Collective kind{};
  RedOp redop{};
  DType dtype{};
  std::uint64_t count = 0;
  Rank root = 0;  // by endpoint order of the first membership
  bool in_place = false;
  Nanos gap_ns = 0;  // not before so long after the one before
};

// Seeded mixture: all collectives, types and reductions, sizes from nothing to `most_bytes`, mostly small.
std::vector<PlannedOp> mixed_ops(std::uint64_t seed, unsigned ops, std::size_t ranks, Bytes most_bytes,
                                 Nanos gap_most_ns);
std::vector<PlannedOp> equal_ops(unsigned ops, Bytes bytes, Nanos gap_ns);

// One op's memory at every rank and the bits it must leave. Inputs are a function of (seed, op, endpoint), so an op can
// be run again after its group has shrunk.
class OpMemory {
 public:
  OpMemory(const PlannedOp& op, std::uint64_t seed, const GroupSpec& group, bool payload);

  const std::byte* in(Rank r) const noexcept { return payload_ ? in_[r].get() : nullptr; }
  std::byte* out(Rank r) noexcept { return payload_ ? (op_.in_place ? in_[r].get() : out_[r].get()) : nullptr; }
  std::byte* scratch(Rank r) noexcept { return payload_ ? scratch_[r].get() : nullptr; }
  // Bits of the rank's result that are not what they must be, and of its input when that must have stayed.
  std::uint64_t wrong_bits(Rank r) const;

 private:
  PlannedOp op_;
  bool payload_;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> in_, out_, scratch_;
  std::unique_ptr<std::byte[]> want_;
};

}  // namespace lk

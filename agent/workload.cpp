#include "agent/workload.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "dataplane/reduce/reference.hpp"

namespace lk {

std::vector<PlannedOp> mixed_ops(std::uint64_t seed, unsigned ops, std::size_t ranks, Bytes most_bytes,
                                 Nanos gap_most_ns) {
  Random random(seed ^ 0x776f726b6c6f6164ULL);
  std::vector<PlannedOp> out;
  for (unsigned i = 0; i < ops; ++i) {
    PlannedOp op;
    op.kind = random.chance(0.25) ? Collective::kBroadcast : Collective::kAllReduce;
    op.dtype = static_cast<DType>(random.below(3));
    op.redop = static_cast<RedOp>(random.below(2));
    op.root = static_cast<Rank>(random.below(ranks));
    op.in_place = random.chance(0.5);
    const Bytes most = random.chance(0.2) ? most_bytes : std::min<Bytes>(most_bytes, 64 * kKiB);
    op.count = random.chance(0.05) ? 0 : random.below(most / size_of(op.dtype) + 1);
    op.gap_ns = random.chance(0.5) ? 0 : static_cast<Nanos>(random.below(static_cast<std::uint64_t>(gap_most_ns) + 1));
    out.push_back(op);
  }
  return out;
}

std::vector<PlannedOp> equal_ops(unsigned ops, Bytes bytes, Nanos gap_ns) {
  PlannedOp op;
  op.count = bytes / 4;
  op.gap_ns = gap_ns;
  return std::vector<PlannedOp>(ops, op);
}

namespace {

// Values as gradients have them, and now and then what only a test has: infinities, NaN, denormals, −0.
void fill(DType dtype, std::size_t bytes, Random random, std::byte* out) {
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i + size <= bytes; i += size) {
    const std::uint64_t bits = random.next();
    const bool odd = (bits >> 56) < 2;
    if (dtype == DType::kF32) {
      const float value = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1.0p-34F;
      const auto raw = odd ? static_cast<std::uint32_t>(bits) : std::bit_cast<std::uint32_t>(value);
      std::memcpy(out + i, &raw, 4);
      continue;
    }
    auto raw = static_cast<std::uint16_t>(bits);
    const std::uint16_t one = dtype == DType::kF16 ? 0x3c00 : 0x3f80;
    if (!odd)
      raw = static_cast<std::uint16_t>((raw & 0x83ff) | (one - ((bits >> 20 & 3) << (dtype == DType::kF16 ? 10 : 7))));
    std::memcpy(out + i, &raw, 2);
  }
}

}  // namespace

OpMemory::OpMemory(const PlannedOp& op, std::uint64_t seed, const GroupSpec& group, bool payload)
    : op_(op), payload_(payload), bytes_(op.count * size_of(op.dtype)) {
  if (!payload) return;
  const std::size_t n = group.members.size();
  std::vector<const std::byte*> inputs;
  std::size_t root = 0;
  for (std::size_t r = 0; r < n; ++r) {
    in_.push_back(std::make_unique<std::byte[]>(bytes_ + 1));
    out_.push_back(std::make_unique<std::byte[]>(op.in_place ? 1 : bytes_ + 1));
    scratch_.push_back(std::make_unique<std::byte[]>(bytes_ + 1));
    fill(op.dtype, bytes_, Random(seed * 1000003 + group.members[r]), in_[r].get());
    inputs.push_back(in_[r].get());
    if (r == op.root % n) root = r;
  }
  want_ = std::make_unique<std::byte[]>(bytes_ + 1);
  if (op.kind == Collective::kBroadcast) {
    std::memcpy(want_.get(), inputs[root], bytes_);
    return;
  }
  std::vector<std::vector<std::size_t>> domains;
  for (const GroupDomain& d : group.domains) domains.emplace_back(d.ranks.begin(), d.ranks.end());
  reference_all_reduce(op.dtype, op.redop, op.count, domains, inputs, want_.get());
}

std::uint64_t OpMemory::wrong_bits(Rank r) const {
  if (!payload_) return 0;
  const std::byte* got = op_.in_place ? in_[r].get() : out_[r].get();
  if (std::memcmp(got, want_.get(), bytes_) == 0) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes_; ++i)
    wrong += static_cast<unsigned>(std::popcount(static_cast<unsigned>(got[i] ^ want_[i])));
  return wrong;
}

}  // namespace lk

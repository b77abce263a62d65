#include "dataplane/collective/schedule.hpp"

#include <algorithm>
#include <bit>

namespace lk {

Bytes chunk_bytes_for(Bytes total, const PlanSpec& plan) noexcept {
  constexpr Bytes kLeast = 16 * kKiB;
  const Bytes cells = std::max<Bytes>(plan.share.size(), 1);
  const Bytes want = std::bit_ceil(std::max<Bytes>(total / (cells * 8), 1));
  return std::clamp(want, std::min(kLeast, plan.chunk_bytes), plan.chunk_bytes);
}

void assign_chunks(const PlanSpec& plan, std::uint16_t columns, std::uint16_t homes, std::uint32_t chunks,
                   std::uint16_t only_home, std::vector<std::uint16_t>& column, std::vector<std::uint16_t>& home) {
  // Smooth weighted turns: each cell gains its share a turn, the richest goes and pays the whole.
  thread_local std::vector<std::int64_t> credit;
  credit.assign(std::size_t{columns} * homes, 0);
  column.resize(chunks);
  home.resize(chunks);
  for (std::uint32_t c = 0; c < chunks; ++c) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < credit.size(); ++i) {
      credit[i] += i < plan.share.size() ? plan.share[i] : 0;
      if (credit[i] > credit[best]) best = i;
    }
    credit[best] -= kShareUnit;
    column[c] = static_cast<std::uint16_t>(best / homes);
    home[c] = only_home != kNoId16 ? only_home : static_cast<std::uint16_t>(best % homes);
  }
}

std::uint32_t descriptor_hash(const OpRequest& r, std::uint16_t membership) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto mix = [&h](std::uint64_t v) noexcept {
    for (int i = 0; i < 8; ++i) {
      h ^= (v >> (8 * i)) & 0xff;
      h *= 0x100000001b3ULL;
    }
  };
  mix(r.count);
  mix(static_cast<std::uint64_t>(r.kind) | static_cast<std::uint64_t>(r.redop) << 8 |
      static_cast<std::uint64_t>(r.dtype) << 16);
  mix(r.kind == Collective::kBroadcast ? r.root : 0);
  mix(membership);
  const auto folded = static_cast<std::uint32_t>(h ^ (h >> 32));
  return folded == 0 ? 1 : folded;
}

}  // namespace lk

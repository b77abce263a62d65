// The fixed schedule of a collective: how a buffer is cut into chunks and which column and home each chunk has. A pure
// function of (bytes, type, plan), so every rank computes the same; a plan never changes what is computed, only where.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/api/group.hpp"
#include "dataplane/api/op.hpp"

namespace lk {

// Bytes of one chunk: at most the plan's, small enough that every cell (column × home) has several, at least 16 KiB.
Bytes chunk_bytes_for(Bytes total, const PlanSpec& plan) noexcept;

// Fills column and home for `chunks` chunks: cells take turns in proportion to their share, so all links work at once.
// A broadcast's home is its root's domain: pass it as `only_home`, else kNoId16.
void assign_chunks(const PlanSpec& plan, std::uint16_t columns, std::uint16_t homes, std::uint32_t chunks,
                   std::uint16_t only_home, std::vector<std::uint16_t>& column, std::vector<std::uint16_t>& home);

// What all ranks of an op must agree on, as 32 bits.
std::uint32_t descriptor_hash(const OpRequest& request, std::uint16_t membership) noexcept;

}  // namespace lk

// GroupSpec: the ranks that reduce together, and how data is laid over them. PlanSpec: the numbered plan that says
// which part of the data each GPU reduces. Both are built by the control plane, immutable afterwards, and handed to
// engines by command; an engine gives a replaced one back by event.
//
// Words: ranks are grouped by NVLink domain in domain order. A column names one member of each domain; data of one
// column is reduced by that member in every domain, so it travels along one rail. A chunk has a column and a home
// domain: the home's owner folds all domains' values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct GroupDomain {
  std::vector<Rank> ranks;   // in rank order
  std::vector<Rank> owners;  // by column; empty: the ranks in turns
};

struct GroupSpec {
  GroupId id = 0;
  std::uint16_t membership = 1;  // grows with every shrink; chunks of an older membership are stale
  std::string name;
  std::uint64_t uuid_hi = 0, uuid_lo = 0;  // drawn by rank 0 at join
  std::vector<EndpointId> members;         // by rank
  std::vector<GroupDomain> domains;        // in domain order
  std::vector<std::uint16_t> domain_of;    // by rank: index into domains
  std::vector<std::uint16_t> place_of;     // by rank: index into its domain's ranks
  std::uint16_t columns = 0;               // mostly the largest domain's member count
  OpNumber first_op = 1;                   // of this membership

  Rank owner(std::uint16_t domain, std::uint16_t column) const noexcept {
    const auto& list = domains[domain].owners.empty() ? domains[domain].ranks : domains[domain].owners;
    return list[column % list.size()];
  }
};

// share[column * homes + home] out of kShareUnit; sums to kShareUnit.
inline constexpr std::uint32_t kShareUnit = 1U << 16;

struct PlanSpec {
  GroupId group = 0;
  std::uint16_t membership = 1;
  std::uint32_t version = 1;
  OpNumber from_op = 1;   // first op that uses it
  Bytes chunk_bytes = 0;  // most bytes of one chunk
  std::vector<std::uint32_t> share;
};

}  // namespace lk

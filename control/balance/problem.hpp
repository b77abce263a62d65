// Problem: one group's all-reduce over one cluster as plain tables, the common input of the linear program and of the
// proportional rule. A resource is a link direction, or a lane direction's own limit (probation, host staging). Each
// demand is one trunk direction: bytes that are a sum over the parts (column, home), and lanes that may carry them.
// Built and read on one thread; see balance.hpp for what can fail. Capacities in GB/s.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "control/balance/balance.hpp"

namespace lk {

struct PartTerm {
  std::uint32_t part;  // column · homes + home
  double factor;       // bytes on the trunk per byte of the part
};

struct LaneOption {
  LaneId lane;
  std::uint16_t rung;
  std::uint16_t resource_count;
  std::uint32_t first_resource;  // in Problem::pool
};

struct TrunkDemand {
  TrunkId trunk;  // kNoId: the cluster has no trunk between these two
  Direction direction;
  std::vector<PartTerm> terms;
  std::vector<LaneOption> options;  // by rung; empty: its parts must be 0
};

struct Problem {
  std::size_t columns = 0;
  std::size_t homes = 0;
  std::vector<TrunkDemand> demands;
  std::vector<GBps> capacity;       // per resource
  std::vector<std::uint32_t> pool;  // resources of the options
  std::vector<bool> banned;         // parts that cannot be moved at all

  std::size_t part_count() const noexcept { return columns * homes; }
  std::span<const std::uint32_t> resources_of(const LaneOption& option) const noexcept {
    return {pool.data() + option.first_resource, option.resource_count};
  }
};

Problem make_problem(const BalanceInput& input);

// A demand's bytes for given parts.
double demand_of(const TrunkDemand& demand, std::span<const double> parts);

}  // namespace lk

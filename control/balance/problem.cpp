#include "control/balance/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "control/balance/eligibility.hpp"
#include "control/topology/columns.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

void check_sizes(const BalanceInput& input) {
  const ClusterSpec& cluster = input.cluster;
  if (input.capacity.size() != cluster.links.size()) {
    throw InputError(
        fmt::format("balance: {} link capacities, expected {}", input.capacity.size(), cluster.links.size()));
  }
  if (input.health.size() != cluster.lanes.size()) {
    throw InputError(
        fmt::format("balance: {} lane health rows, expected {}", input.health.size(), cluster.lanes.size()));
  }
}

DomainMembers domains_of(const BalanceInput& input) {
  std::map<DomainId, std::vector<EndpointId>> by_id;
  std::vector<bool> seen(input.cluster.gpus.size(), false);
  for (const EndpointId member : input.members) {
    if (member >= seen.size()) {
      throw InputError(fmt::format("balance: member {}, expected below {}", member, seen.size()));
    }
    if (seen[member]) throw InputError(fmt::format("balance: member {} is there twice", member));
    seen[member] = true;
    by_id[input.cluster.gpus[member].domain].push_back(member);
  }
  DomainMembers domains;
  for (auto& [id, members] : by_id) domains.push_back(std::move(members));
  return domains;
}

// Collects what each pair sends, in the order in which pairs are first named (deterministic).
class DemandTable {
 public:
  explicit DemandTable(const ClusterSpec& cluster) : cluster_(cluster) {}

  void add(EndpointId from, EndpointId to, std::uint32_t part) {
    const std::uint32_t key = std::uint32_t{from} << 16 | to;
    const auto [it, fresh] = at_.try_emplace(key, demands_.size());
    if (fresh) {
      const Direction d = from < to ? Direction::kForward : Direction::kBackward;
      demands_.push_back({cluster_.trunk_between(from, to), d, {}, {}});
    }
    demands_[it->second].terms.push_back({part, 1.0});
  }
  std::vector<TrunkDemand> take() { return std::move(demands_); }

 private:
  const ClusterSpec& cluster_;
  std::unordered_map<std::uint32_t, std::size_t> at_;
  std::vector<TrunkDemand> demands_;
};

void add_domain_steps(const DomainMembers& domains, const Columns& columns, Problem& problem, DemandTable& table) {
  for (std::size_t d = 0; d < domains.size(); ++d) {
    const auto& members = domains[d];
    for (std::size_t j = 0; j < problem.columns; ++j) {
      const EndpointId owner = columns[j][d];
      for (std::size_t h = 0; h < problem.homes; ++h) {
        const auto part = static_cast<std::uint32_t>(j * problem.homes + h);
        for (const EndpointId member : members) {
          if (member == owner) continue;
          table.add(member, owner, part);  // reduce-scatter
          table.add(owner, member, part);  // all-gather
        }
      }
    }
  }
}

void add_rail_steps(const Columns& columns, Problem& problem, DemandTable& table) {
  for (std::size_t j = 0; j < problem.columns; ++j) {
    for (std::size_t h = 0; h < problem.homes; ++h) {
      const auto part = static_cast<std::uint32_t>(j * problem.homes + h);
      const EndpointId home = columns[j][h];
      for (std::size_t d = 0; d < problem.homes; ++d) {
        if (d == h) continue;
        const EndpointId owner = columns[j][d];
        table.add(owner, home, part);  // to the home, to be reduced
        table.add(home, owner, part);  // and back
      }
    }
  }
}

void add_options(const BalanceInput& input, Problem& problem, TrunkDemand& demand) {
  if (demand.trunk == kNoId) return;
  for (const LaneId id : eligible_lanes(input, demand.trunk, demand.direction)) {
    const LaneSpec& lane = input.cluster.lanes[id];
    const auto first = static_cast<std::uint32_t>(problem.pool.size());
    for (const Hop& hop : hops_of(lane, demand.direction)) {
      problem.pool.push_back(static_cast<std::uint32_t>(hop.link * 2 + index_of(hop.direction)));
    }
    const double health = input.health[id][index_of(demand.direction)];
    const bool limited = own_limit(input.cluster, lane).has_value();
    if (limited || health < kFull) {
      problem.pool.push_back(static_cast<std::uint32_t>(problem.capacity.size()));
      problem.capacity.push_back(lane_reach(input, id, demand.direction));
    }
    const auto count = static_cast<std::uint16_t>(problem.pool.size() - first);
    demand.options.push_back({id, lane.rung, count, first});
  }
}

// Links in series (a NIC's slot and its port) carry the same lanes: only the one of the least capacity is kept in
// paths.
void merge_series(Problem& problem) {
  std::vector<std::vector<std::uint32_t>> crossed_by(problem.capacity.size());  // places in all options
  std::uint32_t option_number = 0;
  for (const TrunkDemand& demand : problem.demands) {
    for (const LaneOption& option : demand.options) {
      for (const std::uint32_t resource : problem.resources_of(option)) crossed_by[resource].push_back(option_number);
      ++option_number;
    }
  }
  std::map<std::vector<std::uint32_t>, std::uint32_t> kept;
  for (std::uint32_t resource = 0; resource < crossed_by.size(); ++resource) {
    if (crossed_by[resource].empty()) continue;
    std::uint32_t& least = kept.try_emplace(crossed_by[resource], resource).first->second;
    if (problem.capacity[resource] < problem.capacity[least]) least = resource;
  }
  std::vector<bool> keep(problem.capacity.size(), false);
  for (const auto& [options, resource] : kept) keep[resource] = true;
  std::vector<std::uint32_t> pool;
  for (TrunkDemand& demand : problem.demands) {
    for (LaneOption& option : demand.options) {
      const auto first = static_cast<std::uint32_t>(pool.size());
      for (const std::uint32_t resource : problem.resources_of(option)) {
        if (keep[resource]) pool.push_back(resource);
      }
      option.first_resource = first;
      option.resource_count = static_cast<std::uint16_t>(pool.size() - first);
    }
  }
  problem.pool = std::move(pool);
}

}  // namespace

Problem make_problem(const BalanceInput& input) {
  check_sizes(input);
  Problem problem;
  const DomainMembers domains = domains_of(input);
  const Columns columns = choose_columns(input.cluster, domains);
  problem.homes = domains.size();
  problem.columns = columns.size();
  problem.banned.assign(problem.part_count(), false);
  for (const auto& both : input.capacity) problem.capacity.insert(problem.capacity.end(), both.begin(), both.end());
  DemandTable table(input.cluster);
  add_domain_steps(domains, columns, problem, table);
  add_rail_steps(columns, problem, table);
  problem.demands = table.take();
  for (TrunkDemand& demand : problem.demands) {
    add_options(input, problem, demand);
    if (!demand.options.empty()) continue;
    for (const PartTerm& term : demand.terms) problem.banned[term.part] = true;
  }
  merge_series(problem);
  return problem;
}

double demand_of(const TrunkDemand& demand, std::span<const double> parts) {
  double sum = 0;
  for (const PartTerm& term : demand.terms) sum += term.factor * parts[term.part];
  return sum;
}

}  // namespace lk

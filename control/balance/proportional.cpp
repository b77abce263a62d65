#include "control/balance/proportional.hpp"

#include <algorithm>

namespace lk {
namespace {

constexpr int kSlices = 16;
constexpr int kPasses = 2;
constexpr double kTie = 1e-12;

struct Loads {
  const Problem& problem;
  std::vector<double> bytes;  // per resource

  void add(const LaneOption& option, double amount) {
    for (const std::uint32_t resource : problem.resources_of(option)) bytes[resource] += amount;
  }
  double fullest(const LaneOption& option, double extra) const {
    double most = 0;
    for (const std::uint32_t r : problem.resources_of(option)) {
      most = std::max(most, (bytes[r] + extra) / problem.capacity[r]);
    }
    return most;
  }
};

std::vector<double> place(const TrunkDemand& demand, double bytes, Loads& loads) {
  std::vector<double> fractions(demand.options.size(), 0.0);
  const double slice = bytes / kSlices;
  for (int s = 0; s < kSlices; ++s) {
    std::size_t best = 0;
    double least = loads.fullest(demand.options[0], slice);
    for (std::size_t k = 1; k < demand.options.size(); ++k) {
      const double fullest = loads.fullest(demand.options[k], slice);
      if (fullest >= least * (1 - kTie)) continue;
      least = fullest;
      best = k;
    }
    loads.add(demand.options[best], slice);
    fractions[best] += 1.0 / kSlices;
  }
  return fractions;
}

}  // namespace

std::vector<double> even_shares(const Problem& problem) {
  const auto movable = std::count(problem.banned.begin(), problem.banned.end(), false);
  const std::size_t parts = problem.part_count();
  if (movable == 0) return std::vector<double>(parts, 1.0 / static_cast<double>(std::max<std::size_t>(parts, 1)));
  std::vector<double> shares(parts, 0.0);
  for (std::size_t part = 0; part < parts; ++part) {
    if (!problem.banned[part]) shares[part] = 1.0 / static_cast<double>(movable);
  }
  return shares;
}

std::vector<std::vector<double>> proportional_splits(const Problem& problem, const std::vector<double>& shares) {
  std::vector<std::vector<double>> splits(problem.demands.size());
  std::vector<double> bytes(problem.demands.size());
  Loads loads{problem, std::vector<double>(problem.capacity.size(), 0.0)};
  for (std::size_t t = 0; t < splits.size(); ++t) {
    const TrunkDemand& demand = problem.demands[t];
    if (demand.options.empty()) continue;
    bytes[t] = demand_of(demand, shares);
    splits[t].assign(demand.options.size(), 0.0);
    splits[t][0] = 1.0;
    loads.add(demand.options[0], bytes[t]);
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    for (std::size_t t = 0; t < splits.size(); ++t) {
      const TrunkDemand& demand = problem.demands[t];
      if (demand.options.size() < 2 || bytes[t] <= 0) continue;
      for (std::size_t k = 0; k < demand.options.size(); ++k) loads.add(demand.options[k], -bytes[t] * splits[t][k]);
      splits[t] = place(demand, bytes[t], loads);
    }
  }
  return splits;
}

}  // namespace lk

#include "control/balance/flow_program.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace lk {
namespace {

constexpr double kPays = 1e-8;        // a lane whose price is lower by more than this is opened
constexpr double kEnough = 1e-7;      // totals nearer than this fraction are equal
constexpr double kRungWeight = 1e-3;  // of traffic a rung higher, against a part's distance from even

}  // namespace

FlowProgram::FlowProgram(const Problem& problem, const BalanceLimits& limits)
    : problem_(problem), limits_(limits), simplex_(limits.max_work) {
  build(nullptr);
}

FlowProgram::FlowProgram(const Problem& problem, const BalanceLimits& limits, const std::vector<double>& shares)
    : problem_(problem), limits_(limits), simplex_(limits.max_work), given_shares_(true) {
  build(&shares);
}

void FlowProgram::build(const std::vector<double>* shares) {
  const std::size_t parts = problem_.part_count();
  variable_of_part_.assign(parts, kNoId);
  part_ratio_.assign(parts, shares == nullptr ? 1.0 : 0.0);
  bool blocked = false;  // given shares that cannot be moved: the program stays empty, its total 0
  for (std::size_t part = 0; part < parts; ++part) {
    if (shares != nullptr) {
      part_ratio_[part] = (*shares)[part];
      if (part_ratio_[part] <= 0) continue;
      blocked = blocked || problem_.banned[part];
      variable_of_part_[part] = 0;
    } else if (!problem_.banned[part]) {
      variable_of_part_[part] = simplex_.add_variable(1.0, 0.0, {});
    }
  }
  if (blocked) variable_of_part_.assign(parts, kNoId);
  if (shares != nullptr && !blocked) simplex_.add_variable(1.0, 0.0, {});
  share_variables_ = simplex_.variable_count();
  add_base_rows();
}

void FlowProgram::add_base_rows() {
  resources_.resize(problem_.capacity.size());
  trunks_.resize(problem_.demands.size());
  std::vector<double> sum(share_variables_);
  scale_ = 0;
  for (std::size_t t = 0; t < trunks_.size(); ++t) {
    const TrunkDemand& demand = problem_.demands[t];
    if (demand.options.empty()) continue;
    std::fill(sum.begin(), sum.end(), 0.0);
    for (const PartTerm& term : demand.terms) {
      const std::uint32_t variable = variable_of_part_[term.part];
      if (variable != kNoId) sum[variable] += term.factor * part_ratio_[term.part];
    }
    for (std::uint32_t v = 0; v < sum.size(); ++v) {
      if (sum[v] > 0) trunks_[t].terms.push_back({v, sum[v]});
    }
    if (trunks_[t].terms.empty()) continue;
    for (const std::uint32_t resource : problem_.resources_of(demand.options[0])) {
      ResourceState& state = resources_[resource];
      if (state.load.empty()) state.load.assign(share_variables_, 0.0);
      for (const PartTerm& term : trunks_[t].terms) state.load[term.part] += term.factor;
      scale_ = std::max(scale_, problem_.capacity[resource]);
    }
  }
  if (scale_ <= 0) scale_ = 1;
  std::map<std::vector<double>, std::uint32_t> group_of;
  for (std::uint32_t resource = 0; resource < resources_.size(); ++resource) {
    ResourceState& state = resources_[resource];
    if (state.load.empty()) continue;
    const auto [it, fresh] = group_of.try_emplace(state.load, static_cast<std::uint32_t>(peer_groups_.size()));
    if (fresh) peer_groups_.emplace_back();
    state.peer_group = it->second;
    peer_groups_[it->second].push_back(resource);
  }
  for (const auto& group : peer_groups_) {
    add_resource_row(*std::min_element(group.begin(), group.end(), [&](std::uint32_t x, std::uint32_t y) {
      return problem_.capacity[x] < problem_.capacity[y];
    }));
  }
}

void FlowProgram::add_resource_row(std::uint32_t resource) {
  std::vector<Simplex::Term> terms;
  const ResourceState& state = resources_[resource];
  for (std::uint32_t v = 0; v < state.load.size(); ++v) {
    if (state.load[v] > 0) terms.push_back({v, state.load[v]});
  }
  resources_[resource].row = simplex_.add_row(terms, problem_.capacity[resource] / scale_);
}

void FlowProgram::separate(std::uint32_t resource) {
  ResourceState& state = resources_[resource];
  if (state.peer_group == kNoId) {
    if (state.row == kNoId) add_resource_row(resource);
    return;
  }
  for (const std::uint32_t peer : peer_groups_[state.peer_group]) {
    if (resources_[peer].row == kNoId) add_resource_row(peer);
  }
}

void FlowProgram::open(std::size_t demand, std::size_t option) {
  const TrunkDemand& spec = problem_.demands[demand];
  TrunkState& trunk = trunks_[demand];
  const auto own = problem_.resources_of(spec.options[option]);
  const auto base = problem_.resources_of(spec.options[0]);
  std::map<std::uint32_t, double> factors;
  for (const std::uint32_t resource : own) factors[resource] += 1.0;
  for (const std::uint32_t resource : base) factors[resource] -= 1.0;
  std::vector<Simplex::Term> column;
  for (const auto& [resource, factor] : factors) {
    if (factor == 0.0) continue;
    separate(resource);
    column.push_back({resources_[resource].row, factor});
  }
  if (trunk.row == kNoId) {  // the base lane's rest may not be negative
    std::vector<Simplex::Term> terms;
    for (const PartTerm& term : trunk.terms) terms.push_back({term.part, -term.factor});
    trunk.row = simplex_.add_row(terms, 0.0);
  }
  column.push_back({trunk.row, 1.0});
  const double rungs_up = static_cast<double>(spec.options[option].rung) - static_cast<double>(spec.options[0].rung);
  trunk.opened.push_back({option, simplex_.add_variable(0.0, -kRungWeight * rungs_up, column)});
}

bool FlowProgram::is_open(std::size_t demand, std::size_t option) const {
  const auto& opened = trunks_[demand].opened;
  return std::any_of(opened.begin(), opened.end(), [&](const Opened& o) { return o.option == option; });
}

double FlowProgram::path_price(const Prices& prices, const LaneOption& option) const {
  double price = 0;
  for (const std::uint32_t resource : problem_.resources_of(option)) price += prices[resource];
  return price;
}

FlowProgram::Prices FlowProgram::solver_prices() const {
  Prices prices(resources_.size(), 0.0);
  for (std::size_t r = 0; r < prices.size(); ++r) {
    if (resources_[r].row != kNoId) prices[r] = simplex_.price(resources_[r].row);
  }
  return prices;
}

FlowProgram::Prices FlowProgram::fullness_prices() const {
  std::vector<double> loads(resources_.size(), 0.0);
  for (std::size_t t = 0; t < trunks_.size(); ++t) {
    double rest = 0;
    for (const PartTerm& term : trunks_[t].terms) rest += term.factor * simplex_.value(term.part);
    if (rest <= 0) continue;
    const TrunkDemand& demand = problem_.demands[t];
    for (const Opened& opened : trunks_[t].opened) {
      const double flow = simplex_.value(opened.variable);
      rest -= flow;
      for (const std::uint32_t r : problem_.resources_of(demand.options[opened.option])) loads[r] += flow;
    }
    for (const std::uint32_t r : problem_.resources_of(demand.options[0])) loads[r] += rest;
  }
  Prices prices(resources_.size(), 0.0);
  for (std::size_t r = 0; r < prices.size(); ++r) {
    if (loads[r] * scale_ >= problem_.capacity[r] * (1 - kEnough)) prices[r] = 1.0;
  }
  return prices;
}

void FlowProgram::collect_paying(const Prices& prices, bool solver, std::vector<Pair>& paying) const {
  for (std::size_t t = 0; t < trunks_.size(); ++t) {
    const TrunkDemand& demand = problem_.demands[t];
    if (trunks_[t].terms.empty() || demand.options.size() < 2) continue;
    double price = path_price(prices, demand.options[0]);
    if (solver && trunks_[t].row != kNoId) price -= simplex_.price(trunks_[t].row);
    if (price <= kPays) continue;
    for (std::size_t k = 1; k < demand.options.size(); ++k) {
      if (price - path_price(prices, demand.options[k]) > kPays && !is_open(t, k)) paying.push_back({t, k});
    }
  }
}

// Whatever the lanes, the resources' capacities at these prices must pay for every byte at its cheapest lane.
double FlowProgram::most_by(const Prices& prices) const {
  const std::vector<double> costs = part_costs(prices);
  double cost = 0;
  for (std::size_t part = 0; part < costs.size(); ++part) cost += costs[part] * part_ratio_[part];
  return cost > 0 ? worth_of(prices) / cost : std::numeric_limits<double>::infinity();
}

double FlowProgram::worth_of(const Prices& prices) const {
  double worth = 0;
  for (std::size_t r = 0; r < prices.size(); ++r) worth += prices[r] * problem_.capacity[r];
  return worth;
}

std::vector<double> FlowProgram::part_costs(const Prices& prices) const {
  std::vector<double> costs(problem_.part_count(), 0.0);
  for (const TrunkDemand& demand : problem_.demands) {
    if (demand.options.empty()) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const LaneOption& option : demand.options) least = std::min(least, path_price(prices, option));
    for (const PartTerm& term : demand.terms) costs[term.part] += term.factor * least;
  }
  return costs;
}

// The solver prices one of many like resources that are full together: spread over all of them.
FlowProgram::Prices FlowProgram::spread_prices() const {
  const Prices solver = solver_prices();
  Prices prices = fullness_prices();
  for (std::size_t r = 0; r < prices.size(); ++r) {
    bool like_a_priced_one = false;
    for (std::size_t other = 0; other < prices.size() && prices[r] > 0 && !like_a_priced_one; ++other) {
      like_a_priced_one = solver[other] > 0 && problem_.capacity[other] == problem_.capacity[r];
    }
    if (!like_a_priced_one) prices[r] = 0.0;
  }
  return prices;
}

bool FlowProgram::no_shares_are_better() const {
  for (const Prices& prices : {solver_prices(), fullness_prices(), spread_prices()}) {
    const std::vector<double> costs = part_costs(prices);
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t part = 0; part < costs.size(); ++part) {
      if (!problem_.banned[part]) least = std::min(least, costs[part]);
    }
    if (least > 0 && total() * least >= worth_of(prices) * (1 - kEnough)) return true;
  }
  return false;
}

std::size_t FlowProgram::open_paying() {
  std::vector<Pair> paying;
  const Prices prices = solver_prices();
  collect_paying(prices, true, paying);
  if (given_shares_ && !paying.empty()) {
    const Prices fullness = fullness_prices();
    if (total() >= std::min(most_by(prices), most_by(fullness)) * (1 - kEnough)) return 0;
    collect_paying(fullness, false, paying);
  }
  std::size_t opened = 0;
  for (const Pair& pair : paying) {
    if (is_open(pair.demand, pair.option)) continue;  // both sets of prices named it
    if (simplex_.variable_count() >= limits_.max_variables) {
      exact_ = false;
      break;
    }
    open(pair.demand, pair.option);
    ++opened;
  }
  return opened;
}

void FlowProgram::maximise() {
  do {
    if (simplex_.solve() != Simplex::Outcome::kOptimal) {
      exact_ = false;
      return;
    }
  } while (open_paying() > 0);
}

void FlowProgram::settle_ties() {
  if (!given_shares_ && share_variables_ > 0) {
    const double even = simplex_.objective() / static_cast<double>(share_variables_);
    for (std::uint32_t v = 0; v < share_variables_; ++v) simplex_.add_soft_bound(v, even, -1.0);
  }
  simplex_.limit_work(limits_.max_work / (given_shares_ ? 10 : 5));
  simplex_.solve_second();
}

std::vector<double> FlowProgram::shares() const {
  std::vector<double> rates(problem_.part_count(), 0.0);
  double sum = 0;
  for (std::size_t part = 0; part < rates.size(); ++part) {
    if (variable_of_part_[part] == kNoId) continue;
    rates[part] = std::max(0.0, simplex_.value(variable_of_part_[part]) * part_ratio_[part]);
    sum += rates[part];
  }
  for (double& rate : rates) {
    rate = sum > 0 ? rate / sum : 1.0 / static_cast<double>(rates.size());
  }
  return rates;
}

std::vector<double> FlowProgram::split(std::size_t at) const {
  const TrunkState& trunk = trunks_[at];
  std::vector<double> fractions(problem_.demands[at].options.size(), 0.0);
  if (fractions.empty()) return fractions;
  double demand = 0;
  for (const PartTerm& term : trunk.terms) demand += term.factor * simplex_.value(term.part);
  double rest = 1.0;
  for (const Opened& opened : trunk.opened) {
    const double flow = std::max(0.0, simplex_.value(opened.variable));
    const double fraction = demand > 0 ? std::min(flow / demand, rest) : 0.0;
    fractions[opened.option] = fraction;
    rest -= fraction;
  }
  fractions[0] = rest;
  return fractions;
}

}  // namespace lk

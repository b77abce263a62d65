#include "control/balance/simplex.hpp"

#include <cmath>

namespace lk {
namespace {

constexpr double kGainTolerance = 1e-9;   // a reduced cost below this is 0
constexpr double kPivotTolerance = 1e-9;  // a cell below this is no pivot
constexpr double kZero = 1e-13;           // a cell below this is rounding noise
constexpr double kTie = 1e-12;            // ratios nearer than this are equal
constexpr std::size_t kPatience = 40;     // pivots without gain before Bland's rule

}  // namespace

std::uint32_t Simplex::append_column(Symbol symbol) {
  const auto column = static_cast<std::uint32_t>(nonbasic_.size());
  nonbasic_.push_back(symbol);
  for (auto& row : rows_) row.push_back(0.0);
  for (auto& objective : objective_) objective.reduced.push_back(0.0);
  return column;
}

std::uint32_t Simplex::add_variable(double cost, double cost2, const std::vector<Term>& column) {
  const auto id = static_cast<std::uint32_t>(place_of_variable_.size());
  const std::uint32_t at = append_column({false, id});
  place_of_variable_.push_back({false, at});
  objective_[0].reduced[at] = cost;
  objective_[1].reduced[at] = cost2;
  // The table holds B⁻¹ times each unit vector as the column of that row's slack: the new column is a sum of those.
  for (const Term& term : column) {
    const Place slack = place_of_slack_[term.index];
    if (slack.basic) {
      cell(slack.at, at) += term.factor;
      continue;
    }
    for (auto& row : rows_) row[at] += term.factor * row[slack.at];
    for (auto& objective : objective_) objective.reduced[at] += term.factor * objective.reduced[slack.at];
  }
  return id;
}

std::uint32_t Simplex::add_row(const std::vector<Term>& terms, double bound) {
  const auto id = static_cast<std::uint32_t>(place_of_slack_.size());
  std::vector<double> cells(nonbasic_.size(), 0.0);
  double right = bound;
  for (const Term& term : terms) {
    const Place place = place_of_variable_[term.index];
    if (!place.basic) {
      cells[place.at] += term.factor;
      continue;
    }
    const std::vector<double>& row = rows_[place.at];
    for (std::size_t k = 0; k < cells.size(); ++k) cells[k] -= term.factor * row[k];
    right -= term.factor * right_[place.at];
  }
  place_of_slack_.push_back({true, static_cast<std::uint32_t>(rows_.size())});
  rows_.push_back(std::move(cells));
  right_.push_back(std::fabs(right) < kZero ? 0.0 : right);
  basic_.push_back({true, id});
  return id;
}

void Simplex::add_soft_bound(std::uint32_t variable, double bound, double cost2) {
  const std::uint32_t excess = add_variable(0.0, cost2, {});
  const std::uint32_t row = add_row({{variable, 1.0}, {excess, -1.0}}, bound);
  const std::uint32_t at = place_of_slack_[row].at;
  // A point beyond the bound: the excess takes the slack's place in the basis, at the value that makes the row hold.
  if (right_[at] < 0.0) pivot(at, place_of_variable_[excess].at);
}

double Simplex::value(std::uint32_t variable) const noexcept {
  const Place place = place_of_variable_[variable];
  return place.basic ? right_[place.at] : 0.0;
}

double Simplex::price(std::uint32_t row) const noexcept {
  const Place place = place_of_slack_[row];
  return place.basic ? 0.0 : -objective_[0].reduced[place.at];
}

bool Simplex::may_enter(std::size_t which, std::size_t column) const noexcept {
  if (objective_[which].reduced[column] <= kGainTolerance) return false;
  // The second objective may only move along optima of the first.
  return which == 0 || objective_[0].reduced[column] >= -kGainTolerance;
}

int Simplex::entering_by_bland(std::size_t which) const noexcept {
  int best = -1;
  for (std::size_t k = 0; k < nonbasic_.size(); ++k) {
    if (!may_enter(which, k)) continue;
    if (best < 0 || order_of(nonbasic_[k]) < order_of(nonbasic_[static_cast<std::size_t>(best)])) {
      best = static_cast<int>(k);
    }
  }
  return best;
}

// The steepest edge: the gain per distance moved in all variables.
int Simplex::entering_by_slope(std::size_t which) {
  candidates_.clear();
  for (std::size_t k = 0; k < nonbasic_.size(); ++k) {
    if (may_enter(which, k)) candidates_.push_back(static_cast<std::uint32_t>(k));
  }
  if (candidates_.size() < 2) return candidates_.empty() ? -1 : static_cast<int>(candidates_[0]);
  lengths_.assign(candidates_.size(), 1.0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < candidates_.size(); ++i) lengths_[i] += row[candidates_[i]] * row[candidates_[i]];
  }
  spend(rows_.size() * candidates_.size());
  std::size_t best = 0;
  double best_slope = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const double gain = objective_[which].reduced[candidates_[i]];
    const double slope = gain * gain / lengths_[i];
    const bool earlier = order_of(nonbasic_[candidates_[i]]) < order_of(nonbasic_[candidates_[best]]);
    if (slope < best_slope || (slope == best_slope && !earlier)) continue;
    best = i;
    best_slope = slope;
  }
  return static_cast<int>(candidates_[best]);
}

int Simplex::leaving(std::size_t column, bool bland) const noexcept {
  int best = -1;
  double best_ratio = 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const double p = rows_[r][column];
    if (p <= kPivotTolerance) continue;
    const double ratio = std::fmax(right_[r], 0.0) / p;
    if (best >= 0 && ratio > best_ratio + kTie) continue;
    if (best >= 0 && ratio >= best_ratio - kTie) {
      const auto b = static_cast<std::size_t>(best);
      const bool earlier = order_of(basic_[r]) < order_of(basic_[b]);
      const double best_p = rows_[b][column];
      if (bland ? !earlier : (p < best_p || (p == best_p && !earlier))) continue;
    }
    best = static_cast<int>(r);
    best_ratio = ratio;
  }
  return best;
}

void Simplex::pivot(std::size_t row, std::size_t column) {
  ++pivots_;
  std::vector<double>& pivot_row = rows_[row];
  const double inverse = 1.0 / pivot_row[column];
  nonzero_.clear();
  for (std::size_t k = 0; k < pivot_row.size(); ++k) {
    if (k == column || pivot_row[k] == 0.0) continue;
    pivot_row[k] *= inverse;
    nonzero_.push_back(static_cast<std::uint32_t>(k));
  }
  right_[row] *= inverse;
  const std::size_t width = pivot_row.size();
  const bool dense = nonzero_.size() * 4 > width;  // then a plain loop over all of it is faster
  std::uint64_t work = rows_.size() + width;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const double factor = rows_[r][column];
    if (r == row || factor == 0.0) continue;
    double* cells = rows_[r].data();
    if (dense) {
      const double* from = pivot_row.data();
      for (std::size_t k = 0; k < width; ++k) cells[k] -= factor * from[k];
    } else {
      for (const std::uint32_t k : nonzero_) {
        const double updated = cells[k] - factor * pivot_row[k];
        cells[k] = std::fabs(updated) < kZero ? 0.0 : updated;
      }
    }
    cells[column] = -factor * inverse;
    const double updated = right_[r] - factor * right_[row];
    right_[r] = std::fabs(updated) < kZero ? 0.0 : updated;
    work += nonzero_.size();
  }
  for (auto& objective : objective_) {
    const double factor = objective.reduced[column];
    for (const std::uint32_t k : nonzero_) objective.reduced[k] -= factor * pivot_row[k];
    objective.reduced[column] = -factor * inverse;
    objective.value += factor * right_[row];
  }
  pivot_row[column] = inverse;
  std::swap(basic_[row], nonbasic_[column]);
  place_of(basic_[row]) = {true, static_cast<std::uint32_t>(row)};
  place_of(nonbasic_[column]) = {false, static_cast<std::uint32_t>(column)};
  spend(work);
}

Simplex::Outcome Simplex::run(std::size_t which) {
  std::size_t idle = 0;
  while (true) {
    const bool bland = idle > kPatience;
    const int column = bland ? entering_by_bland(which) : entering_by_slope(which);
    if (column < 0) return Outcome::kOptimal;
    if (work_left_ == 0) return Outcome::kLimit;
    const int row = leaving(static_cast<std::size_t>(column), bland);
    if (row < 0) return Outcome::kUnbounded;
    const double before = objective_[which].value;
    pivot(static_cast<std::size_t>(row), static_cast<std::size_t>(column));
    idle = objective_[which].value > before + kTie ? 0 : idle + 1;
  }
}

Simplex::Outcome Simplex::solve() { return run(0); }
Simplex::Outcome Simplex::solve_second() { return run(1); }

}  // namespace lk

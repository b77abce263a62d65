// Simplex: a small dense solver for linear programs whose origin is feasible: maximise c·x, A x <= b, x >= 0, b >= 0.
// Such a program needs no first phase: it starts at x = 0. Rows and columns may be added between calls of solve(),
// which then goes on from where it was (column generation, control/balance/flow_program.hpp). A second objective may be
// maximised among the optima of the first.
// Entering: the steepest edge; after a run of pivots that gain nothing, Bland's rule, so it cannot cycle.
// Deterministic to the bit: no clock, no random numbers, ties by index. Its time is bounded by a count of
// multiplications, not by a clock; when that is spent the current point is feasible, only not proved optimal.
// Owner: one thread. Nothing here throws but for memory. Scale A and b to about 1 (tolerances are absolute).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lk {

class Simplex {
 public:
  struct Term {
    std::uint32_t index;  // a row's id in a column, a variable's id in a row
    double factor;
  };
  enum class Outcome : std::uint8_t { kOptimal, kUnbounded, kLimit };

  explicit Simplex(std::uint64_t max_work) : work_left_(max_work) {}
  void limit_work(std::uint64_t max_work) noexcept { work_left_ = max_work; }  // from now on

  // The id of the new variable; it is 0 until solve() finds better. `cost2` is its factor in the second objective.
  std::uint32_t add_variable(double cost, double cost2, const std::vector<Term>& column);
  // The id of the new row. The current point must satisfy it.
  std::uint32_t add_row(const std::vector<Term>& terms, double bound);
  // variable - excess <= bound, where excess >= 0 is a new variable with `cost2` in the second objective.
  void add_soft_bound(std::uint32_t variable, double bound, double cost2);

  Outcome solve();         // the first objective
  Outcome solve_second();  // the second, the first being kept at its optimum
  double objective() const noexcept { return objective_[0].value; }
  double value(std::uint32_t variable) const noexcept;
  double price(std::uint32_t row) const noexcept;  // gain of the first objective per unit of the row's bound
  std::size_t variable_count() const noexcept { return place_of_variable_.size(); }
  std::size_t pivots() const noexcept { return pivots_; }

 private:
  struct Place {
    bool basic = false;
    std::uint32_t at = 0;  // row of the table if basic, else its column
  };
  struct Symbol {  // a variable of the program, or the slack of a row
    bool slack = false;
    std::uint32_t id = 0;
  };
  struct Objective {
    double value = 0;
    std::vector<double> reduced;  // per column of the table
  };

  double& cell(std::size_t row, std::size_t column) noexcept { return rows_[row][column]; }
  Place& place_of(Symbol s) noexcept { return s.slack ? place_of_slack_[s.id] : place_of_variable_[s.id]; }
  std::uint64_t order_of(Symbol s) const noexcept { return std::uint64_t{s.id} * 2 + (s.slack ? 1 : 0); }
  std::uint32_t append_column(Symbol symbol);
  Outcome run(std::size_t which);
  bool may_enter(std::size_t which, std::size_t column) const noexcept;
  int entering_by_bland(std::size_t which) const noexcept;
  int entering_by_slope(std::size_t which);
  int leaving(std::size_t column, bool bland) const noexcept;
  void spend(std::uint64_t work) noexcept { work_left_ -= work < work_left_ ? work : work_left_; }
  void pivot(std::size_t row, std::size_t column);

  std::vector<std::vector<double>> rows_;  // basic + Σ cell · nonbasic = right
  std::vector<double> right_;
  std::vector<Symbol> basic_;     // per row of the table
  std::vector<Symbol> nonbasic_;  // per column of the table
  std::vector<Place> place_of_variable_;
  std::vector<Place> place_of_slack_;
  Objective objective_[2];
  std::vector<std::uint32_t> nonzero_;     // columns that the pivot row touches; kept to spare the allocation
  std::vector<std::uint32_t> candidates_;  // columns that may enter
  std::vector<double> lengths_;            // of their edges, squared
  std::uint64_t work_left_;
  std::size_t pivots_ = 0;
};

}  // namespace lk

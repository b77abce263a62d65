// FlowProgram: the bound as a linear program over rates: maximise the sum of the parts' rates so that no resource
// carries more than its capacity. Each demand's best lane (its base) carries whatever its other lanes do not, so it
// needs no variable, and a demand with one lane needs no row. The other lanes start closed and are opened when the
// prices of the resources say that they pay (column generation): the result is the optimum over all lanes. With given
// shares many resources are often full at once and have many sets of prices; then lanes that avoid full resources are
// opened too, and the program ends when either set of prices proves the optimum.
// Resources that carry exactly the same sum share one row, that of the least capacity, until a lane is opened on one.
// One use, one thread. Nothing here throws but for memory; beyond the limits it stops at a feasible point.
#pragma once

#include <cstdint>
#include <vector>

#include "control/balance/problem.hpp"
#include "control/balance/simplex.hpp"

namespace lk {

class FlowProgram {
 public:
  // Parts free.
  FlowProgram(const Problem& problem, const BalanceLimits& limits);
  // Parts in the ratio of `shares`.
  FlowProgram(const Problem& problem, const BalanceLimits& limits, const std::vector<double>& shares);

  void maximise();
  // Then, once: among the optima, parts as near to equal as can be, and little traffic on high rungs.
  void settle_ties();

  // Whether the prices prove that other shares would not do better. For given shares; false proves nothing.
  bool no_shares_are_better() const;

  bool exact() const noexcept { return exact_; }
  GBps total() const noexcept { return simplex_.objective() * scale_; }
  std::vector<double> shares() const;  // per part, sum 1
  // Per option of demand `at`: its fraction of that demand, sum 1.
  std::vector<double> split(std::size_t at) const;

 private:
  struct Opened {
    std::size_t option;
    std::uint32_t variable;
  };
  struct TrunkState {
    std::vector<PartTerm> terms;  // the demand, over this program's variables
    std::vector<Opened> opened;
    std::uint32_t row = kNoId;
  };
  using Prices = std::vector<double>;  // per resource
  struct Pair {
    std::size_t demand, option;
  };
  struct ResourceState {
    std::vector<double> load;  // by the base lanes, per variable; empty: nothing yet
    std::uint32_t peer_group = kNoId;
    std::uint32_t row = kNoId;
  };

  void build(const std::vector<double>* shares);
  void add_base_rows();
  void add_resource_row(std::uint32_t resource);
  void separate(std::uint32_t resource);  // gives every peer of the resource a row of its own
  void open(std::size_t demand, std::size_t option);
  bool is_open(std::size_t demand, std::size_t option) const;
  std::size_t open_paying();
  Prices solver_prices() const;
  Prices spread_prices() const;
  Prices fullness_prices() const;  // 1 for each full resource
  double path_price(const Prices& prices, const LaneOption& option) const;
  void collect_paying(const Prices& prices, bool solver, std::vector<Pair>& paying) const;
  double most_by(const Prices& prices) const;  // no solution for the given shares has a total above this
  double worth_of(const Prices& prices) const;
  std::vector<double> part_costs(const Prices& prices) const;

  const Problem& problem_;
  const BalanceLimits limits_;
  Simplex simplex_;
  GBps scale_ = 1;                               // capacities are divided by it
  std::vector<std::uint32_t> variable_of_part_;  // kNoId for a banned part
  std::vector<double> part_ratio_;               // rate of the part per its variable
  std::size_t share_variables_ = 0;
  std::vector<TrunkState> trunks_;
  std::vector<ResourceState> resources_;
  std::vector<std::vector<std::uint32_t>> peer_groups_;
  bool given_shares_ = false;
  bool exact_ = true;
};

}  // namespace lk

// sim_measure: a scenario on virtual time, measured: right bits with payload, then what the scenario is for: the share
// of the bound in steady state, or the time of failover over many runs with the fault at other moments. The figures do
// not depend on the machine. One thread; InputError for a scenario that does not fit its cluster.
#pragma once

#include <optional>
#include <string>

#include "agent/scenario.hpp"
#include "agent/sim_run.hpp"

namespace lk {

struct ScenarioFigures {
  bool ok = false;
  std::string why;   // first thing that is not as the scenario expects
  std::string rung;  // kinds of lane that carried the touched trunks, most first
  std::uint64_t wrong_bits = 0, payload_bytes = 0;
  unsigned ops = 0, lost_ops = 0, hung_ops = 0;
  std::optional<double> bound_fraction;
  std::optional<Nanos> failover_p99_ns, recover_ns;
  std::optional<Nanos> op_ns;  // one op in steady state
};

struct MeasureOptions {
  std::uint64_t seed = 1;
  unsigned failover_runs = 24;
  unsigned steady_ops = 48;    // of a share of the bound: timed ops, back to back
  bool payload = true;         // false: only time passes, no bit is checked
  std::string* log = nullptr;  // the engines' events of all runs, line by line
  SimOptions sim;
  std::string dump_bound;  // write the bound's input here, for a solver that is not ours
};

ScenarioFigures measure_scenario(const Scenario& scenario, const MeasureOptions& options);

}  // namespace lk

// Scenario: one story of the lab and of the simulator, from one TOML file: which nodes, what breaks, how long, and what
// must come of it. configs/lab/faults holds those that are shipped, with the keys explained in its README.
// Set-up only. Fails with InputError, one line: file:line, key, what was expected. Targets of faults are checked
// against the cluster by scenario_rows(), as only then is it known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/fault_plan.hpp"
#include "control/topology/profiles.hpp"
#include "dataplane/base/status.hpp"

namespace lk {

// What the simulator's run of it is for.
enum class Measure : std::uint8_t {
  kBound,     // the last op's time against the bound, with the faults that are there then
  kFailover,  // the time from the fault to the first orphan's post on another lane
  kCorrect,   // right bits, nothing lost, nothing hung; true of the others too
};

struct ScenarioExpect {
  // Kinds of lane that carry the payload of the trunks whose best lane the faults touch (none: of all trunks), once
  // they are there. The first must, the others may.
  std::vector<LaneKind> rungs;
  std::optional<double> bound_least;      // share of the bound
  std::optional<Nanos> failover_most_ns;  // p99
  std::optional<Nanos> recover_most_ns;   // from the end of the last fault to an op as fast as before it
  Status lost = Status::kOk;              // how ops end that a lost node leaves unfinished; kOk: all must complete
};

struct Scenario {
  std::string path, name, broke;  // broke: what a person would say, in a few words
  std::vector<ProfileUse> nodes;
  std::string profile;  // for a table: "dgx-a100", "dgx-a100+mesh-4gpu"
  Measure measure = Measure::kCorrect;
  unsigned ops = 6;
  Bytes bytes = 512 * kMiB;  // of one op in the simulator; the lab takes its files
  Nanos every_ns = 0;        // from the start of one op to the start of the next; 0: back to back
  unsigned fault_op = 1;     // faults' times count from the start of this op
  double lab_speedup = 1;    // the lab divides all times of this file by it
  ScenarioExpect expect;
  std::vector<FaultSpec> faults;

  unsigned node_count() const noexcept {
    unsigned n = 0;
    for (const ProfileUse& use : nodes) n += use.nodes;
    return n;
  }
};

const char* name_of(Measure m) noexcept;

Scenario read_scenario(const std::string& path);
// All *.toml of a folder, by name.
std::vector<Scenario> read_scenarios(const std::string& folder);

// Rows of all its faults with numbers 1, 2, …, their times counted from `from` and divided by `speedup`.
FaultRows scenario_rows(const Scenario& scenario, const ClusterSpec& cluster, Nanos from, double speedup = 1);

}  // namespace lk

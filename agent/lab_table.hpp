// LabTable: what the lab found, one row a scenario, for people (a table of 120 columns; what does not fit a cell goes
// on in the next line) and for programs (one JSON object). Pure. Times in ns.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/units.hpp"

namespace lk {

struct LabRow {
  std::string name, profile, fault;
  unsigned nodes = 0;
  std::string rung = {};  // on real threads: kinds of lane that carried the touched trunks, most first
  std::optional<double> bound_fraction = {};
  std::optional<Nanos> failover_p99_ns = {};
  bool simulated = false;  // the two above are of the simulator's virtual time
  unsigned ops = 0;        // on real threads
  std::uint64_t payload_bytes = 0;
  std::uint64_t wrong_bits = 0;  // of both runs, as the next two
  unsigned lost_ops = 0, hung_ops = 0;
  std::string why = {};  // empty: all is right
};

inline constexpr std::size_t kLabTableWidth = 120;

std::string lab_table(const std::vector<LabRow>& rows);
nlohmann::ordered_json lab_json(const std::vector<LabRow>& rows, std::size_t nodes, std::size_t gpus_per_node);
bool all_right(const std::vector<LabRow>& rows) noexcept;

}  // namespace lk

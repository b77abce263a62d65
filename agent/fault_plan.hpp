// What a person may break, and how he says it: the grammar of `lanectl inject` and of [[fault]] rows in TOML, the same
// for lab, simulator and VM.
//
//   KIND TARGET [rate=0.25] [delay=2ms] [period=12s] [direction=tx|rx] [at=T] [for=T] [seed=N] [silent=true]
//
// TARGET is a name that `show` prints: a link (n0.mlx5_0.port1), a lane, a NIC (n0.mlx5_0: its ports and its slot), a
// GPU (n0.gpu3: its NVLinks and its slot), a switch plane (n0.nvswitch2), a node (n1), or control.n0-n1. tx is what
// leaves the thing that the link is named after (a lane: its first end); rx what comes to it. `at` counts from the
// injection. Set-up only, one thread. Everything fails with InputError: one line with the word, its place and what was
// expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/lane/fault_row.hpp"

namespace lk {

// One fault as it was written.
struct FaultSpec {
  FaultKind kind{};
  std::string target;
  std::optional<double> rate;
  std::optional<Nanos> delay, period;
  std::uint8_t directions = kBothDirections;  // tx: kForwardOnly, rx: kBackwardOnly
  Nanos at = 0;
  std::optional<Nanos> lasts;  // empty: stays
  std::uint64_t seed = 1;
  bool silent = false;
  std::string place = "inject: word 2";  // of the target, for errors
};

// `words` without "inject". `place` begins every error, with the number of the word.
FaultSpec parse_fault(std::string_view words, std::string_view place = "inject");
// All [[fault]] rows of a TOML file, in its order.
std::vector<FaultSpec> read_fault_plan(const std::string& path);
// The words again, shortest form; parse_fault() gives the same fault.
std::string fault_to_text(const FaultSpec& fault);

// Rows for the wires, and those that are about control channels, apart. A clear goes to both.
struct FaultRows {
  std::vector<FaultRow> wire, control;
};

// Gives a fault its rows; its times count from `from`.
FaultRows expand_fault(const FaultSpec& fault, const ClusterSpec& cluster, std::uint32_t id, Nanos from);

// A seeded mixture of faults for the simulator. Single: one thing breaks, and the host or tcp rung of every trunk stays
// alive. Storm: several at a time, anything, but whatever cuts off a trunk for good is the loss of a node.
enum class FaultWeather : std::uint8_t { kSingle, kStorm };
std::vector<FaultSpec> random_faults(const ClusterSpec& cluster, std::uint64_t seed, FaultWeather weather,
                                     Nanos duration);

// The faults that were injected and not cleared, with their numbers.
class FaultPlan {
 public:
  struct Entry {
    std::uint32_t id = 0;
    FaultSpec fault;
    Nanos from = 0;
  };

  explicit FaultPlan(const ClusterSpec& cluster) : cluster_(cluster) {}
  FaultRows inject(const FaultSpec& fault, Nanos now);
  // "3", "cut n0.mlx5_0.port1" or "all".
  FaultRows clear(std::string_view words);
  const std::vector<Entry>& entries() const noexcept { return entries_; }

 private:
  const ClusterSpec& cluster_;
  std::vector<Entry> entries_;
  std::uint32_t next_id_ = 1;
};

}  // namespace lk

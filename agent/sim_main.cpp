// lanekeeper-sim: the engine on a virtual clock, in one thread. Same seed, same binary: the same event log to the byte.
// Exit 0 only if all is right, 1 if something is not, 2 for wrong use.
#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/config_value.hpp"
#include "agent/options.hpp"
#include "agent/sim_measure.hpp"
#include "dataplane/base/crc32c.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr Bytes kMostBytes = 1024 * kGiB;

struct Arguments {
  std::string profile = "dgx-a100", faults = "none", bytes, events, dump_bound;
  unsigned nodes = 2, ops = 20;
  std::uint64_t seed = 1, seeds = 1;
  bool json = false, payload_off = false, mixed = false;
  std::set<std::string> given;  // the options that stood on the command line

  bool has(const char* option) const { return given.contains(option); }
};

// As nccl-tests take it: 512M, 64k and a bare number; and as the rest of Lanekeeper does: 512MiB.
Bytes bytes_of(const std::string& text) {
  std::string whole = text;
  const char last = text.empty() ? ' ' : static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
  if (last == 'K' || last == 'M' || last == 'G') whole = text.substr(0, text.size() - 1) + last + "iB";
  if (last >= '0' && last <= '9') whole += "B";
  const std::optional<Bytes> bytes = parse_size(whole);
  if (!bytes || *bytes > kMostBytes) {
    throw InputError(fmt::format("--bytes {}: expected a size such as 512M or 512MiB, at most 1024 GiB", text));
  }
  return *bytes;
}

void write_events(const Arguments& a, const std::string& log) {
  if (a.events.empty()) return;
  std::ofstream file(a.events);
  if (!(file << log << std::flush)) {
    throw InputError(fmt::format("--events {}: cannot be written, expected a path for a file", a.events));
  }
}

nlohmann::json or_null(const auto& value) { return value ? nlohmann::json(*value) : nlohmann::json(nullptr); }

int print(const Arguments& a, const nlohmann::json& j, bool ok) {
  if (a.json) {
    std::cout << j.dump() << "\n";
    return ok ? 0 : 1;
  }
  for (const auto& [key, value] : j.items())
    std::cout << fmt::format("{:<18} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  return ok ? 0 : 1;
}

// A scenario says all by itself; what stands on the command line goes before it.
Scenario scenario_of(const Arguments& a) {
  if (a.has("--seeds")) throw InputError("--seeds: a scenario file is measured with one seed, expected --seed");
  if (a.mixed) throw InputError("--profile mixed: a scenario file needs a cluster that has what its faults name");
  Scenario s = read_scenario(a.faults);
  if (a.has("--profile")) {
    const unsigned nodes = a.has("--nodes") ? a.nodes : s.node_count();
    s.nodes = {ProfileUse{.profile = a.profile, .nodes = nodes}};
    s.profile = a.profile;
  } else if (a.has("--nodes")) {
    if (s.nodes.size() != 1) {
      throw InputError(fmt::format("--nodes {}: {} has several profiles, expected --profile too", a.nodes, s.path));
    }
    s.nodes.front().nodes = a.nodes;
  }
  if (a.has("--bytes")) s.bytes = bytes_of(a.bytes);
  if (a.has("--ops")) {
    if (a.ops < s.fault_op) {
      throw InputError(
          fmt::format("--ops {}: the faults of {} come at op {}, expected as many ops", a.ops, s.path, s.fault_op));
    }
    s.ops = a.ops;
  }
  return s;
}

int run_scenario(const Arguments& a) {
  const Scenario s = scenario_of(a);
  std::string log;
  MeasureOptions options;
  options.seed = a.seed;
  options.dump_bound = a.dump_bound;
  options.payload = !a.payload_off;
  if (a.has("--ops")) options.steady_ops = a.ops;
  if (!a.events.empty()) options.log = &log;
  const ScenarioFigures f = measure_scenario(s, options);
  write_events(a, log);
  nlohmann::json j = {{"ok", f.ok},
                      {"name", s.name},
                      {"profile", s.profile},
                      {"nodes", s.node_count()},
                      {"fault", s.broke},
                      {"rung", f.rung},
                      {"ops", f.ops},
                      {"payload_bytes", f.payload_bytes},
                      {"wrong_bits", f.wrong_bits},
                      {"lost_ops", f.lost_ops},
                      {"hung_ops", f.hung_ops},
                      {"bound_fraction", or_null(f.bound_fraction)},
                      {"op_ns", or_null(f.op_ns)},
                      {"failover_p99_ns", or_null(f.failover_p99_ns)},
                      {"recover_ns", or_null(f.recover_ns)},
                      {"clock", "virtual"},
                      {"why", f.why}};
  return print(a, j, f.ok);
}

// One run with seeded faults. Storms draw their own nodes and profiles when none is named.
SimReport run_seed(const Arguments& a, const ClusterSpec& cluster, std::uint64_t seed, std::string* log) {
  SimJob job;
  job.seed = job.options.seed = seed;
  Random random(seed ^ 0x73746f726dULL);
  Nanos duration = 100 * kMilli;
  if (!a.has("--bytes")) {
    const Nanos gap = random.chance(0.5) ? 2 * kMilli : 20 * kMilli;
    job.ops = mixed_ops(seed, a.ops, cluster.gpus.size(), 2 * kMiB, gap);
    duration = std::max<Nanos>(30 * kMilli, gap * a.ops / 3);
    job.options.engine.payload = !a.payload_off;
    job.depth = 1 + static_cast<unsigned>(random.below(5));
  } else {
    const Bytes bytes = bytes_of(a.bytes);
    job.ops = equal_ops(a.ops, bytes, 0);
    job.options.engine.payload = !a.payload_off && bytes * cluster.gpus.size() * 3 <= 2 * kGiB;
  }
  if (a.faults == "single" || a.faults == "storm") {
    const auto weather = a.faults == "storm" ? FaultWeather::kStorm : FaultWeather::kSingle;
    std::uint32_t id = 1;
    for (const FaultSpec& f : random_faults(cluster, seed, weather, duration)) {
      const FaultRows rows = expand_fault(f, cluster, id++, 0);
      job.faults.wire.insert(job.faults.wire.end(), rows.wire.begin(), rows.wire.end());
      job.faults.control.insert(job.faults.control.end(), rows.control.begin(), rows.control.end());
      if (log != nullptr) *log += fmt::format("fault {}\n", fault_to_text(f));
    }
  }
  job.lost = Status::kNodeLost;
  SimRun run(cluster, job);
  return run.run(log);
}

ClusterSpec cluster_of(const Arguments& a, std::uint64_t seed) {
  if (!a.mixed) return build_profile(a.profile, a.nodes);
  Random random(seed ^ 0x6d69786564ULL);
  const char* small[] = {"mesh-4gpu", "dgx1-v100", "pcie-8gpu", "dgx-a100", "hgx-h100", "gb200-nvl72"};
  std::vector<ProfileUse> uses;
  unsigned left = 2 + static_cast<unsigned>(random.below(random.chance(0.3) ? 7 : 3));
  while (left > 0) {
    const unsigned n = std::min<unsigned>(left, 1 + static_cast<unsigned>(random.below(left)));
    uses.push_back({.profile = small[random.below(random.chance(0.6) ? 3 : std::size(small))], .nodes = n});
    left -= n;
  }
  return build_profiles(uses);
}

int run_seeds(const Arguments& a) {
  std::uint64_t right = 0, wrong_bits = 0, lost = 0, hung = 0, ops = 0, bytes = 0, shrinks = 0, events = 0;
  std::vector<Nanos> failovers;
  std::string log, why;
  std::optional<Nanos> op_ns;
  for (std::uint64_t seed = a.seed; seed < a.seed + a.seeds; ++seed) {
    const ClusterSpec cluster = cluster_of(a, seed);
    const SimReport r = run_seed(a, cluster, seed, a.events.empty() ? nullptr : &log);
    right += r.ok ? 1 : 0;
    wrong_bits += r.wrong_bits;
    lost += r.lost_ops;
    hung += r.hung_ops;
    ops += r.ops;
    bytes += r.payload_bytes;
    shrinks += r.shrinks;
    events += r.events;
    failovers.insert(failovers.end(), r.failovers.begin(), r.failovers.end());
    if (r.ok && r.finished.size() > 8)
      op_ns = (r.finished[r.finished.size() - 4] - r.finished[3]) / static_cast<Nanos>(r.finished.size() - 7);
    if (!r.ok) {
      std::cerr << fmt::format("seed {}: {}: {}\n", seed, cluster.profile, r.why);
      if (why.empty()) why = fmt::format("seed {}: {}", seed, r.why);
    }
  }
  write_events(a, log);
  std::sort(failovers.begin(), failovers.end());
  nlohmann::json j = {{"ok", right == a.seeds},
                      {"seeds", a.seeds},
                      {"right", right},
                      {"ops", ops},
                      {"payload_bytes", bytes},
                      {"wrong_bits", wrong_bits},
                      {"lost_ops", lost},
                      {"hung_ops", hung},
                      {"shrinks", shrinks},
                      {"events", events},
                      {"op_ns", !a.has("--bytes") ? nlohmann::json(nullptr) : or_null(op_ns)},
                      {"failover_p99_ns", failovers.empty() ? nlohmann::json(nullptr)
                                                            : nlohmann::json(failovers[failovers.size() * 99 / 100])},
                      {"clock", "virtual"},
                      {"why", why}};
  return print(a, j, right == a.seeds);
}

int main_of(int argc, char** argv) {
  Arguments a;
  Options options("lanekeeper-sim",
                  "Runs the data path and the control plane on a virtual clock.\n"
                  "Example: lanekeeper-sim --profile dgx-a100 --nodes 2 --seed 7 --faults storm --ops 40 --json");
  options.text("--profile", a.profile, "a named profile, a capture file, or `mixed`: drawn from the seed");
  options.number("--nodes", a.nodes, "emulated nodes", 1, 1024);
  options.number("--seed", a.seed, "first seed");
  options.number("--seeds", a.seeds, "how many seeds, one after the other", 1);
  options.text("--faults", a.faults, "none, single, storm, or a scenario file");
  options.number("--ops", a.ops, "ops of every rank", 1, 1000000);
  options.text("--bytes", a.bytes, "size of every op (512M, 512MiB); without it: mixed ops of mixed sizes");
  options.text("--events", a.events, "write the engines' events to this file");
  options.text("--dump-bound", a.dump_bound,
               "write the input of the bound's linear program to this file (scenario files)");
  options.flag("--payload-off", a.payload_off, "only time passes; nothing is copied or checked");
  options.flag("--json", a.json, "one JSON object on stdout");
  if (const auto code = options.parse(argc, argv)) return *code;
  for (const char* name : {"--profile", "--nodes", "--seeds", "--ops", "--bytes", "--dump-bound"}) {
    if (options.said(name)) a.given.insert(name);
  }
  a.mixed = a.profile == "mixed";
  const bool named = a.faults == "none" || a.faults == "single" || a.faults == "storm";
  if (!named) return run_scenario(a);
  if (a.has("--dump-bound")) throw InputError("--dump-bound: expected a scenario file as --faults, it is about one");
  if (a.mixed && a.has("--nodes")) throw InputError("--nodes: --profile mixed draws them from the seed");
  return run_seeds(a);
}

}  // namespace
}  // namespace lk

int main(int argc, char** argv) {
  try {
    return lk::main_of(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "lanekeeper-sim: " << e.what() << "\n";
    return 2;
  }
}

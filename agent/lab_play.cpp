#include "agent/lab_play.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "agent/rung_share.hpp"
#include "agent/sim_measure.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr double kSlowestOpNs = 4e6;  // of these sizes, at the rates that the hardware has, over tcp alone
constexpr unsigned kLeastOps = 16;
constexpr Nanos kBox = 6 * kSecond;
// Real threads on a busy machine now and then stall for longer than a chunk may: its copy goes over another rung.
constexpr double kStray = 0.2;

std::string stem_of(const Scenario& s) { return std::filesystem::path(s.path).stem().string(); }

LabReport play(const LabSetting& setting, LabGradients& gradients, const ClusterSpec& whole, LabJob job,
               const std::string& what) {
  const ClusterSpec cluster = scaled(whole, setting.scale);
  const auto nodes = static_cast<unsigned>(cluster.nodes.size());
  job.patience_ns = setting.config.engine.op_deadline_ns + 10 * kSecond;
  Lab lab(cluster, {setting.config, setting.control, plan_cores(setting.machine, nodes, 0, {}), setting.scale, nodes});
  LabRun run(lab, gradients, std::move(job));
  lab.start(setting.threads);
  LabReport report = run.run([&](const LabReport& r) {
    if (setting.progress) setting.progress(what, r);
  });
  for (const std::string& line : report.journal) spdlog::info("  {}", line);
  return report;
}

void add_report(LabRow& row, const LabReport& r) {
  row.ops += r.ops;
  row.payload_bytes += r.payload_bytes;
  row.wrong_bits += r.wrong_bits;
  row.lost_ops += r.lost_ops;
  row.hung_ops += r.hung_ops;
  if (row.why.empty()) row.why = r.why;
}

// As many GPUs as there are files, the same number of each node.
std::vector<EndpointId> spread_members(const ClusterSpec& cluster, std::size_t count) {
  std::vector<EndpointId> out;
  const std::size_t each = std::max<std::size_t>(count / cluster.nodes.size(), 1);
  for (const NodeSpec& n : cluster.nodes) {
    for (std::size_t i = 0; i < each && i < n.gpu_count; ++i) out.push_back(static_cast<EndpointId>(n.first_gpu + i));
  }
  return out;
}

std::vector<PlannedOp> ops_of_type(DType dtype, unsigned count) {
  std::vector<PlannedOp> ops(count);
  for (unsigned i = 0; i < count; ++i) {
    ops[i].dtype = dtype;
    ops[i].redop = i % 2 == 0 ? RedOp::kSum : RedOp::kAvg;
    ops[i].in_place = i >= count / 2;
  }
  return ops;
}

}  // namespace

std::vector<LabStory> lab_stories(const std::string& folder, const std::string& only) {
  std::vector<LabStory> all;
  std::vector<std::string> names;
  for (Scenario& s : read_scenarios(folder)) {
    names.push_back(stem_of(s));
    if (!only.empty() && only != s.name && only != names.back()) continue;
    ClusterSpec cluster = build_profiles(s.nodes);
    scenario_rows(s, cluster, 0);  // its targets are there
    all.push_back({std::move(s), std::move(cluster)});
  }
  if (all.empty()) {
    const std::string near = nearest_word(only, names);
    throw InputError(only.empty() ? fmt::format("{}: no scenario files, expected *.toml", folder)
                                  : fmt::format("--only \"{}\": unknown, expected {}", only,
                                                near.empty() ? fmt::format("a file of {} without .toml", folder)
                                                             : fmt::format("\"{}\"?", near)));
  }
  std::stable_partition(all.begin(), all.end(), [](const LabStory& s) { return s.scenario.faults.empty(); });
  return all;
}

double lab_scale(const std::vector<LabStory>& stories, GBps memory) {
  GBps most = 1e-9;
  for (const LabStory& s : stories) {
    GBps links = 0;
    for (const LinkSpec& l : s.cluster.links) links += 2 * l.nominal_GBps;
    most = std::max(most, links);
  }
  return std::min(1.0, memory / 4 / most);
}

Nanos lab_deadline(Nanos usual, double scale) { return std::max(usual, static_cast<Nanos>(kSlowestOpNs / scale)); }

LabRow play_gradients(const LabSetting& setting, LabGradients& gradients) {
  const ClusterSpec cluster = build_profile("dgx-a100", 2);
  LabRow row{.name = "real gradients", .profile = "dgx-a100", .fault = "nothing", .nodes = 2};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    LabJob job;
    job.ops = ops_of_type(dtype, 4);
    job.fault_op = 0;
    job.members = spread_members(cluster, std::min(gradients.files(dtype), cluster.gpus.size()));
    const std::string what = fmt::format("{} gradients of {} ranks", name_of(dtype), job.members.size());
    const LabReport r = play(setting, gradients, cluster, std::move(job), what);
    add_report(row, r);
    if (row.rung.empty()) row.rung = share_of_rungs(Scenario{}, cluster, r.lane_bytes, 1).text;
  }
  return row;
}

LabRow play_story(const LabSetting& setting, LabGradients& gradients, const LabStory& story) {
  const Scenario& s = story.scenario;
  const auto shorter = [&s](Nanos t) { return static_cast<Nanos>(static_cast<double>(t) / s.lab_speedup); };
  LabRow row{.name = s.name, .profile = s.profile, .fault = s.broke, .nodes = s.node_count()};
  LabJob job;
  job.ops = gradient_ops(std::max(s.ops, s.fault_op + kLeastOps), shorter(s.every_ns));
  job.faults = scenario_rows(s, story.cluster, 0, s.lab_speedup);
  job.fault_op = s.fault_op;
  job.least_ops = s.fault_op + 2;
  job.lost = s.expect.lost;
  job.box_ns = kBox;
  const LabReport r = play(setting, gradients, story.cluster, std::move(job), s.name);
  add_report(row, r);
  const RungShare share = share_of_rungs(s, story.cluster, r.lane_bytes, kStray);
  row.rung = share.text;
  if (row.why.empty()) row.why = share.why;
  return row;
}

void add_figures(LabRow& row, const Scenario& scenario) {
  const ScenarioFigures f = measure_scenario(scenario, {});
  row.simulated = true;
  row.bound_fraction = f.bound_fraction;
  row.failover_p99_ns = f.failover_p99_ns;
  row.wrong_bits += f.wrong_bits;
  row.lost_ops += f.lost_ops;
  row.hung_ops += f.hung_ops;
  if (row.why.empty() && !f.ok) row.why = "simulator: " + f.why;
}

}  // namespace lk

#include "agent/sim_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "agent/rung_share.hpp"
#include "control/balance/balance.hpp"
#include "control/balance/scenario_json.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr unsigned kDepth = 3;

SimJob job_of(const Scenario& s, const ClusterSpec& cluster, const MeasureOptions& options) {
  SimJob job;
  job.options = options.sim;
  job.seed = options.seed;
  job.options.seed = options.seed;
  job.fault_op = s.fault_op;
  job.lost = s.expect.lost;
  job.faults = scenario_rows(s, cluster, 0);
  return job;
}

void take_counts(ScenarioFigures& f, const SimReport& r) {
  f.wrong_bits += r.wrong_bits;
  f.payload_bytes += r.payload_bytes;
  f.ops += r.ops;
  f.lost_ops += r.lost_ops;
  f.hung_ops += r.hung_ops;
  if (!r.ok && f.why.empty()) f.why = r.why;
}

// Right bits: mixed ops with payload while the faults come and go.
void run_correct(const Scenario& s, const ClusterSpec& cluster, const MeasureOptions& options, ScenarioFigures& f) {
  SimJob job = job_of(s, cluster, options);
  job.options.engine.payload = options.payload;
  job.ops = mixed_ops(options.seed, std::max(s.ops, 8U), cluster.gpus.size(), 4 * kMiB, 0);
  for (PlannedOp& op : job.ops) op.gap_ns = s.every_ns;
  SimRun run(cluster, job);
  take_counts(f, run.run(options.log));
}

void judge_rungs(const Scenario& s, const ClusterSpec& c, const SimReport& r, ScenarioFigures& f) {
  const RungShare share = share_of_rungs(s, c, r.lane_bytes, 0.01);
  f.rung = share.text;
  if (f.why.empty()) f.why = share.why;
}

// Ops of full size without payload: first a few, far apart, until plans and weights have settled; then back to back.
void run_bound(const Scenario& s, const ClusterSpec& cluster, const MeasureOptions& options, ScenarioFigures& f) {
  SimJob job = job_of(s, cluster, options);
  job.options.engine.payload = false;
  const Nanos settle = std::max<Nanos>(5 * kSecond, s.every_ns * s.ops);
  const Nanos gap = std::max<Nanos>(s.every_ns, 250 * kMilli);
  job.ops = equal_ops(static_cast<unsigned>(settle / gap), s.bytes, gap);
  const auto first = static_cast<unsigned>(job.ops.size());
  const std::vector<PlannedOp> steady = equal_ops(options.steady_ops + 2 * kDepth, s.bytes, 0);
  job.ops.insert(job.ops.end(), steady.begin(), steady.end());
  job.depth = kDepth;
  job.mark_op = first + kDepth;
  SimRun run(cluster, job);
  const SimReport r = run.run(options.log);
  take_counts(f, r);
  judge_rungs(s, cluster, r, f);
  const std::size_t lo = first + kDepth, hi = job.ops.size() - 1 - kDepth;
  if (!r.ok || r.finished[hi] < 0) return;
  const double op_ns = static_cast<double>(r.finished[hi] - r.finished[lo]) / static_cast<double>(hi - lo);
  f.op_ns = static_cast<Nanos>(op_ns);
  LinkCapacities capacity(cluster.links.size());
  for (LinkId l = 0; l < cluster.links.size(); ++l) {
    for (unsigned d = 0; d < 2; ++d) capacity[l][d] = run.sim().capacity(l, static_cast<Direction>(d));
  }
  std::vector<EndpointId> members;
  for (EndpointId e = 0; e < cluster.gpus.size(); ++e) members.push_back(e);
  const LaneHealth health = full_health(cluster);
  const Balance best = balance({cluster, capacity, health, members});
  f.bound_fraction = best.bound_ns_per_byte * static_cast<double>(s.bytes) / op_ns;
  if (!options.dump_bound.empty()) {
    auto dump = bound_input(cluster, capacity, members);
    dump["op_ns"] = op_ns;
    dump["op_bytes"] = s.bytes;
    std::ofstream file(options.dump_bound);
    if (!(file << dump.dump() << "\n" << std::flush)) {
      throw InputError(
          fmt::format("--dump-bound {}: cannot be written, expected a path for a file", options.dump_bound));
    }
  }
}

void run_failover(const Scenario& s, const ClusterSpec& cluster, const MeasureOptions& options, ScenarioFigures& f) {
  std::vector<Nanos> all;
  for (unsigned i = 0; i < options.failover_runs; ++i) {
    SimJob job = job_of(s, cluster, options);
    job.options.engine.payload = false;
    job.seed = job.options.seed = options.seed + i;
    job.ops = equal_ops(std::max(s.ops, s.fault_op + 4), s.bytes, s.every_ns);
    job.mark_op = i == 0 ? s.fault_op + 1 : 0;
    for (FaultRow& row : job.faults.wire) {  // at another moment of the op
      row.at_ns += static_cast<Nanos>(i) * 137 * kMicro;
      if (row.until_ns != kNever) row.until_ns += static_cast<Nanos>(i) * 137 * kMicro;
    }
    SimRun run(cluster, job);
    const SimReport r = run.run(options.log);
    take_counts(f, r);
    if (i == 0) judge_rungs(s, cluster, r, f);
    all.insert(all.end(), r.failovers.begin(), r.failovers.end());
  }
  std::sort(all.begin(), all.end());
  if (!all.empty()) f.failover_p99_ns = all[std::min(all.size() - 1, all.size() * 99 / 100)];
}

// From the end of the last fault to an op as fast as those before the fault.
void run_recovery(const Scenario& s, const ClusterSpec& cluster, const MeasureOptions& options, ScenarioFigures& f) {
  SimJob job = job_of(s, cluster, options);
  job.options.engine.payload = false;
  job.ops = equal_ops(s.ops, s.bytes, s.every_ns);
  Nanos healed = 0;
  for (const FaultRow& row : job.faults.wire) healed = std::max(healed, row.until_ns == kNever ? 0 : row.until_ns);
  SimRun run(cluster, job);
  const SimReport r = run.run(options.log);
  take_counts(f, r);
  if (!r.ok) return;
  const unsigned before = std::max(s.fault_op, 2U) - 2;
  const Nanos base = r.finished[before] - r.started[before];
  healed += r.fault_at;
  std::optional<Nanos> recovered;
  for (std::size_t i = 0; i < r.finished.size(); ++i) {
    if (r.started[i] < healed) continue;
    const bool fast = static_cast<double>(r.finished[i] - r.started[i]) <= 1.02 * static_cast<double>(base);
    if (!fast)
      recovered.reset();
    else if (!recovered)
      recovered = r.finished[i] - healed;
  }
  f.recover_ns = recovered;
}

}  // namespace

ScenarioFigures measure_scenario(const Scenario& s, const MeasureOptions& options) {
  const ClusterSpec cluster = build_profiles(s.nodes);
  ScenarioFigures f;
  run_correct(s, cluster, options, f);
  if (s.measure == Measure::kBound) run_bound(s, cluster, options, f);
  if (s.measure == Measure::kFailover) run_failover(s, cluster, options, f);
  if (s.expect.recover_most_ns) run_recovery(s, cluster, options, f);
  const auto miss = [&](const std::string& what) {
    if (f.why.empty()) f.why = what;
  };
  if (s.expect.bound_least && (!f.bound_fraction || *f.bound_fraction < *s.expect.bound_least)) {
    miss(
        fmt::format("share of the bound {:.3f}, expected {:.2f}", f.bound_fraction.value_or(0), *s.expect.bound_least));
  }
  if (s.expect.failover_most_ns && (!f.failover_p99_ns || *f.failover_p99_ns > *s.expect.failover_most_ns)) {
    miss(fmt::format("failover p99 {} ns, expected {} ns", f.failover_p99_ns.value_or(-1), *s.expect.failover_most_ns));
  }
  if (s.expect.recover_most_ns && (!f.recover_ns || *f.recover_ns > *s.expect.recover_most_ns)) {
    miss(fmt::format("as fast as before after {} ns, expected {} ns", f.recover_ns.value_or(-1),
                     *s.expect.recover_most_ns));
  }
  f.ok = f.why.empty();
  return f;
}

}  // namespace lk

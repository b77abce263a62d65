// The lab on real threads: small clusters, real gradients, things break in mid-op. The right bits are
// reduce/reference's.
#include "agent/lab_run.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <numeric>
#include <thread>

#include "agent/launch.hpp"
#include "control/topology/profiles.hpp"

namespace lk {
namespace {

// Slow enough for a machine that is busy with other tests, and for the thread sanitizer.
constexpr double kScale = 1e-4;
constexpr unsigned kOps = 12;

class PlainThreads {
 public:
  LabThreads hooks() {
    return {[this](unsigned lcore, void (*call)(void*) noexcept, void* argument) {
              threads_[lcore] = std::thread(call, argument);
            },
            [this](unsigned lcore) { threads_[lcore].join(); }};
  }

 private:
  std::map<unsigned, std::thread> threads_;
};

struct Played {
  ClusterSpec cluster;
  LabReport report;

  Bytes carried_by(LaneKind kind) const {
    Bytes sum = 0;
    for (LaneId l = 0; l < cluster.lanes.size(); ++l) {
      if (cluster.lanes[l].kind == kind) sum += both_ways(l);
    }
    return sum;
  }
  Bytes carried_over(const std::string& link) const {
    Bytes sum = 0;
    for (LaneId l = 0; l < cluster.lanes.size(); ++l) {
      const auto uses = [&](const Hop& h) { return cluster.links[h.link].name == link; };
      const LaneSpec& lane = cluster.lanes[l];
      if (std::any_of(lane.near_hops.begin(), lane.near_hops.end(), uses) ||
          std::any_of(lane.far_hops.begin(), lane.far_hops.end(), uses))
        sum += both_ways(l);
    }
    return sum;
  }
  Bytes both_ways(LaneId l) const {
    return report.lane_bytes[std::size_t{l} * 2] + report.lane_bytes[std::size_t{l} * 2 + 1];
  }
};

// mesh-4gpu: 4 GPUs, an NVLink bundle between each two, a NIC for each.
Played play(unsigned nodes, const std::vector<std::string>& faults, Status lost = Status::kOk) {
  Played out{scaled(build_profile("mesh-4gpu", nodes), kScale), {}};
  Config config;
  const ControlOptions control = control_of(config);
  LabGradients gradients(std::string(LK_SOURCE_DIR) + "/tests/data/gradients");
  LabJob job;
  job.ops = gradient_ops(kOps, 0);
  job.fault_op = 3;
  job.lost = lost;
  job.box_ns = 600 * kSecond;  // all ops, however slow a sanitizer is; what hangs ends by its patience
  std::uint32_t id = 0;
  for (const std::string& words : faults) {
    const FaultRows rows = expand_fault(parse_fault(words), out.cluster, ++id, 0);
    job.faults.wire.insert(job.faults.wire.end(), rows.wire.begin(), rows.wire.end());
  }
  PlainThreads threads;
  Lab lab(out.cluster, {config.values(), control, plan_cores(read_machine_cores(), nodes, 0, {}), kScale, 7});
  LabRun run(lab, gradients, job);
  lab.start(threads.hooks());
  out.report = run.run();
  BOOST_TEST(out.report.why == "");
  for (const std::string& line : out.report.journal) BOOST_TEST_MESSAGE(line);
  BOOST_TEST(out.report.wrong_bits == 0U);
  BOOST_TEST(out.report.lost_ops == 0U);
  BOOST_TEST(out.report.hung_ops == 0U);
  BOOST_TEST(out.report.ops == kOps);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lab_run)

BOOST_AUTO_TEST_CASE(healthy_nodes_use_their_best_lanes) {
  const Played p = play(2, {});
  BOOST_TEST(p.report.shrinks == 0U);
  BOOST_TEST(p.carried_by(LaneKind::kNvlink) > p.carried_by(LaneKind::kRdma));
  BOOST_TEST(p.carried_by(LaneKind::kRdma) > 0U);
  BOOST_TEST(p.carried_by(LaneKind::kTcp) == 0U);
}

BOOST_AUTO_TEST_CASE(traffic_leaves_a_rail_that_is_cut) {
  const Played p = play(2, {"cut n0.mlx5_1.port1 at=1ms"});
  BOOST_TEST(p.carried_over("n0.mlx5_1.port1") == 0U);
  BOOST_TEST(p.carried_over("n0.mlx5_0.port1") > 0U);
}

BOOST_AUTO_TEST_CASE(traffic_leaves_a_rail_that_swallows_everything) {
  const Played p = play(2, {"stall n0.mlx5_1.port1 at=1ms"});
  BOOST_TEST(p.carried_over("n0.mlx5_1.port1") == 0U);
  BOOST_TEST(p.carried_over("n0.mlx5_0.port1") > 0U);
}

BOOST_AUTO_TEST_CASE(a_gpu_without_nvlink_goes_over_pcie) {
  const Played p =
      play(2, {"cut n0.gpu0-gpu1.nvlink at=1ms", "cut n0.gpu1-gpu2.nvlink at=1ms", "cut n0.gpu1-gpu3.nvlink at=1ms"});
  BOOST_TEST(p.carried_over("n0.gpu0-gpu1.nvlink") == 0U);
  BOOST_TEST(p.carried_by(LaneKind::kPcie) > 0U);
}

BOOST_AUTO_TEST_CASE(corrupt_chunks_over_tcp_are_sent_again) {
  const Played p = play(2, {"cut n0.mlx5_0.port1", "cut n0.mlx5_1.port1", "cut n0.mlx5_2.port1", "cut n0.mlx5_3.port1",
                            "corrupt n0.gpu0-n1.gpu0.tcp rate=0.05 seed=5"});
  BOOST_TEST(p.carried_by(LaneKind::kRdma) == 0U);
  BOOST_TEST(p.carried_by(LaneKind::kTcp) > 0U);
}

BOOST_AUTO_TEST_CASE(two_nodes_go_on_without_the_third) {
  const Played p = play(3, {"cut n2 at=1ms"}, Status::kNodeLost);
  BOOST_TEST(p.report.shrinks == 1U);
  BOOST_TEST(p.report.took_ns >= 2 * kSecond - 100 * kMilli);  // no one is called dead sooner
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

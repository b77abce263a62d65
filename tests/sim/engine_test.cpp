// The whole stack without faults: every op's bits against the reference, on stepped virtual time.
#include <boost/test/unit_test.hpp>

#include "agent/sim_run.hpp"
#include "control/topology/profiles.hpp"

BOOST_AUTO_TEST_SUITE(engine)

BOOST_AUTO_TEST_CASE(every_profile_gives_the_right_bits) {
  for (const auto& [profile, nodes] : std::vector<std::pair<std::string, unsigned>>{{"dgx-a100", 2},
                                                                                    {"dgx1-v100", 1},
                                                                                    {"hgx-h100", 2},
                                                                                    {"mesh-4gpu", 2},
                                                                                    {"pcie-8gpu", 2},
                                                                                    {"gb200-nvl72", 3}}) {
    BOOST_TEST_CONTEXT(profile) {
      const lk::ClusterSpec cluster = lk::build_profile(profile, nodes);
      lk::SimJob job;
      job.ops = lk::mixed_ops(nodes, 40, cluster.gpus.size(), lk::kMiB, 0);
      lk::SimRun run(cluster, job);
      const lk::SimReport r = run.run();
      BOOST_TEST(r.ok, r.why);
      BOOST_TEST(r.ops == 40U);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

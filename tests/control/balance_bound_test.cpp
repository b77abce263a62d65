// balance() against tests/bound/bound.py: an independent model of the bound, solved by scipy's HiGHS, on seeded random
// degradations and random groups. Skipped, visibly, where python3-scipy is not installed.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>

#include "control/balance/scenario_json.hpp"
#include "control/topology/profiles.hpp"

namespace lk {
namespace {

struct ProfileRun {
  const char* profile;
  unsigned nodes;
  int seeds;
};

struct Case {
  std::string name;
  Balance ours;
};

boost::test_tools::assertion_result scipy_is_there(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result there(std::system("/usr/bin/python3 -c 'import scipy.optimize' 2>/dev/null") ==
                                            0);
  if (!there) there.message() << "python3-scipy is not installed";
  return there;
}

// 1 to 10 link directions at a random fraction, a third of them dead.
void damage(LinkCapacities& capacity, std::mt19937_64& random) {
  const auto faults = 1 + random() % 10;
  for (std::uint64_t i = 0; i < faults; ++i) {
    auto& both = capacity[random() % capacity.size()];
    const double fraction = random() % 3 == 0 ? 0.0 : static_cast<double>(1 + random() % 99) / 100;
    const auto side = random() % 3;
    if (side != 1) both[0] *= fraction;
    if (side != 0) both[1] *= fraction;
  }
}

std::vector<EndpointId> some_of(const ClusterSpec& cluster, std::mt19937_64& random) {
  std::vector<EndpointId> members(cluster.gpus.size());
  std::iota(members.begin(), members.end(), EndpointId{0});
  if (random() % 3 != 0) return members;
  std::erase_if(members, [&](EndpointId) { return random() % 4 == 0; });
  return members;
}

std::vector<nlohmann::json> solve_with_highs(const std::string& path) {
  const std::string command = fmt::format("/usr/bin/python3 {}/tests/bound/bound.py {}", LK_SOURCE_DIR, path);
  std::vector<nlohmann::json> answers;
  FILE* pipe = ::popen(command.c_str(), "r");
  BOOST_REQUIRE(pipe != nullptr);
  char line[256];
  while (std::fgets(line, sizeof line, pipe) != nullptr) answers.push_back(nlohmann::json::parse(line));
  BOOST_REQUIRE(::pclose(pipe) == 0);
  return answers;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(balance_bound)

BOOST_AUTO_TEST_CASE(is_within_a_thousandth_of_highs, *boost::unit_test::precondition(scipy_is_there)) {
  const std::vector<ProfileRun> runs = {{"dgx-a100", 2, 20},  {"dgx1-v100", 1, 30},  {"dgx1-v100", 2, 20},
                                        {"mesh-4gpu", 1, 40}, {"mesh-4gpu", 3, 20},  {"hgx-h100", 2, 10},
                                        {"pcie-8gpu", 2, 20}, {"gb200-nvl72", 3, 10}};
  const std::string path = std::string(LK_BINARY_DIR) + "/balance_bound_test.jsonl";
  std::vector<Case> cases;
  {
    std::ofstream dump(path);
    for (const ProfileRun& run : runs) {
      const ClusterSpec cluster = build_profile(run.profile, run.nodes);
      const LaneHealth health = full_health(cluster);
      for (int seed = 0; seed < run.seeds; ++seed) {
        std::mt19937_64 random(static_cast<std::uint64_t>(seed));
        LinkCapacities capacity = nominal_capacities(cluster);
        if (seed > 0) damage(capacity, random);
        const std::vector<EndpointId> members = some_of(cluster, random);
        if (members.empty()) continue;
        cases.push_back({fmt::format("{} x{} seed {}", run.profile, run.nodes, seed),
                         balance({cluster, capacity, health, members})});
        dump << bound_input(cluster, capacity, members).dump() << '\n';
      }
    }
  }
  const std::vector<nlohmann::json> answers = solve_with_highs(path);
  std::remove(path.c_str());
  BOOST_REQUIRE(answers.size() == cases.size());
  double worst = 0;
  int feasible = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Balance& ours = cases[i].ours;
    BOOST_TEST_CONTEXT(cases[i].name) {
      BOOST_TEST(ours.feasible == answers[i]["feasible"].get<bool>());
      if (!ours.feasible) continue;
      ++feasible;
      const double highs = answers[i]["bound_ns_per_byte"];
      const double off = highs > 0 ? std::fabs(ours.bound_ns_per_byte / highs - 1) : ours.bound_ns_per_byte;
      BOOST_TEST(off < 1e-3);
      BOOST_TEST(ours.predicted_ns_per_byte <= highs * (1 + 1e-3));
      worst = std::max(worst, off);
    }
  }
  BOOST_TEST(feasible > 100);  // else the damage leaves nothing to compare
  BOOST_TEST_MESSAGE(
      fmt::format("{} programs, {} feasible, furthest from HiGHS {:.1e}", cases.size(), feasible, worst));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

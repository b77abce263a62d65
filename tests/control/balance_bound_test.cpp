// balance() against tests/bound/bound.py: an independent model of the bound, solved by scipy's HiGHS, on seeded random
// degradations and random groups. Skipped, visibly, where python3-scipy is not installed.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "balance_test_support.hpp"
#include "control/balance/scenario_json.hpp"

namespace lk {
namespace {

using namespace balance_test;

struct NamedBoard {
  const char* name;
  Board board;
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
  std::vector<EndpointId> members = everyone(cluster);
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
  const std::vector<NamedBoard> boards = {{"dgx-a100 x2", dgx_a100(2), 20},   {"dgx1-v100 x1", dgx1_v100(1), 30},
                                          {"dgx1-v100 x2", dgx1_v100(2), 20}, {"mesh-4gpu x1", mesh_4gpu(1), 40},
                                          {"mesh-4gpu x3", mesh_4gpu(3), 20}, {"hgx-h100 x2", hgx_h100(2), 10},
                                          {"pcie-8gpu x2", pcie_8gpu(2), 20}, {"gb200-nvl72 x3", nvl72(3), 10}};
  const std::string path = std::string(LK_BINARY_DIR) + "/balance_bound_test.jsonl";
  std::vector<Case> cases;
  {
    std::ofstream dump(path);
    for (const NamedBoard& named : boards) {
      const ClusterSpec cluster = build(named.board);
      const LaneHealth health = full_health(cluster);
      for (int seed = 0; seed < named.seeds; ++seed) {
        std::mt19937_64 random(static_cast<std::uint64_t>(seed));
        LinkCapacities capacity = nominal_capacities(cluster);
        if (seed > 0) damage(capacity, random);
        const std::vector<EndpointId> members = some_of(cluster, random);
        if (members.empty()) continue;
        cases.push_back({fmt::format("{} seed {}", named.name, seed), balance({cluster, capacity, health, members})});
        dump << bound_input(cluster, capacity, members).dump() << '\n';
      }
    }
  }
  const std::vector<nlohmann::json> answers = solve_with_highs(path);
  std::remove(path.c_str());
  BOOST_REQUIRE(answers.size() == cases.size());
  double worst = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Balance& ours = cases[i].ours;
    BOOST_TEST_CONTEXT(cases[i].name) {
      BOOST_TEST(ours.feasible == answers[i]["feasible"].get<bool>());
      if (!ours.feasible) continue;
      const double highs = answers[i]["bound_ns_per_byte"];
      const double off = highs > 0 ? std::fabs(ours.bound_ns_per_byte / highs - 1) : ours.bound_ns_per_byte;
      BOOST_TEST(off < 1e-3);
      BOOST_TEST(ours.predicted_ns_per_byte <= highs * (1 + 1e-3));
      worst = std::max(worst, off);
    }
  }
  BOOST_TEST_MESSAGE(fmt::format("{} programs, furthest from HiGHS {:.1e}", cases.size(), worst));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

#include "agent/scenario.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "dataplane/base/error.hpp"

using namespace lk;

namespace {

std::string write_file(const std::string& text) {
  std::string path =
      (std::filesystem::temp_directory_path() / ("lk_scenario_" + std::to_string(::getpid()) + ".toml")).string();
  std::ofstream(path) << text;
  return path;
}

// The error without the path in front of it.
std::string error_of(const std::string& text) {
  const std::string path = write_file(text);
  std::string what = path + " no error";
  try {
    read_scenario(path);
  } catch (const InputError& e) {
    what = e.what();
  }
  std::filesystem::remove(path);
  BOOST_TEST(what.starts_with(path), what);
  return what.substr(std::min(what.size(), path.size()));
}

const std::string kHead = "name = \"x\"\nprofile = \"dgx-a100\"\nbroke = \"y\"\nmeasure = \"bound\"\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(scenario_test)

// Every shipped file is read, and every name in it is one of its cluster.
BOOST_AUTO_TEST_CASE(the_shipped_scenarios_fit_their_clusters) {
  const auto all = read_scenarios(std::string(LK_SOURCE_DIR) + "/configs/lab/faults");
  std::map<std::string, std::set<std::string>> profiles_of;
  for (const Scenario& s : all) {
    BOOST_TEST_CONTEXT(s.path) {
      const ClusterSpec cluster = build_profiles(s.nodes);
      const FaultRows rows = scenario_rows(s, cluster, 0);
      BOOST_TEST(rows.wire.size() + rows.control.size() >= s.faults.size());
      BOOST_TEST(!s.expect.rungs.empty());
      profiles_of[s.name].insert(s.profile);
    }
  }
  // The story list of the product: each of these must be told, on these machines.
  const std::set<std::string> every = {"dgx-a100", "dgx1-v100", "hgx-h100", "gb200-nvl72", "pcie-8gpu", "mesh-4gpu"};
  const std::set<std::string> direct = {"dgx1-v100", "mesh-4gpu"};
  const std::set<std::string> switched = {"dgx-a100", "hgx-h100"};
  BOOST_TEST((profiles_of["healthy"] == every));
  for (const char* name :
       {"NVLink bundle at half width", "NVLink of a pair dead", "NVLink of a pair dead in one direction"}) {
    BOOST_TEST((profiles_of[name] == direct), name);
  }
  for (const char* name : {"some NVLinks of one GPU", "all NVLinks of one GPU in mid-op", "one NVSwitch plane"}) {
    BOOST_TEST((profiles_of[name] == switched), name);
  }
  for (const char* name :
       {"one rail at 25 %", "one rail cut by event", "one rail silently stalled", "7 of 8 rails cut", "all rails cut",
        "a rail flapping five times a minute", "a rail that flaps once",
        "two ports on one NIC, one comes back at half its rate", "corrupt bits on one lane",
        "a late write into a quarantined slot", "a late write after the fence", "a node killed in mid-op",
        "7 rails on one node and 8 on the other", "a control channel cut"}) {
    BOOST_TEST(profiles_of[name].size() == 1U, name);
  }
}

BOOST_AUTO_TEST_CASE(all_keys_are_read) {
  const std::string path = write_file(
      "name = \"n\"\nbroke = \"b\"\nmeasure = \"failover\"\nops = 9\nbytes = \"16MiB\"\nevery = \"20ms\"\nfault_op = "
      "4\n"
      "lab_speedup = 2.5\n[expect]\nrungs = [\"relay\", \"pcie\"]\nfailover_most = \"1ms\"\nrecover_most = \"5s\"\n"
      "lost = \"node_lost\"\n[[node]]\nprofile = \"mesh-4gpu\"\ncount = 2\nports_per_nic = 2\n[[node]]\n"
      "profile = \"dgx-a100\"\nrails = [\"mlx5_0\", \"mlx5_3\"]\n[[fault]]\nkind = \"cut\"\ntarget = \"n0.eth0\"\n"
      "at = \"10ms\"\nfor = \"1s\"\n");
  const Scenario s = read_scenario(path);
  std::filesystem::remove(path);
  BOOST_TEST(s.name == "n");
  BOOST_TEST(s.profile == "mesh-4gpu+dgx-a100");
  BOOST_TEST(s.node_count() == 3U);
  BOOST_TEST(s.nodes[0].ports_per_nic == 2U);
  BOOST_TEST((s.nodes[1].rails == std::vector<std::string>{"mlx5_0", "mlx5_3"}));
  BOOST_TEST((s.measure == Measure::kFailover));
  BOOST_TEST(s.ops == 9U);
  BOOST_TEST(s.bytes == 16U << 20);
  BOOST_TEST(s.every_ns == 20'000'000);
  BOOST_TEST(s.fault_op == 4U);
  BOOST_TEST((s.expect.rungs == std::vector<LaneKind>{LaneKind::kRelay, LaneKind::kPcie}));
  BOOST_TEST(s.expect.failover_most_ns.value() == 1'000'000);
  BOOST_TEST(s.expect.recover_most_ns.value() == 5'000'000'000);
  BOOST_TEST((s.expect.lost == Status::kNodeLost));
  // The lab's clock: times divided, then counted from its own beginning.
  const FaultRows rows = scenario_rows(s, build_profiles(s.nodes), 7'000'000, s.lab_speedup);
  BOOST_TEST(rows.wire.at(0).at_ns == 11'000'000);
  BOOST_TEST(rows.wire.at(0).until_ns == 411'000'000);
  BOOST_TEST(rows.wire.at(0).fault == 1U);
}

BOOST_AUTO_TEST_CASE(one_clear_line_for_each_error) {
  BOOST_TEST(error_of(kHead + "opps = 3\n") == ":5: opps: unknown key; expected ops");
  BOOST_TEST(error_of(kHead + "ops = 0\n") == ":5: ops: expected a whole number from 1 to 100000");
  BOOST_TEST(error_of(kHead + "every = 5\n") == ":5: every: expected a time with its unit, as \"50ms\"");
  BOOST_TEST(error_of(kHead + "bytes = \"1X\"\n") == ":5: bytes: expected a size with its unit, as \"512MiB\"");
  BOOST_TEST(error_of(kHead + "fault_op = 7\n") == ":5: fault_op: 7; expected an op of 1 to 6");
  BOOST_TEST(error_of(kHead + "[[node]]\nprofile = \"x\"\n") ==
             ":2: profile: expected either this or [[node]] rows, not both");
  BOOST_TEST(error_of(kHead + "[expect]\nrungs = [\"nvlnk\"]\n") ==
             ":6: rungs 'nvlnk': expected nvlink, relay, pcie, host, rdma or tcp");
  BOOST_TEST(error_of(kHead + "[expect]\nfailover_most = \"1ms\"\n") ==
             ":4: measure: failover_most is given; expected failover");
  BOOST_TEST(error_of("name = \"x\"\nprofile = \"dgx-a100\"\nbroke = \"y\"\n") ==
             ":1: measure: missing; expected bound, failover, correct");
  BOOST_TEST(error_of("name = \"x\"\nbroke = \"y\"\nmeasure = \"fast\"\n") ==
             ":3: measure: expected bound, failover, correct");
  BOOST_TEST(error_of("name = \"x\"\nbroke = \"y\"\nmeasure = \"bound\"\n") == ":1: profile: missing; expected a text");
  BOOST_TEST(error_of(kHead + "[[fault]]\nkind = \"cut\"\n") == ":5: fault: expected target = \"…\"");
  BOOST_TEST(error_of("name = \n").starts_with(":1: "));
}

BOOST_AUTO_TEST_SUITE_END()

#include "agent/fault_plan.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "control/topology/profiles.hpp"
#include "dataplane/base/error.hpp"

using namespace lk;

namespace {

const ClusterSpec& dgx() {
  static const ClusterSpec kCluster = build_profile("dgx-a100", 2);
  return kCluster;
}
const ClusterSpec& cube() {
  static const ClusterSpec kCluster = build_profile("dgx1-v100", 2);
  return kCluster;
}

FaultRows rows_of(const std::string& words, const ClusterSpec& cluster = dgx()) {
  return expand_fault(parse_fault(words), cluster, 7, 1000);
}

// "link<d" for each row, in order: the link's name and its directions (+ forward, - backward, = both).
std::vector<std::string> links_of(const FaultRows& rows, const ClusterSpec& cluster = dgx()) {
  std::vector<std::string> out;
  for (const FaultRow& r : rows.wire) {
    BOOST_REQUIRE((r.target == FaultTarget::kLink));
    out.push_back(cluster.links[r.id].name + " +-="[r.directions]);
  }
  return out;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

struct TemporaryFile {
  explicit TemporaryFile(const std::string& text) {
    path =
        (std::filesystem::temp_directory_path() / ("lk_fault_plan_" + std::to_string(::getpid()) + ".toml")).string();
    std::ofstream(path) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path;
};

using Names = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(fault_plan_test)

BOOST_AUTO_TEST_CASE(every_word_gets_its_place_in_the_row) {
  const FaultRows rows =
      rows_of("flap n0.mlx5_0.port1 rate=0.1 period=12s at=5ms for=2.5s seed=9 silent=true direction=rx");
  BOOST_REQUIRE(rows.wire.size() == 1U);
  const FaultRow& r = rows.wire[0];
  BOOST_TEST(r.fault == 7U);
  BOOST_TEST((r.kind == FaultKind::kFlap));
  BOOST_TEST(dgx().links[r.id].name == "n0.mlx5_0.port1");
  BOOST_TEST(r.rate == 0.1);
  BOOST_TEST(r.period_ns == 12'000'000'000);
  BOOST_TEST(r.at_ns == 5'001'000);
  BOOST_TEST(r.until_ns == 2'505'001'000);
  BOOST_TEST(r.seed == 9U);
  BOOST_TEST(r.silent == 1);
  BOOST_TEST(r.directions == kBackwardOnly);
  // What was not said: at once, both directions, for good, a flap is down for a quarter.
  const FaultRow d = rows_of("flap n0.mlx5_0.port1 period=1s").wire[0];
  BOOST_TEST(d.at_ns == 1000);
  BOOST_TEST(d.until_ns == kNever);
  BOOST_TEST(d.rate == 0.25);
  BOOST_TEST(d.directions == kBothDirections);
}

BOOST_AUTO_TEST_CASE(a_target_is_what_show_prints) {
  BOOST_TEST(links_of(rows_of("cut n1.mlx5_2")) == (Names{"n1.mlx5_2.pcie=", "n1.mlx5_2.port1="}),
             boost::test_tools::per_element());
  BOOST_TEST(links_of(rows_of("cut n1.mlx5_2 direction=tx")) == (Names{"n1.mlx5_2.pcie-", "n1.mlx5_2.port1+"}),
             boost::test_tools::per_element());
  BOOST_TEST(links_of(rows_of("stall n0.gpu3")) == (Names{"n0.gpu3.nvlink=", "n0.gpu3.pcie="}),
             boost::test_tools::per_element());
  // A cube mesh GPU: four bundles; tx is what leaves GPU 3, whichever end of the bundle it is.
  BOOST_TEST(links_of(rows_of("cut n0.gpu3 direction=tx", cube()), cube()) ==
                 (Names{"n0.gpu0-gpu3.nvlink-", "n0.gpu1-gpu3.nvlink-", "n0.gpu2-gpu3.nvlink-", "n0.gpu3-gpu7.nvlink+",
                        "n0.gpu3.pcie+"}),
             boost::test_tools::per_element());
  const FaultRows lane = rows_of("late n0.gpu0-n1.gpu0.tcp delay=1ms");
  BOOST_TEST((lane.wire[0].target == FaultTarget::kLane));
  BOOST_TEST(dgx().lanes[lane.wire[0].id].name == "n0.gpu0-n1.gpu0.tcp");
  const FaultRows node = rows_of("cut n1");
  BOOST_TEST((node.wire[0].target == FaultTarget::kNode && node.wire[0].id == 1));
  BOOST_TEST(rows_of("degrade n1 rate=0.5").wire.size() == 33U);  // 8 NVLinks, 8 + 8 slots, 8 ports, 1 netdev
}

// 6 planes: each is a sixth of every GPU's NVLinks; half of one is a twelfth.
BOOST_AUTO_TEST_CASE(a_switch_plane_takes_its_share_of_every_gpu) {
  const FaultRows rows = rows_of("cut n0.nvswitch2");
  BOOST_TEST(rows.wire.size() == 8U);
  for (const FaultRow& r : rows.wire) {
    BOOST_TEST((r.kind == FaultKind::kPlane));
    BOOST_TEST(r.rate == 1.0 / 6, boost::test_tools::tolerance(1e-12));
    BOOST_TEST((dgx().links[r.id].kind == LinkKind::kNvlink));
  }
  BOOST_TEST(rows_of("degrade n0.nvswitch5 rate=0.5").wire[0].rate == 1.0 / 12, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(control_channels_stand_apart) {
  const FaultRows rows = rows_of("cut control.n1-n0 for=1s");
  BOOST_TEST(rows.wire.empty());
  BOOST_REQUIRE(rows.control.size() == 1U);
  BOOST_TEST((rows.control[0].target == FaultTarget::kControl));
  BOOST_TEST(rows.control[0].id == 1U);
  BOOST_TEST(rows.control[0].peer == 0U);
}

BOOST_AUTO_TEST_CASE(an_error_names_the_word_its_place_and_what_was_expected) {
  const auto error = [](const std::string& words) { return error_of([&] { rows_of(words); }); };
  BOOST_TEST(error("cutt n0.mlx5_0.port1") ==
             "inject: word 1 'cutt': no such kind of fault; expected cut, degrade, delay, stall, drop, corrupt, "
             "duplicate, late, bad, flap (did you mean cut?)");
  BOOST_TEST(error("cut") == "inject: 'cut': expected KIND TARGET, as cut n0.mlx5_0.port1");
  BOOST_TEST(error("cut n0.mlx5_0.port1 for=2") ==
             "inject: word 3 'for=2': expected a time above 0 with its unit, as 2s");
  BOOST_TEST(error("cut n0.mlx5_0.port1 for=0s") ==
             "inject: word 3 'for=0s': expected a time above 0 with its unit, as 2s");
  BOOST_TEST(error("cut n0.mlx5_0.port1 at=5min3") ==
             "inject: word 3 'at=5min3': expected a time with its unit, as 5ms");
  BOOST_TEST(error("cut n0.mlx5_0.port1 silent") == "inject: word 3 'silent': expected KEY=VALUE");
  BOOST_TEST(error("drop n0.mlx5_0.port1 rate=1.5") ==
             "inject: word 3 'rate=1.5': expected a number above 0 and up to 1, as 0.25");
  BOOST_TEST(error("cut n0.mlx5_0.port1 at=5ms rate=0.5") ==
             "inject: word 4 'rate=0.5': cut has no rate; expected silent, direction, at, for, seed");
  BOOST_TEST(
      error("drop n0.mlx5_0.port1 raet=0.5") ==
      "inject: word 3 'raet=0.5': no such argument; expected rate, direction, at, for, seed (did you mean rate?)");
  BOOST_TEST(error("flap n0.mlx5_0.port1") ==
             "inject: flap needs period=; expected a time of 1ms or more with its unit, as 12s");
  BOOST_TEST(error("cut n0.mlx5_0.prt1") ==
             "inject: word 2 'n0.mlx5_0.prt1': no such link, lane, NIC, GPU, switch plane, node or control channel; "
             "expected a name as `show` prints it (did you mean n0.mlx5_0.port1?)");
  BOOST_TEST(error("cut n0.nvswitch6") ==
             "inject: word 2 'n0.nvswitch6': no such plane; expected n0.nvswitch0 to n0.nvswitch5");
  BOOST_TEST(error("cut n0 direction=tx") ==
             "inject: word 2 'n0': a node has no direction; expected none, or one of its links");
}

BOOST_AUTO_TEST_CASE(text_and_fault_are_the_same) {
  for (const char* words : {"cut n0.mlx5_0.port1", "degrade n0.gpu3.nvlink rate=0.25 at=5ms for=2s",
                            "late n0.gpu0-n1.gpu0.tcp rate=0.5 delay=2.5ms",
                            "flap n0.mlx5_0.port1 rate=0.1 period=12s direction=rx seed=44 silent=true"}) {
    BOOST_TEST(fault_to_text(parse_fault(words)) == words);
  }
}

BOOST_AUTO_TEST_CASE(a_plan_file_is_the_same_words) {
  const TemporaryFile good(
      "# two at once\n[[fault]]\nkind = \"cut\"\ntarget = \"n0.mlx5_0.port1\"\nat = \"5ms\"\nfor = \"2s\"\nsilent = "
      "true\n"
      "[[fault]]\nkind = \"drop\"\ntarget = \"n0.eth0\"\nrate = 1\ndirection = \"tx\"\nseed = 3\n");
  const auto plan = read_fault_plan(good.path);
  BOOST_REQUIRE(plan.size() == 2U);
  BOOST_TEST(fault_to_text(plan[0]) == "cut n0.mlx5_0.port1 at=5ms for=2s silent=true");
  BOOST_TEST(fault_to_text(plan[1]) == "drop n0.eth0 rate=1 direction=tx seed=3");

  const auto error = [](const std::string& text) {
    const TemporaryFile file(text);
    const std::string e = error_of([&] {
      for (const FaultSpec& f : read_fault_plan(file.path)) expand_fault(f, dgx(), 1, 0);
    });
    BOOST_TEST(e.starts_with(file.path + ":"));
    return e.substr(file.path.size());
  };
  const std::string head = "[[fault]]\nkind = \"cut\"\n";
  BOOST_TEST(error(head + "target = \"n0.eth0\"\nfor = 2\n") ==
             ":4: for '2': expected a time above 0 with its unit, as 2s");
  BOOST_TEST(error(head + "at = \"1ms\"\n") == ":1: fault: expected target = \"…\"");
  BOOST_TEST(error("faults = 3\n") == ":1: faults: expected [[fault]] rows");
  BOOST_TEST(error(head + "\ntarget = \"n9.eth0\"\n").starts_with(":4: target 'n9.eth0': no such link"));
  BOOST_TEST(error("[[fault]\n").starts_with(":1: "));
  BOOST_TEST(error_of([] { read_fault_plan("/nonexistent/plan.toml"); }).starts_with("/nonexistent/plan.toml:"));
}

BOOST_AUTO_TEST_CASE(what_was_injected_can_be_cleared) {
  FaultPlan plan(dgx());
  for (const char* words : {"cut n0.eth0", "stall n1.eth0", "cut n0.eth0 direction=tx", "drop n0.mlx5_0"}) {
    plan.inject(parse_fault(words), 0);
  }
  BOOST_TEST(plan.entries().back().id == 4U);
  const FaultRows two = plan.clear("cut n0.eth0");
  BOOST_REQUIRE(two.wire.size() == 2U);
  BOOST_TEST((two.wire[1].kind == FaultKind::kClear && two.wire[1].fault == 3));
  BOOST_TEST(plan.clear("4").wire.size() == 1U);
  BOOST_TEST(error_of([&] { plan.clear("4"); }) ==
             "clear: '4': no such fault; expected a number, KIND TARGET or all of: 2 stall n1.eth0");
  BOOST_TEST(plan.clear("all").wire[0].fault == 0U);
  BOOST_TEST(plan.entries().empty());
}

// Every fault that is made up can be said and applied; a seed is a plan; all kinds come up; what must not break does
// not.
BOOST_AUTO_TEST_CASE(made_up_faults_keep_their_promises) {
  const ClusterSpec mixed = build_profiles({{.profile = "dgx1-v100", .nodes = 2}, {.profile = "mesh-4gpu"}});
  std::set<FaultKind> kinds;
  for (const FaultWeather weather : {FaultWeather::kSingle, FaultWeather::kStorm}) {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      const ClusterSpec& cluster = seed % 2 == 0 ? dgx() : mixed;
      const auto faults = random_faults(cluster, seed, weather, 10 * kSecond);
      const auto again = random_faults(cluster, seed, weather, 10 * kSecond);
      BOOST_REQUIRE(faults.size() == again.size());
      BOOST_TEST((weather == FaultWeather::kStorm ? faults.size() >= 3 : faults.size() == 1));
      unsigned nodes_lost = 0;
      for (std::size_t i = 0; i < faults.size(); ++i) {
        const std::string text = fault_to_text(faults[i]);
        BOOST_TEST(text == fault_to_text(again[i]));
        BOOST_TEST(fault_to_text(parse_fault(text)) == text);
        kinds.insert(faults[i].kind);
        for (const FaultRow& r : expand_fault(faults[i], cluster, 1, 0).wire) {
          const bool total = r.kind == FaultKind::kCut || r.kind == FaultKind::kStall || r.kind == FaultKind::kFlap ||
                             ((r.kind == FaultKind::kDrop || r.kind == FaultKind::kBad) && r.rate == 1);
          if (!total) continue;
          if (r.target == FaultTarget::kNode) {
            ++nodes_lost;
            continue;
          }
          const bool last =
              r.target == FaultTarget::kLink
                  ? cluster.links[r.id].kind == LinkKind::kTcp || cluster.links[r.id].gpu != kNoId16
                  : cluster.lanes[r.id].kind == LaneKind::kTcp || cluster.lanes[r.id].kind == LaneKind::kHost;
          const bool nvlink = r.target == FaultTarget::kLink && cluster.links[r.id].kind == LinkKind::kNvlink;
          if (!last || nvlink) continue;
          BOOST_TEST((weather == FaultWeather::kStorm), text);
          BOOST_TEST(r.until_ns - r.at_ns <= kSecond, text);
        }
      }
      BOOST_TEST(nodes_lost <= 1U);
    }
  }
  BOOST_TEST(kinds.size() == 10U);
}

BOOST_AUTO_TEST_SUITE_END()

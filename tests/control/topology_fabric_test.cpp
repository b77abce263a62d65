// NVLink fabrics and their faults, on matrices that are made here: which GPU or pair is at fault, and what is no fault
// because the board is built so.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "control/topology/capture.hpp"

namespace {

using Links = std::vector<std::vector<int>>;  // 0 is SYS

lk::NodeTopology reading(const Links& links, const std::string& numa = "0") {
  std::string text;
  for (std::size_t a = 0; a < links.size(); ++a) text += "\tGPU" + std::to_string(a);
  text += "\tCPU Affinity\tNUMA Affinity\n";
  for (std::size_t a = 0; a < links.size(); ++a) {
    text += "GPU" + std::to_string(a);
    for (std::size_t b = 0; b < links.size(); ++b) {
      text += a == b ? "\t X " : links[a][b] == 0 ? "\tSYS" : "\tNV" + std::to_string(links[a][b]);
    }
    text += "\t0-31\t" + numa + "\n";
  }
  return lk::parse_capture(text, "made");
}

Links even(std::size_t gpus, int links) {
  Links out(gpus, std::vector<int>(gpus, links));
  for (std::size_t i = 0; i < gpus; ++i) out[i][i] = 0;
  return out;
}

void set(Links& links, std::size_t a, std::size_t b, int n) { links[a][b] = links[b][a] = n; }

// DGX-1 with V100, as its user guide draws it; also in tests/data/captures/topo/dgx1-v100-4nic.txt.
Links cube(int most = 2) {
  Links out = even(8, 0);
  const int edges[][3] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                          {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (const auto& e : edges) {
    set(out, static_cast<std::size_t>(e[0]), static_cast<std::size_t>(e[1]), std::min(e[2], most));
  }
  return out;
}

Links part(const Links& whole, const std::vector<std::size_t>& gpus) {
  Links out = even(gpus.size(), 0);
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = 0; b < gpus.size(); ++b) out[a][b] = whole[gpus[a]][gpus[b]];
  }
  return out;
}

std::set<std::string> faults(const lk::NodeTopology& t) {
  std::set<std::string> out;
  for (const lk::Anomaly& a : t.anomalies) {
    if (a.severity == lk::Severity::kFault) out.insert(a.where.begin(), a.where.end());
  }
  return out;
}

void check(const Links& links, lk::Fabric fabric, const std::set<std::string>& expected) {
  const lk::NodeTopology t = reading(links);
  BOOST_TEST(lk::name_of(t.fabric) == lk::name_of(fabric));
  BOOST_TEST(faults(t) == expected, boost::test_tools::per_element());
  BOOST_TEST(lk::name_of(t.verdict) == (expected.empty() ? "ok" : "degraded"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(topology_fabric)

BOOST_AUTO_TEST_CASE(boards_as_they_are_built_have_no_fault) {
  check(even(16, 6), lk::Fabric::kNvswitch, {});   // DGX-2
  check(even(8, 12), lk::Fabric::kNvswitch, {});   // HGX A100
  check(even(8, 8), lk::Fabric::kNvswitch, {});    // HGX H800
  check(even(8, 18), lk::Fabric::kNvswitch, {});   // HGX H100
  check(even(2, 18), lk::Fabric::kNvswitch, {});   // two GPUs of one
  check(even(4, 6), lk::Fabric::kDirectMesh, {});  // H100 or GH200, four
  check(even(4, 4), lk::Fabric::kDirectMesh, {});  // A100, four
  check(even(4, 2), lk::Fabric::kDirectMesh, {});  // V100, four
  check(even(4, 1), lk::Fabric::kDirectMesh, {});
  check(cube(), lk::Fabric::kHybridCubeMesh, {});
  check(cube(1), lk::Fabric::kHybridCubeMesh, {});  // DGX-1 with P100
  check(even(4, 0), lk::Fabric::kNone, {});
  check(even(1, 0), lk::Fabric::kNone, {});
  check(even(2, 4), lk::Fabric::kBridgePair, {});
}

BOOST_AUTO_TEST_CASE(numbering_and_parts_of_a_mesh_are_no_fault) {
  check(part(cube(), {5, 2, 7, 0, 3, 6, 1, 4}), lk::Fabric::kHybridCubeMesh, {});
  check(part(cube(), {0, 1, 2, 3}), lk::Fabric::kDirectMesh, {});
  check(part(cube(), {0, 1, 4, 5}), lk::Fabric::kHybridCubeMesh, {});
  check(part(cube(), {0, 1}), lk::Fabric::kBridgePair, {});
  check(part(cube(), {0, 5}), lk::Fabric::kNone, {});
}

BOOST_AUTO_TEST_CASE(power9_pairs_and_triples_are_built_so) {
  Links pairs = even(4, 0);
  set(pairs, 0, 1, 3);
  set(pairs, 2, 3, 3);
  check(pairs, lk::Fabric::kBridgePairs, {});
  Links triples = even(6, 0);
  for (const std::size_t base : {std::size_t{0}, std::size_t{3}}) {
    for (std::size_t a = 0; a < 3; ++a) {
      for (std::size_t b = a + 1; b < 3; ++b) set(triples, base + a, base + b, 2);
    }
  }
  check(triples, lk::Fabric::kDirectMesh, {});
}

BOOST_AUTO_TEST_CASE(a_gpu_low_to_all_its_peers_is_at_fault_itself) {
  Links links = even(8, 12);
  for (std::size_t b = 0; b < 8; ++b) {
    if (b != 3) set(links, 3, b, 11);
  }
  check(links, lk::Fabric::kNvswitch, {"GPU3"});
  for (std::size_t b = 0; b < 8; ++b) {
    if (b != 5) set(links, 5, b, 10);
  }
  check(links, lk::Fabric::kNvswitch, {"GPU3", "GPU5"});
}

BOOST_AUTO_TEST_CASE(a_gpu_without_nvlink_on_a_switch_board_is_at_fault) {
  Links links = even(8, 18);
  for (std::size_t b = 0; b < 8; ++b) set(links, 5, b, 0);
  check(links, lk::Fabric::kNvswitch, {"GPU5"});
}

BOOST_AUTO_TEST_CASE(a_number_that_no_gpu_has_is_a_fault_of_the_fabric) {
  const auto all = faults(reading(even(8, 10)));  // A100 whose every GPU lost one switch's two links
  BOOST_TEST(all.size() == 8U);
}

BOOST_AUTO_TEST_CASE(a_pair_low_where_its_gpus_are_not_is_at_fault_as_a_pair) {
  Links links = even(8, 18);
  set(links, 1, 6, 0);
  check(links, lk::Fabric::kNvswitch, {"GPU1", "GPU6"});
  Links mesh = even(4, 6);
  set(mesh, 0, 2, 5);
  check(mesh, lk::Fabric::kDirectMesh, {"GPU0", "GPU2"});
  set(mesh, 0, 2, 0);
  check(mesh, lk::Fabric::kDirectMesh, {"GPU0", "GPU2"});
  Links v100 = even(4, 2);
  set(v100, 1, 3, 1);
  check(v100, lk::Fabric::kDirectMesh, {"GPU1", "GPU3"});
}

BOOST_AUTO_TEST_CASE(a_cube_mesh_that_lost_links_names_the_pair) {
  Links links = cube();
  set(links, 1, 5, 0);
  check(links, lk::Fabric::kHybridCubeMesh, {"GPU1", "GPU5"});
  links = cube();
  set(links, 2, 3, 1);
  const auto where = faults(reading(links));
  BOOST_TEST(where.contains("GPU2"));
  BOOST_TEST(where.contains("GPU3"));
}

BOOST_AUTO_TEST_CASE(bridges_with_fewer_links_than_the_others) {
  Links links = even(4, 0);
  set(links, 0, 1, 12);
  set(links, 2, 3, 8);
  check(links, lk::Fabric::kBridgePairs, {"GPU2", "GPU3"});
}

BOOST_AUTO_TEST_CASE(rows_that_disagree_are_suspect) {
  const lk::NodeTopology t = lk::parse_capture("\tGPU0\tGPU1\nGPU0\tX\tPIX\t0\nGPU1\tSYS\tX\t0\n", "made");
  BOOST_TEST(lk::name_of(t.verdict) == "suspect");
}

BOOST_AUTO_TEST_CASE(unknown_pairs_are_not_lost_links) {
  const lk::NodeTopology t = lk::parse_capture(
      "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\n"
      "GPU0\tX\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\n"
      "GPU1\tNV12\tX\tNV12\tNV12\n",
      "made");
  BOOST_TEST(faults(t).empty());
  BOOST_TEST(lk::name_of(t.verdict) == "incomplete");
  BOOST_TEST(lk::name_of(t.fabric) == "nvswitch");
  BOOST_TEST(lk::text_of(t.cell(2, 3)) == "?");
}

BOOST_AUTO_TEST_SUITE_END()

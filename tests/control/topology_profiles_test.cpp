// Profiles: what a cluster of each kind of node must have. Expected numbers are worked out here from the boards' public
// figures (links, GB/s a link, PCIe lanes), not read back from the table under test.
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "control/topology/profiles.hpp"
#include "dataplane/base/error.hpp"

namespace {

using lk::ClusterSpec;
using lk::LaneKind;
using lk::LaneSpec;

const lk::LinkSpec* link_named(const ClusterSpec& spec, const std::string& name) {
  for (const lk::LinkSpec& link : spec.links) {
    if (link.name == name) return &link;
  }
  return nullptr;
}

std::vector<const LaneSpec*> lanes_between(const ClusterSpec& spec, lk::EndpointId a, lk::EndpointId b) {
  std::vector<const LaneSpec*> out;
  const lk::TrunkId id = spec.trunk_between(a, b);
  if (id == lk::kNoId) return out;
  const lk::TrunkSpec& trunk = spec.trunks[id];
  for (std::uint32_t i = 0; i < trunk.lane_count; ++i) out.push_back(&spec.lanes[trunk.first_lane + i]);
  return out;
}

std::string kinds_of(const std::vector<const LaneSpec*>& lanes) {
  std::string out;
  for (const LaneSpec* lane : lanes) out += std::string(out.empty() ? "" : " ") + lk::name_of(lane->kind);
  return out;
}

std::string path_of(const ClusterSpec& spec, const LaneSpec& lane) {
  std::string out;
  const auto walk = [&](const std::vector<lk::Hop>& hops) {
    for (const lk::Hop& hop : hops) {
      out +=
          (out.empty() ? "" : " ") + spec.links[hop.link].name + (hop.direction == lk::Direction::kForward ? ">" : "<");
    }
  };
  walk(lane.near_hops);
  out += " |";
  walk(lane.far_hops);
  return out;
}

// What every ClusterSpec must satisfy, whatever it is of.
void check_whole(const ClusterSpec& spec) {
  std::set<std::string> names;
  for (const lk::LinkSpec& link : spec.links) {
    BOOST_TEST(link.nominal_GBps > 0, link.name);
    BOOST_TEST(link.width > 0, link.name);
    BOOST_TEST(names.insert(link.name).second, link.name);
  }
  names.clear();
  for (std::size_t i = 0; i < spec.trunks.size(); ++i) {
    const lk::TrunkSpec& trunk = spec.trunks[i];
    BOOST_REQUIRE(trunk.a < trunk.b);
    BOOST_REQUIRE(trunk.lane_count > 0);
    BOOST_REQUIRE(spec.trunk_between(trunk.b, trunk.a) == i);
    std::uint16_t rung = 0;
    for (const LaneSpec* lane : lanes_between(spec, trunk.a, trunk.b)) {
      BOOST_REQUIRE(lane->trunk == i);
      BOOST_REQUIRE(lane->rung >= rung);
      rung = lane->rung;
      const auto rate = [&](const lk::Hop& hop) { return spec.links[hop.link].nominal_GBps; };
      const lk::NodeId near = spec.gpus[lane->a].node, far = spec.gpus[lane->b].node;
      for (const lk::Hop& hop : lane->near_hops) {
        BOOST_REQUIRE(spec.links[hop.link].node == near);
        BOOST_REQUIRE(lane->nominal_GBps <= rate(hop));
      }
      for (const lk::Hop& hop : lane->far_hops) {
        BOOST_REQUIRE(spec.links[hop.link].node == far);
        BOOST_REQUIRE(lane->nominal_GBps <= rate(hop));
      }
      BOOST_REQUIRE(lane->far_hops.empty() == (near == far));
      BOOST_REQUIRE(lane->nominal_GBps > 0);
      BOOST_REQUIRE(lane->latency_ns > 0);
      BOOST_REQUIRE(names.insert(lane->name).second);
      const bool direct = lane->kind == LaneKind::kNvlink || lane->kind == LaneKind::kPcie;
      BOOST_REQUIRE(lane->addressable == (direct && near == far));
      BOOST_REQUIRE((lane->port_a != lk::kNoId) == (lane->kind == LaneKind::kRdma));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(topology_profiles)

BOOST_AUTO_TEST_CASE(every_profile_builds_a_whole_cluster) {
  for (const lk::Profile& profile : lk::profiles()) {
    BOOST_TEST_CONTEXT(profile.name) {
      for (unsigned nodes : {1U, 2U, 5U}) check_whole(lk::build_profile(std::string(profile.name), nodes));
    }
  }
}

BOOST_AUTO_TEST_CASE(dgx_a100_has_eight_rails_of_ten_nics) {
  const ClusterSpec spec = lk::build_profile("dgx-a100", 2);
  BOOST_TEST(spec.nodes.size() == 2U);
  BOOST_TEST(spec.gpus.size() == 16U);
  BOOST_TEST(spec.nodes[1].rail_count == 8);
  BOOST_TEST(spec.domains.size() == 2U);
  BOOST_TEST(spec.domains[0].switch_planes == 6);
  // 12 links of 25 GB/s each way, 94 % of it payload; 200 Gb/s ports, 98 %.
  BOOST_TEST(link_named(spec, "n0.gpu0.nvlink")->nominal_GBps == 12 * 25 * 0.94, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(link_named(spec, "n0.gpu0.nvlink")->width == 12);
  BOOST_TEST(link_named(spec, "n1.mlx5_7.port1")->nominal_GBps == 25 * 0.98, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(link_named(spec, "n1.mlx5_7.port1")->rail == 7);
  BOOST_TEST(link_named(spec, "n0.mlx5_8.port1") == nullptr);
  BOOST_TEST(kinds_of(lanes_between(spec, 0, 1)) == "nvlink pcie host");
  const auto across = lanes_between(spec, 2, 10);
  BOOST_TEST(kinds_of(across) == "rdma rdma rdma rdma rdma rdma rdma rdma tcp");
  BOOST_TEST(path_of(spec, *across[0]) ==
             "n0.gpu2.pcie> n0.mlx5_2.pcie< n0.mlx5_2.port1> | n1.mlx5_2.port1< n1.mlx5_2.pcie> n1.gpu2.pcie<");
  BOOST_TEST(across[0]->rung == 0);
  BOOST_TEST(across[1]->rung == 1);
  BOOST_TEST(across[0]->name == "n0.gpu2-n1.gpu2.rdma.mlx5_2");
  // Rail 0 from GPU 2: over NVLink to GPU 0, whose NIC it is.
  BOOST_TEST(path_of(spec, *across[1]) ==
             "n0.gpu2.nvlink> n0.gpu0.nvlink< n0.gpu0.pcie> n0.mlx5_0.pcie< n0.mlx5_0.port1> |"
             " n1.mlx5_0.port1< n1.mlx5_0.pcie> n1.gpu0.pcie< n1.gpu0.nvlink> n1.gpu2.nvlink<");
  BOOST_TEST(across[1]->via_a == 0);
  BOOST_TEST(across[1]->via_b == 8);
  BOOST_TEST(across[1]->latency_ns == across[0]->latency_ns + 2000);
  BOOST_TEST(path_of(spec, *across[8]) == "n0.gpu2.pcie> n0.eth0> | n1.eth0< n1.gpu2.pcie<");
  BOOST_TEST(across[8]->rung == 9);
}

BOOST_AUTO_TEST_CASE(rail_of_a_neighbour_behind_the_same_switch_needs_no_nvlink) {
  const ClusterSpec spec = lk::build_profile("dgx-a100", 2);
  for (const LaneSpec* lane : lanes_between(spec, 2, 10)) {
    if (lane->name != "n0.gpu2-n1.gpu2.rdma.mlx5_3") continue;
    BOOST_TEST(path_of(spec, *lane) ==
               "n0.gpu2.pcie> n0.mlx5_3.pcie< n0.mlx5_3.port1> | n1.mlx5_3.port1< n1.mlx5_3.pcie> n1.gpu2.pcie<");
    BOOST_TEST(lane->rung == 1);
    return;
  }
  BOOST_ERROR("no lane over mlx5_3");
}

BOOST_AUTO_TEST_CASE(cube_mesh_has_bundles_relays_and_shared_rails) {
  const ClusterSpec spec = lk::build_profile("dgx1-v100", 2);
  BOOST_TEST(spec.nodes[0].rail_count == 4);
  BOOST_TEST(spec.domains[0].switch_planes == 0);
  BOOST_TEST(link_named(spec, "n0.gpu0-gpu3.nvlink")->width == 2);
  BOOST_TEST(link_named(spec, "n0.gpu0-gpu3.nvlink")->nominal_GBps == 2 * 25 * 0.94,
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(link_named(spec, "n0.gpu0-gpu5.nvlink") == nullptr);
  // GPU 0 and 1 are joined, and both to 2 and 3.
  const auto near = lanes_between(spec, 0, 1);
  BOOST_TEST(kinds_of(near) == "nvlink relay relay pcie host");
  BOOST_TEST(near[1]->name == "n0.gpu0-n0.gpu1.relay.gpu2");
  BOOST_TEST(near[1]->via_a == 2);
  BOOST_TEST(path_of(spec, *near[1]) == "n0.gpu0-gpu2.nvlink> n0.gpu1-gpu2.nvlink< |");
  // GPU 0 and 5 are not: relays over 1 and 4 are the best rung.
  BOOST_TEST(kinds_of(lanes_between(spec, 0, 5)) == "relay relay pcie host");
  // Both GPUs of a pair use their NIC directly; rails are in GPU order, not in NIC number order.
  BOOST_TEST(link_named(spec, "n0.mlx5_1.port1")->rail == 1);
  BOOST_TEST(link_named(spec, "n0.mlx5_2.port1")->rail == 2);
  for (const lk::EndpointId gpu : {lk::EndpointId{0}, lk::EndpointId{1}}) {
    const auto across = lanes_between(spec, gpu, static_cast<lk::EndpointId>(gpu + 8));
    BOOST_TEST(kinds_of(across) == "rdma rdma rdma rdma tcp");
    BOOST_TEST(across[0]->rung == 0);
    BOOST_TEST(across[0]->name.ends_with("rdma.mlx5_0"));
    BOOST_TEST(across[0]->near_hops.size() == 3U);
  }
  // GPU 0 reaches rail 1 over GPU 3 (two links) rather than GPU 2 (one), and rail 3 over no neighbour.
  const auto across = lanes_between(spec, 0, 8);
  BOOST_TEST(across[1]->name.ends_with("rdma.mlx5_1"));
  BOOST_TEST(across[1]->via_a == 3);
  BOOST_TEST(across[3]->name.ends_with("rdma.mlx5_3"));
  BOOST_TEST(across[3]->rung == 3);
  BOOST_TEST(across[3]->via_a == lk::kNoId16);
}

BOOST_AUTO_TEST_CASE(hgx_h100_rails_run_against_nic_numbers) {
  const ClusterSpec spec = lk::build_profile("hgx-h100", 2);
  BOOST_TEST(spec.nodes[0].rail_count == 8);
  BOOST_TEST(link_named(spec, "n0.mlx5_8.port1")->rail == 0);
  BOOST_TEST(link_named(spec, "n0.mlx5_1.port1")->rail == 7);
  BOOST_TEST(link_named(spec, "n0.gpu0.nvlink")->width == 18);
  BOOST_TEST(spec.domains[0].switch_planes == 4);
}

BOOST_AUTO_TEST_CASE(nvl72_is_one_domain_of_eighteen_trays) {
  const ClusterSpec spec = lk::build_profile("gb200-nvl72", 19);
  BOOST_TEST(spec.domains.size() == 2U);
  BOOST_TEST(spec.domains[0].gpus.size() == 72U);
  BOOST_TEST(spec.domains[1].gpus.size() == 4U);
  BOOST_TEST(spec.gpus[71].column == 71);
  BOOST_TEST(spec.gpus[72].column == 0);
  BOOST_TEST(spec.domains[0].switch_planes == 18);
  const auto far = lanes_between(spec, 0, 71);
  BOOST_TEST(kinds_of(far) == "nvlink rdma rdma rdma rdma tcp");
  BOOST_TEST(far[0]->addressable == false);
  BOOST_TEST(path_of(spec, *far[0]) == "n0.gpu0.nvlink> | n17.gpu3.nvlink<");
  BOOST_TEST(far[0]->nominal_GBps == 18 * 50 * 0.94, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(far[1]->rung > far[0]->rung);
  // 76 GPUs: same column only. Column 5 of the rack talks to column 5 mod 4 of the single tray.
  BOOST_TEST(kinds_of(lanes_between(spec, 5, 73)) == "rdma rdma rdma rdma tcp");
  BOOST_TEST(lanes_between(spec, 5, 72).empty());
  // NICs are SYS to every GPU here; tray position decides: GPU 2 has mlx5_4.
  const auto own = lanes_between(spec, 2, 74);
  BOOST_TEST(own[0]->rung == 0);
  BOOST_TEST(own[0]->name.ends_with("rdma.mlx5_4"));
  check_whole(spec);
}

BOOST_AUTO_TEST_CASE(pcie_box_has_no_nvlink_and_two_rails) {
  const ClusterSpec spec = lk::build_profile("pcie-8gpu", 2);
  BOOST_TEST(spec.nodes[0].rail_count == 2);
  BOOST_TEST(kinds_of(lanes_between(spec, 0, 7)) == "pcie host");
  BOOST_TEST(kinds_of(lanes_between(spec, 7, 15)) == "rdma rdma tcp");
  const double near = lanes_between(spec, 2, 3)[0]->nominal_GBps;   // PIX
  const double cross = lanes_between(spec, 0, 7)[0]->nominal_GBps;  // SYS
  BOOST_TEST(near == 16.0 * 16 / 8 * 128 / 130 * 0.89, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(cross == near * 0.6, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(lanes_between(spec, 0, 7)[1]->nominal_GBps <= near / 2);
}

BOOST_AUTO_TEST_CASE(mesh_of_four_relays_over_two_neighbours) {
  const ClusterSpec spec = lk::build_profile("mesh-4gpu", 1);
  BOOST_TEST(kinds_of(lanes_between(spec, 1, 2)) == "nvlink relay relay pcie host");
  BOOST_TEST(link_named(spec, "n0.gpu1-gpu2.nvlink")->nominal_GBps == 6 * 25 * 0.94,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(mixed_nodes_each_keep_their_kind) {
  const ClusterSpec spec = lk::build_profiles({{.profile = "dgx-a100", .nodes = 2}, {.profile = "mesh-4gpu"}});
  BOOST_TEST(spec.nodes.size() == 3U);
  BOOST_TEST(spec.gpus.size() == 20U);
  BOOST_TEST(spec.nodes[2].rail_count == 4);
  // 20 GPUs: every pair has a trunk. Only rails that both nodes have carry it.
  BOOST_TEST(kinds_of(lanes_between(spec, 7, 16)) == "rdma rdma rdma rdma tcp");
  check_whole(spec);
  const ClusterSpec columns =
      lk::build_profiles({{.profile = "dgx-a100", .nodes = 2}, {.profile = "mesh-4gpu"}}, lk::Pairs::kSameColumn);
  BOOST_TEST(lanes_between(columns, 7, 16).empty());
  BOOST_TEST(!lanes_between(columns, 7, 19).empty());  // column 7 mod 4
}

BOOST_AUTO_TEST_CASE(two_ports_of_a_nic_share_its_slot) {
  const ClusterSpec spec =
      lk::build_profiles({{.profile = "mesh-4gpu", .nodes = 2, .nic = "hdr100", .ports_per_nic = 2}});
  BOOST_TEST(spec.nodes[0].rail_count == 8);
  const auto lanes = lanes_between(spec, 0, 4);
  BOOST_TEST(lanes[0]->rung == 0);
  BOOST_TEST(lanes[1]->rung == 0);
  BOOST_TEST(lanes[0]->near_hops[1].link == lanes[1]->near_hops[1].link);
  BOOST_TEST(lanes[0]->port_a != lanes[1]->port_a);
  check_whole(spec);
}

BOOST_AUTO_TEST_CASE(rails_that_options_name_replace_nearness) {
  const ClusterSpec spec = lk::build_profiles(
      {{.profile = "dgx-a100"},
       {.profile = "dgx-a100", .rails = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6"}}});
  BOOST_TEST(spec.nodes[0].rail_count == 8);
  BOOST_TEST(spec.nodes[1].rail_count == 7);
  BOOST_TEST(kinds_of(lanes_between(spec, 7, 15)) == "rdma rdma rdma rdma rdma rdma rdma tcp");
  check_whole(spec);
}

BOOST_AUTO_TEST_CASE(what_no_capture_gives_is_told) {
  const ClusterSpec spec = lk::build_profile(LK_SOURCE_DIR "/tests/data/captures/topo/h100-8gpu-vm-flat.txt", 2);
  const auto told = [&](const std::string& words) {
    for (const std::string& line : spec.assumed) {
      if (line.find(words) != std::string::npos) return true;
    }
    return false;
  };
  BOOST_TEST(told("GPU: h100-sxm"));
  BOOST_TEST(told("rails: none"));
  BOOST_TEST(told("tcp"));
  BOOST_TEST(kinds_of(lanes_between(spec, 0, 8)) == "tcp");
}

BOOST_AUTO_TEST_CASE(wrong_requests_are_one_clear_line) {
  const auto message = [](const lk::ProfileUse& use) -> std::string {
    try {
      lk::build_profiles({use});
    } catch (const lk::InputError& error) {
      return error.what();
    }
    return "";
  };
  BOOST_TEST(message({.profile = "dgx-b300"}).find("dgx-a100, dgx1-v100") != std::string::npos);
  BOOST_TEST(message({.profile = "dgx-a100", .nic = "qdr"}).find("unknown NIC port \"qdr\"") != std::string::npos);
  BOOST_TEST(message({.profile = "dgx-a100", .rails = {"mlx5_77"}}).find("mlx5_77") != std::string::npos);
  BOOST_TEST(message({.profile = "dgx1-v100", .domain_nodes = 2}).find("domain_nodes") != std::string::npos);
  BOOST_TEST(message({.profile = "dgx-a100", .nodes = 0}).find("nodes") != std::string::npos);
  for (const lk::ProfileUse& use : {lk::ProfileUse{.profile = "dgx-b300"}}) {
    BOOST_TEST(message(use).find('\n') == std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()

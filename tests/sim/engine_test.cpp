// The engine alone, without a control plane: every op's bits against the reference, on stepped virtual time.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <fstream>

#include "agent/sim_cluster.hpp"
#include "control/peers/group_builder.hpp"
#include "control/topology/profiles.hpp"
#include "dataplane/reduce/reference.hpp"

namespace {

struct Rig {
  explicit Rig(const lk::ClusterSpec& c, lk::SimOptions o = {}) : cluster(c), sim(cluster, o) {
    std::vector<lk::EndpointId> members;
    for (lk::EndpointId e = 0; e < cluster.gpus.size(); ++e) members.push_back(e);
    group = lk::make_group_spec(cluster, members);
    plan = lk::default_plan(cluster, group);
    for (lk::NodeId n = 0; n < cluster.nodes.size(); ++n) {
      lk::Command command;
      command.kind = lk::CommandKind::kCreateGroup;
      command.group_spec = &group;
      command.plan_spec = &plan;
      sim.command(n, command);
    }
  }

  void all_reduce(lk::DType dtype, lk::RedOp redop, std::size_t count, bool in_place) {
    const std::size_t n = group.members.size(), bytes = count * lk::size_of(dtype);
    std::vector<std::vector<std::byte>> in(n), out(n), scratch(n);
    lk::Random random(count + 7);
    for (std::size_t r = 0; r < n; ++r) {
      in[r].resize(bytes + 8);
      out[r].resize(bytes + 8);
      scratch[r].resize(bytes + 8);
      for (auto& b : in[r]) b = static_cast<std::byte>(random.next());
    }
    std::vector<std::vector<std::size_t>> domains;
    for (const auto& d : group.domains) domains.emplace_back(d.ranks.begin(), d.ranks.end());
    std::vector<const std::byte*> inputs;
    for (auto& i : in) inputs.push_back(i.data());
    std::vector<std::byte> want(bytes + 8);
    lk::reference_all_reduce(dtype, redop, count, domains, inputs, want.data());
    ++number;
    for (std::size_t r = 0; r < n; ++r) {
      lk::OpRequest q;
      q.number = number;
      q.count = count;
      q.dtype = dtype;
      q.redop = redop;
      q.rank = static_cast<lk::Rank>(r);
      q.in = in[r].data();
      q.out = in_place ? in[r].data() : out[r].data();
      q.scratch = scratch[r].data();
      sim.request(cluster.gpus[group.members[r]].node, q);
    }
    const std::size_t done = wait(n);
    BOOST_REQUIRE_EQUAL(done, n);
    for (std::size_t r = 0; r < n; ++r) {
      const auto& got = in_place ? in[r] : out[r];
      BOOST_REQUIRE_MESSAGE(std::memcmp(got.data(), want.data(), bytes) == 0, "rank " << r << " has other bits");
    }
  }

  std::size_t wait(std::size_t n) {
    std::size_t done = 0;
    const lk::Nanos until = sim.now() + 40 * lk::kSecond;
    while (done < n && sim.step(until)) {
      for (lk::NodeId node = 0; node < sim.size(); ++node) {
        lk::OpResult r;
        while (sim.node(node).engine->results().pop(r)) {
          BOOST_REQUIRE_EQUAL(lk::name_of(r.status), "ok");
          ++done;
        }
        lk::Event e;
        while (sim.node(node).engine->events().pop(e)) {
        }
      }
    }
    return done;
  }

  lk::ClusterSpec cluster;
  lk::SimCluster sim;
  lk::GroupSpec group;
  lk::PlanSpec plan;
  lk::OpNumber number = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(engine)

BOOST_AUTO_TEST_CASE(all_reduce_has_the_right_bits_on_every_profile) {
  for (const auto& [profile, nodes] : std::vector<std::pair<std::string, unsigned>>{
           {"dgx-a100", 2}, {"dgx1-v100", 1}, {"hgx-h100", 2}, {"mesh-4gpu", 2}, {"pcie-8gpu", 2}, {"gb200-nvl72", 3}}) {
    BOOST_TEST_CONTEXT(profile) {
      Rig rig(lk::build_profile(profile, nodes));
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{110378}}) {
        rig.all_reduce(lk::DType::kF32, lk::RedOp::kSum, count, false);
        rig.all_reduce(lk::DType::kBF16, lk::RedOp::kAvg, count, true);
        rig.all_reduce(lk::DType::kF16, lk::RedOp::kSum, count, true);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

#include "agent/core_plan.hpp"

#include <sched.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>

#include "dataplane/base/error.hpp"

using namespace lk;

namespace {

MachineCores machine(const std::vector<std::pair<unsigned, unsigned>>& cores) {
  MachineCores m;
  for (const auto& [core, socket] : cores) m.allowed.push_back({core, socket});
  return m;
}

std::string text_of(const CorePlan& plan) {
  std::string text;
  for (const ReactorPlace& r : plan.reactors) {
    text += std::to_string(r.lcore) + "@" + std::to_string(r.core) + (r.shared ? "s" : "") + ":";
    for (const NodeId n : r.nodes) text += std::to_string(n) + " ";
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(core_plan_test)

BOOST_AUTO_TEST_CASE(one_core_a_socket_two_at_most_no_more_than_nodes) {
  const MachineCores two_sockets = machine({{0, 0}, {1, 0}, {2, 1}, {3, 1}, {4, 2}});
  BOOST_TEST(text_of(plan_cores(two_sockets, 1, 0, {})) == "1@0:0 ");
  BOOST_TEST(text_of(plan_cores(two_sockets, 2, 0, {})) == "1@0:0 2@2:1 ");
  BOOST_TEST(text_of(plan_cores(two_sockets, 3, 0, {})) == "1@0s:0 2@2s:1 3@0s:2 ");
  BOOST_TEST(text_of(plan_cores(two_sockets, 3, 2, {})) == "1@0:0 2 2@2:1 ");
  BOOST_TEST(text_of(plan_cores(machine({{4, 0}, {5, 0}}), 2, 0, {})) == "1@4:0 2@5:1 ");
  BOOST_TEST(text_of(plan_cores(machine({{7, 0}}), 2, 0, {})) == "1@7s:0 2@7s:1 ");
  BOOST_TEST(text_of(plan_cores(two_sockets, 4, 0, {1, 3, 4})) == "1@1s:0 2@3s:1 3@4s:2 4@1s:3 ");
}

BOOST_AUTO_TEST_CASE(a_core_outside_of_the_cpuset_is_refused) {
  BOOST_CHECK_EXCEPTION(plan_cores(machine({{0, 0}, {1, 0}}), 2, 0, {1, 5}), InputError, [](const InputError& e) {
    return std::string(e.what()) == "reactor.cores = \"1,5\": core 5 may not be used, expected some of 0-1";
  });
}

BOOST_AUTO_TEST_CASE(the_machine_has_the_cores_of_our_affinity) {
  cpu_set_t before;
  BOOST_REQUIRE_EQUAL(sched_getaffinity(0, sizeof before, &before), 0);
  const MachineCores all = read_machine_cores();
  BOOST_TEST(all.allowed.size() == static_cast<std::size_t>(CPU_COUNT(&before)));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(all.allowed.back().core, &one);
  BOOST_REQUIRE_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
  const MachineCores last = read_machine_cores();
  sched_setaffinity(0, sizeof before, &before);
  BOOST_REQUIRE(last.allowed.size() == 1U);
  BOOST_TEST(last.allowed[0].core == all.allowed.back().core);
}

BOOST_AUTO_TEST_CASE(the_plan_is_said_in_words) {
  const auto lines = core_plan_lines(plan_cores(machine({{0, 0}, {1, 0}}), 3, 2, {}));
  BOOST_REQUIRE(lines.size() == 3U);
  BOOST_TEST(lines[0] == "control thread: cores 0-1");
  BOOST_TEST(lines[1] == "reactor 1: core 0, nodes 0,2");
  BOOST_TEST(lines[2] == "reactor 2: core 1, node 1");
}

BOOST_AUTO_TEST_SUITE_END()

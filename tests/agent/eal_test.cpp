// DPDK starts once in a process, so each case has a process of its own.
#include "agent/eal.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <string>

#include "dataplane/base/error.hpp"
#include "dataplane/base/unique_fd.hpp"

using namespace lk;

namespace {

// What `call` returns or the error that it throws, from a child.
template <typename Call>
std::string in_a_child(Call call) {
  int ends[2];
  BOOST_REQUIRE_EQUAL(::pipe(ends), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  std::fflush(nullptr);  // or the child says it again
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    std::string said;
    try {
      said = call();
    } catch (const std::exception& e) {
      said = std::string("error: ") + e.what();
    }
    const ssize_t written = ::write(write_end.get(), said.data(), said.size());
    ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  write_end.reset();
  std::string said;
  char buffer[256];
  for (ssize_t n = 0; (n = ::read(read_end.get(), buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<std::size_t>(n));
  }
  int status = 0;
  BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
  BOOST_TEST(status == 0);
  return said;
}

struct Seen {
  int core = -1;
  int cores = 0;
};

void look(void* seen) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  *static_cast<Seen*>(seen) = {sched_getcpu(), CPU_COUNT(&set)};
}

// Two reactors on one core and what their threads see.
std::string start_and_look() {
  const MachineCores machine = read_machine_cores();
  const unsigned core = machine.allowed.back().core;
  const CorePlan plan = plan_cores(machine, 2, 0, {core});
  std::string warnings;
  Seen seen[2];
  {
    Eal eal(plan, {.instance = "eal_test", .memory_bytes = 32 * kMiB, .log = [&](const std::string& line) {
                     warnings += line + "\n";
                   }});
    for (unsigned i = 0; i < 2; ++i) eal.launch(i + 1, look, &seen[i]);
    for (unsigned i = 0; i < 2; ++i) eal.wait(i + 1);
  }
  for (const Seen& s : seen) {
    if (s.core != static_cast<int>(core) || s.cores != 1) return "a thread is on core " + std::to_string(s.core);
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  if (CPU_COUNT(&mine) != static_cast<int>(machine.allowed.size())) return "the control thread is pinned";
  return "good" + warnings;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(eal_test)

BOOST_AUTO_TEST_CASE(threads_are_pinned_and_may_share_a_core) { BOOST_TEST(in_a_child(start_and_look) == "good"); }

BOOST_AUTO_TEST_CASE(a_plain_user_can_start_it) {
  if (::geteuid() != 0) return;  // the case above was one
  const std::string said = in_a_child([] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return std::string("cannot become another user");
    ::unsetenv("XDG_RUNTIME_DIR");
    return start_and_look();
  });
  BOOST_TEST(said == "good");
}

BOOST_AUTO_TEST_CASE(arguments_name_every_thread_and_its_core) {
  CorePlan plan;
  plan.control_cores = {0, 1, 3};
  plan.reactors = {{.lcore = 1, .core = 0, .shared = false, .nodes = {0}}, {.lcore = 2, .core = 3, .nodes = {1}}};
  const auto words = eal_arguments(plan, {.instance = "/run/a.sock", .memory_bytes = 48 * kMiB, .log = {}});
  const auto after = [&](const std::string& word) {
    const auto at = std::find(words.begin(), words.end(), word);
    return at == words.end() || at + 1 == words.end() ? std::string() : *(at + 1);
  };
  BOOST_TEST(after("--lcores") == "0@(0-1,3),1@0,2@3");
  BOOST_TEST(after("-m") == "48");
  const auto others = eal_arguments(plan, {.instance = "/run/b.sock", .log = {}});
  BOOST_TEST((words != others));  // two agents of one machine do not meet
}

BOOST_AUTO_TEST_CASE(a_refusal_is_one_line) {
  const std::string said = in_a_child([] {
    CorePlan plan;
    plan.control_cores = {0};
    plan.reactors = {{.lcore = 1, .core = 1000, .shared = false, .nodes = {0}}};  // no such core
    Eal eal(plan, {.instance = "eal_test", .log = {}});
    return std::string("it started");
  });
  BOOST_TEST(said.find("error: DPDK does not start: ") == 0U);
  BOOST_TEST(said.find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

// The client library against an agent that is honest, refuses, lies or dies.
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/client/data_area.hpp"
#include "agent/client/lanekeeper.h"
#include "dataplane/base/random.hpp"
#include "tests/agent/fake_agent.hpp"

namespace {

using lk::test::FakeAgent;
using lk::test::Misdeed;

// A failing test must end; no test of a working library waits this long.
constexpr std::int64_t kLong = 20 * LK_SECOND;

struct Place {
  Place() {
    char name[] = "/tmp/lk-client-XXXXXX";
    BOOST_REQUIRE(::mkdtemp(name) != nullptr);
    folder = name;
    socket = folder + "/agent";
  }
  ~Place() { std::filesystem::remove_all(folder); }
  std::string folder, socket;
};

struct Attached {
  explicit Attached(const std::string& socket, std::uint32_t ops = 0) {
    lk_options options{};
    options.data_bytes = 1 << 20;
    options.ops_in_flight = ops;
    const lk_status s = lk_attach(socket.c_str(), &options, &session);
    BOOST_REQUIRE_MESSAGE(s == LK_OK, lk_last_error());
  }
  ~Attached() { lk_detach(session); }
  lk_group* join(const char* name, std::uint16_t rank, std::uint16_t ranks) {
    lk_group* group = nullptr;
    const lk_status s = lk_group_join(session, name, rank, ranks, LK_ANY_GPU, &group);
    BOOST_REQUIRE_MESSAGE(s == LK_OK, lk_last_error());
    return group;
  }
  float* floats(std::size_t count) {
    void* memory = nullptr;
    BOOST_REQUIRE_EQUAL(lk_alloc(session, count * sizeof(float), &memory), LK_OK);
    return static_cast<float*>(memory);
  }
  lk_session* session = nullptr;
};

lk_status attach_status(const std::string& socket, std::int64_t timeout_ns = 0) {
  lk_options options{};
  options.timeout_ns = timeout_ns;
  lk_session* session = nullptr;
  const lk_status s = lk_attach(socket.c_str(), &options, &session);
  BOOST_TEST((session != nullptr) == (s == LK_OK));
  lk_detach(session);
  return s;
}

bool error_has(const std::string& part) {
  const std::string line = lk_last_error();
  BOOST_TEST_MESSAGE(line);
  return line.find(part) != std::string::npos && line.find('\n') == std::string::npos;
}

// One rank, one op started against an agent that does `misdeed` with it.
struct OneOp {
  explicit OneOp(const Misdeed& misdeed) : agent(place.socket, misdeed), client(place.socket) {
    lk_group* group = client.join("g", 0, 1);
    BOOST_REQUIRE_EQUAL(lk_group_wait(group, kLong), LK_OK);
    float* data = client.floats(4);
    BOOST_REQUIRE_EQUAL(lk_all_reduce(group, data, data, 4, LK_F32, LK_SUM, &cookie), LK_OK);
  }
  Place place;
  FakeAgent agent;
  Attached client;
  std::uint64_t cookie = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(client)

BOOST_AUTO_TEST_CASE(reduces_over_sessions_and_ranks) {
  const Place place;
  const FakeAgent agent(place.socket, {});
  Attached a(place.socket), b(place.socket);
  lk_group* groups[] = {a.join("job", 0, 3), a.join("job", 1, 3), b.join("job", 2, 3)};
  Attached* owners[] = {&a, &a, &b};
  std::uint64_t cookies[3];
  float *in[3], *out[3];
  for (int r = 0; r < 3; ++r) {
    BOOST_REQUIRE_EQUAL(lk_group_wait(groups[r], kLong), LK_OK);
    in[r] = owners[r]->floats(5);
    out[r] = owners[r]->floats(5);
    for (int i = 0; i < 5; ++i) in[r][i] = static_cast<float>((r + 1) * (i + 1));
    BOOST_REQUIRE_EQUAL(lk_all_reduce(groups[r], in[r], out[r], 5, LK_F32, LK_SUM, &cookies[r]), LK_OK);
  }
  for (int r = 0; r < 3; ++r) {
    lk_result result{};
    BOOST_REQUIRE_EQUAL(lk_wait(owners[r]->session, cookies[r], kLong, &result), LK_OK);
    BOOST_TEST(result.cookie == cookies[r]);
    BOOST_TEST(result.op_number == 1U);
    for (int i = 0; i < 5; ++i) BOOST_TEST(out[r][i] == static_cast<float>(6 * (i + 1)));
    BOOST_TEST(lk_wait(owners[r]->session, cookies[r], 0, nullptr) == LK_INVALID);  // its result was taken
  }
  for (int r = 0; r < 3; ++r) {
    BOOST_REQUIRE_EQUAL(lk_broadcast(groups[r], r == 1 ? in[1] : nullptr, out[r], 5, LK_F32, 1, &cookies[r]), LK_OK);
  }
  for (int r = 0; r < 3; ++r) {
    lk_result result{};
    BOOST_REQUIRE_EQUAL(lk_wait(owners[r]->session, cookies[r], kLong, &result), LK_OK);
    BOOST_TEST(result.op_number == 2U);
    for (int i = 0; i < 5; ++i) BOOST_TEST(out[r][i] == static_cast<float>(2 * (i + 1)));
  }
}

BOOST_AUTO_TEST_CASE(many_ops_complete_and_the_limit_is_busy) {
  const Place place;
  const FakeAgent agent(place.socket, {});
  Attached a(place.socket, 4);
  lk_group* group = a.join("job", 0, 1);
  BOOST_REQUIRE_EQUAL(lk_group_wait(group, kLong), LK_OK);
  float* data = a.floats(16);
  std::uint64_t cookie = 0, started = 0, finished = 0, busy = 0;
  while (finished < 500) {
    lk_status s = LK_OK;
    while (started < 500 && (s = lk_all_reduce(group, data, data, 16, LK_F32, LK_SUM, &cookie)) == LK_OK) ++started;
    if (s == LK_BUSY) ++busy;
    lk_result results[3];
    std::size_t taken = 0;
    BOOST_REQUIRE_EQUAL(lk_poll(a.session, results, 3, &taken), LK_OK);
    for (std::size_t i = 0; i < taken; ++i) BOOST_REQUIRE_EQUAL(results[i].op_number, ++finished);
    if (taken == 0 && started > finished) {
      BOOST_REQUIRE_EQUAL(lk_wait(a.session, finished + 1, kLong, nullptr), LK_OK);  // cookies count from 1 too
      ++finished;
    }
  }
  BOOST_TEST(busy > 0U);
}

BOOST_AUTO_TEST_CASE(a_group_waits_for_all_its_ranks) {
  const Place place;
  const FakeAgent agent(place.socket, {});
  Attached a(place.socket);
  lk_group* first = a.join("job", 0, 2);
  float* data = a.floats(1);
  std::uint64_t cookie = 0;
  BOOST_TEST(lk_all_reduce(first, data, data, 1, LK_F32, LK_SUM, &cookie) == LK_BUSY);
  BOOST_TEST(error_has("not all of its 2 ranks have joined"));
  BOOST_TEST(lk_group_wait(first, 1000) == LK_TIMEOUT);
  a.join("job", 1, 2);
  BOOST_TEST(lk_group_wait(first, kLong) == LK_OK);
  BOOST_REQUIRE_EQUAL(lk_all_reduce(first, data, data, 1, LK_F32, LK_SUM, &cookie), LK_OK);
  BOOST_TEST(lk_wait(a.session, cookie, 1000, nullptr) == LK_TIMEOUT);  // the other rank does not call
  BOOST_TEST(lk_wait(a.session, cookie, 0, nullptr) == LK_TIMEOUT);
}

BOOST_AUTO_TEST_CASE(an_op_that_fails_says_why) {
  OneOp one({.op_status = lk::Status::kNodeLost});
  lk_result result{};
  BOOST_TEST(lk_wait(one.client.session, one.cookie, kLong, &result) == LK_NODE_LOST);
  BOOST_TEST(result.lost_node == 5U);
  BOOST_TEST(result.progress_done == 2U);
  BOOST_TEST(error_has("op 1: node_lost: node 5 with rank 1, 2 of 9 chunks complete"));
}

BOOST_AUTO_TEST_CASE(an_agent_that_dies_ends_every_wait) {
  OneOp one({.die_on_op = true});
  BOOST_TEST(lk_wait(one.client.session, one.cookie, kLong, nullptr) == LK_DISCONNECTED);
  BOOST_TEST(error_has("the agent has gone"));
  BOOST_TEST(lk_wait(one.client.session, one.cookie, kLong, nullptr) == LK_DISCONNECTED);
  std::size_t taken = 9;
  lk_result result{};
  BOOST_TEST(lk_poll(one.client.session, &result, 1, &taken) == LK_DISCONNECTED);
  BOOST_TEST(taken == 0U);
  lk_group* group = nullptr;
  BOOST_TEST(lk_group_join(one.client.session, "h", 0, 1, LK_ANY_GPU, &group) == LK_DISCONNECTED);
}

BOOST_AUTO_TEST_CASE(polling_alone_finds_out_that_the_agent_died) {
  OneOp one({.die_on_op = true});
  lk_status s = LK_OK;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
  while (s == LK_OK && std::chrono::steady_clock::now() < give_up) {
    std::size_t taken = 0;
    lk_result result{};
    s = lk_poll(one.client.session, &result, 1, &taken);
    std::this_thread::yield();
  }
  BOOST_TEST(s == LK_DISCONNECTED);
}

BOOST_AUTO_TEST_CASE(what_was_complete_before_the_agent_died_is_delivered) {
  OneOp one({.die_after_completing = true});
  BOOST_TEST(lk_wait(one.client.session, one.cookie, kLong, nullptr) == LK_OK);
}

BOOST_AUTO_TEST_CASE(an_agent_that_lies_is_left) {
  OneOp unknown({.complete_unknown = true});
  BOOST_TEST(lk_wait(unknown.client.session, unknown.cookie, kLong, nullptr) == LK_DISCONNECTED);
  BOOST_TEST(error_has("not in flight"));
  OneOp damaged({.lie_about_completions = true});
  BOOST_TEST(lk_wait(damaged.client.session, damaged.cookie, kLong, nullptr) == LK_DISCONNECTED);
  BOOST_TEST(error_has("ring is damaged"));

  const Place place;
  const FakeAgent agent(place.socket, {.garbage_after_attach = true});
  Attached a(place.socket);
  lk_group* group = nullptr;
  BOOST_TEST(lk_group_join(a.session, "g", 0, 1, LK_ANY_GPU, &group) == LK_DISCONNECTED);
  BOOST_TEST(error_has("no place here"));
}

BOOST_AUTO_TEST_CASE(an_attach_that_fails_says_why) {
  const Place place;
  BOOST_TEST(attach_status(place.socket) == LK_SYSTEM);
  BOOST_TEST(error_has(place.socket + ".session: no agent listens there: No such file"));
  BOOST_TEST(attach_status(std::string(200, 'x')) == LK_INVALID);
  BOOST_TEST(error_has("200 bytes, expected 1 to 99"));
  BOOST_TEST(attach_status("") == LK_INVALID);
  const struct {
    Misdeed misdeed;
    lk_status status;
    const char* line;
  } rows[] = {
      {{.refuse_attach = "no memory left for 67108864 bytes"}, LK_BUSY, "no memory left for 67108864 bytes"},
      {{.mute = true}, LK_TIMEOUT, "no answer in time"},
      {{.unsealed_memory = true}, LK_SYSTEM, "it can shrink"},
      {{.damaged_header = true}, LK_SYSTEM, "contradict"},
      {{.two_descriptors = true}, LK_DISCONNECTED, "2 descriptors, expected 3"},
  };
  int n = 0;
  for (const auto& row : rows) {
    const std::string socket = place.socket + std::to_string(n++);
    const FakeAgent agent(socket, row.misdeed);
    BOOST_TEST(attach_status(socket, row.misdeed.mute ? 1'000'000 : 0) == row.status);
    BOOST_TEST(error_has(row.line));
  }
}

BOOST_AUTO_TEST_CASE(a_refused_join_or_group_says_why) {
  const Place place;
  const FakeAgent picky(place.socket, {.refuse_join = "name in use by uid 1000 for 3 s"});
  Attached a(place.socket);
  lk_group* group = nullptr;
  BOOST_TEST(lk_group_join(a.session, "g", 0, 1, LK_ANY_GPU, &group) == LK_INVALID);
  BOOST_TEST(group == nullptr);
  BOOST_TEST(error_has("group g: name in use by uid 1000 for 3 s"));
  BOOST_TEST(lk_group_join(a.session, "g", 2, 2, LK_ANY_GPU, &group) == LK_INVALID);
  BOOST_TEST(lk_group_join(a.session, "", 0, 2, LK_ANY_GPU, &group) == LK_INVALID);
  BOOST_TEST(lk_group_join(a.session, std::string(64, 'g').c_str(), 0, 2, LK_ANY_GPU, &group) == LK_INVALID);

  const std::string other = place.socket + "2";
  const FakeAgent late(other, {.refuse_group = "ranks disagree on the group's size"});
  Attached b(other);
  BOOST_TEST(lk_group_wait(b.join("g", 0, 1), kLong) == LK_MISMATCH);
  BOOST_TEST(error_has("ranks disagree"));
}

BOOST_AUTO_TEST_CASE(wrong_arguments_start_nothing) {
  const Place place;
  const FakeAgent agent(place.socket, {});
  Attached a(place.socket);
  lk_group* g = a.join("g", 0, 1);
  BOOST_REQUIRE_EQUAL(lk_group_wait(g, kLong), LK_OK);
  float* d = a.floats(64);
  float outside[4] = {};
  std::uint64_t c = 0;
  const auto f32 = LK_F32;
  BOOST_TEST(lk_all_reduce(nullptr, d, d, 4, f32, LK_SUM, &c) == LK_INVALID);
  BOOST_TEST(lk_all_reduce(g, nullptr, d, 4, f32, LK_SUM, &c) == LK_INVALID);
  BOOST_TEST(lk_all_reduce(g, d, nullptr, 4, f32, LK_SUM, &c) == LK_INVALID);
  BOOST_TEST(lk_all_reduce(g, d, d, 4, f32, LK_SUM, nullptr) == LK_INVALID);
  BOOST_TEST(lk_all_reduce(g, outside, d, 4, f32, LK_SUM, &c) == LK_INVALID);
  BOOST_TEST(error_has("not all in memory from lk_alloc"));
  BOOST_TEST(lk_all_reduce(g, d, d, SIZE_MAX, f32, LK_SUM, &c) == LK_INVALID);
  BOOST_TEST(lk_all_reduce(g, d, d, (1 << 18) + 1, f32, LK_SUM, &c) == LK_INVALID);
  BOOST_TEST(lk_all_reduce(g, d, d + 1, 4, f32, LK_SUM, &c) == LK_INVALID);  // they overlap
  BOOST_TEST(lk_all_reduce(g, d, d, 4, static_cast<lk_dtype>(7), LK_SUM, &c) == LK_UNSUPPORTED);
  BOOST_TEST(lk_all_reduce(g, d, d, 4, static_cast<lk_dtype>(256), LK_SUM, &c) == LK_UNSUPPORTED);
  BOOST_TEST(lk_all_reduce(g, d, d, 4, f32, static_cast<lk_redop>(2), &c) == LK_UNSUPPORTED);
  BOOST_TEST(lk_broadcast(g, d, d, 4, f32, 1, &c) == LK_INVALID);  // there is no rank 1
  BOOST_TEST(lk_broadcast(g, nullptr, d, 4, f32, 0, &c) == LK_INVALID);
  BOOST_TEST(lk_wait(a.session, 1, 0, nullptr) == LK_INVALID);
  BOOST_TEST(lk_free(a.session, outside) == LK_INVALID);
  BOOST_TEST(lk_free(a.session, d + 1) == LK_INVALID);
  BOOST_TEST(lk_free(a.session, d) == LK_OK);
  BOOST_TEST(lk_free(a.session, d) == LK_INVALID);
  void* memory = d;
  BOOST_TEST(lk_alloc(a.session, SIZE_MAX, &memory) == LK_BUSY);
  BOOST_TEST(memory == nullptr);
  d = a.floats(1);
  BOOST_REQUIRE_EQUAL(lk_all_reduce(g, d, d, 1, f32, LK_SUM, &c), LK_OK);
  lk_result r{};
  BOOST_TEST(lk_wait(a.session, c, kLong, &r) == LK_OK);
  BOOST_TEST(r.op_number == 1U);  // nothing above took a number
}

BOOST_AUTO_TEST_CASE(status_names) {
  BOOST_TEST(lk_status_name(LK_OK) == std::string("ok"));
  BOOST_TEST(lk_status_name(LK_NODE_LOST) == std::string("node_lost"));
  BOOST_TEST(lk_status_name(LK_DISCONNECTED) == std::string("disconnected"));
  BOOST_TEST(lk_status_name(static_cast<lk_status>(55)) == std::string("unknown"));
}

BOOST_AUTO_TEST_CASE(memory_parts_never_overlap_and_all_come_back) {
  constexpr lk::Bytes kSize = 64 * 200;
  lk::client::DataArea area(kSize + 13);
  lk::Random random(31);
  std::vector<int> owner(200, 0);
  std::vector<std::pair<lk::Bytes, lk::Bytes>> held;
  for (int k = 1; k < 5000; ++k) {
    const lk::Bytes bytes = random.below(64 * 12);
    const lk::Bytes units = bytes == 0 ? 1 : (bytes + 63) / 64;
    if (random.chance(0.55)) {
      const auto offset = area.take(bytes);
      if (!offset) continue;
      BOOST_REQUIRE(*offset % 64 == 0 && *offset + units * 64 <= kSize);
      for (lk::Bytes u = 0; u < units; ++u) BOOST_REQUIRE_EQUAL(std::exchange(owner[*offset / 64 + u], k), 0);
      held.emplace_back(*offset, units);
    } else if (!held.empty()) {
      const std::size_t at = random.below(held.size());
      BOOST_REQUIRE(area.give_back(held[at].first));
      for (lk::Bytes u = 0; u < held[at].second; ++u) owner[held[at].first / 64 + u] = 0;
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  for (const auto& [offset, units] : held) BOOST_REQUIRE(area.give_back(offset));
  BOOST_TEST((area.take(kSize) == lk::Bytes{0}));  // one piece again
  BOOST_TEST(!area.take(1).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

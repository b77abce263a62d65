// Clients of a lab in this process, on threads of its own: what becomes of a group when a client or a node goes.
// Numbers are small whole ones, so that any order of sums gives the same and the test can add them up itself.
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/cli/control_client.hpp"
#include "agent/client/lanekeeper.h"
#include "agent/control_loop.hpp"
#include "agent/launch.hpp"

using namespace lk;

namespace {

constexpr std::int64_t kLong = 60 * LK_SECOND;
constexpr std::size_t kCount = 30'000;

class RunningLab {
 public:
  explicit RunningLab(unsigned nodes) {
    char name[] = "/tmp/lk-lab-XXXXXX";
    BOOST_REQUIRE(::mkdtemp(name) != nullptr);
    folder_ = name;
    config_.set("agent.socket", socket(), "test");
    const ControlOptions control = control_of(config_);
    const ClusterSpec whole = build_profile("mesh-4gpu", nodes);
    const double scale = fitting_scale(whole);
    cluster_ = scaled(whole, scale);
    const CorePlan cores = plan_cores(read_machine_cores(), nodes, 0, {});
    lab_ = std::make_unique<Lab>(cluster_, LabOptions{config_.values(), control, cores, scale, 42});
    loop_ = std::make_unique<ControlLoop>(*lab_, config_);
    lab_->start({[this](unsigned lcore, void (*call)(void*) noexcept, void* argument) {
                   threads_.emplace(lcore, std::thread([call, argument] { call(argument); }));
                 },
                 [this](unsigned lcore) { threads_.at(lcore).join(); }});
    control_ = std::thread([this] { loop_->run(); });
  }
  ~RunningLab() {
    loop_->stop();
    control_.join();
    loop_.reset();
    lab_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string socket() const { return folder_ + "/agent.sock"; }
  // For the message of a test that fails.
  std::string account() const {
    ControlClient client(socket());
    return client.ask("show groups", nlohmann::json::object()).dump(1) +
           client.ask("show events", {{"last", "60"}}).dump(1);
  }
  void inject(const std::vector<std::string>& words) { ControlClient(socket()).ask("inject", {{"words", words}}); }

 private:
  std::string folder_;
  Config config_;
  ClusterSpec cluster_;
  std::unique_ptr<Lab> lab_;
  std::unique_ptr<ControlLoop> loop_;
  std::map<unsigned, std::thread> threads_;
  std::thread control_;
};

// One client process: some ranks of a group, each on the GPU of its number.
class Client {
 public:
  Client(const RunningLab& lab, const char* name) : lab_(lab) {
    lk_options options{};
    options.name = name;
    BOOST_REQUIRE_MESSAGE(lk_attach(lab.socket().c_str(), &options, &session_) == LK_OK, std::string(lk_last_error()));
  }
  ~Client() { lk_detach(session_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  lk_status join(const char* group, std::uint16_t rank, std::uint16_t ranks) {
    lk_group* joined = nullptr;
    const lk_status s = lk_group_join(session_, group, rank, ranks, rank, &joined);
    if (s != LK_OK) return s;
    Member& m = members_[rank];
    m.group = joined;
    if (m.data == nullptr) {
      void* memory = nullptr;
      BOOST_REQUIRE_EQUAL(lk_alloc(session_, kCount * sizeof(float), &memory), LK_OK);
      m.data = static_cast<float*>(memory);
    }
    return LK_OK;
  }
  void join_all(const char* group, std::uint16_t first, std::uint16_t count, std::uint16_t ranks) {
    for (std::uint16_t r = first; r < first + count; ++r) {
      BOOST_REQUIRE_MESSAGE(join(group, r, ranks) == LK_OK, std::string(lk_last_error()));
    }
  }
  void wait_ready() {
    for (auto& [rank, m] : members_) {
      const lk_status s = lk_group_wait(m.group, kLong);
      BOOST_REQUIRE_MESSAGE(s == LK_OK,
                            "rank " << rank << ": " << lk_status_name(s) << ": " << lk_last_error() << lab_.account());
    }
  }
  // Each rank gives its number plus one.
  void enter() {
    for (auto& [rank, m] : members_) {
      std::fill_n(m.data, kCount, static_cast<float>(rank + 1));
      BOOST_REQUIRE_MESSAGE(lk_all_reduce(m.group, m.data, m.data, kCount, LK_F32, LK_SUM, &m.cookie) == LK_OK,
                            std::string(lk_last_error()));
    }
  }
  // The statuses of the op that was entered, and how many elements of good ones are not `sum`.
  std::vector<lk_status> finish(float sum) {
    std::vector<lk_status> statuses;
    for (auto& [rank, m] : members_) {
      statuses.push_back(lk_wait(session_, m.cookie, kLong, nullptr));
      if (statuses.back() != LK_OK) continue;
      for (std::size_t i = 0; i < kCount; ++i) wrong_ += m.data[i] == sum ? 0U : 1U;
    }
    return statuses;
  }
  std::size_t wrong() const { return wrong_; }

 private:
  struct Member {
    lk_group* group = nullptr;
    float* data = nullptr;
    std::uint64_t cookie = 0;
  };
  const RunningLab& lab_;
  lk_session* session_ = nullptr;
  std::map<std::uint16_t, Member> members_;
  std::size_t wrong_ = 0;
};

bool all_are(const std::vector<lk_status>& statuses, lk_status wanted) {
  return std::all_of(statuses.begin(), statuses.end(), [wanted](lk_status s) { return s == wanted; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(session_groups_test)

BOOST_AUTO_TEST_CASE(clients_of_several_processes_reduce_together) {
  const RunningLab lab(2);
  Client a(lab, "a"), b(lab, "b"), late(lab, "late");
  a.join_all("job", 0, 3, 8);  // a rank of node 0 is at home with the client of node 1 as well
  b.join_all("job", 3, 5, 8);
  a.wait_ready();
  b.wait_ready();
  for (int op = 0; op < 20; ++op) {
    a.enter();
    b.enter();
    BOOST_TEST(all_are(a.finish(36), LK_OK));
    BOOST_TEST(all_are(b.finish(36), LK_OK));
  }
  BOOST_TEST(a.wrong() + b.wrong() == 0U);
  BOOST_TEST((late.join("job", 0, 8) == LK_INVALID));
  BOOST_TEST(std::string(lk_last_error()).find("the name is in use by a for") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_client_that_leaves_ends_what_comes_after_it) {
  const RunningLab lab(2);
  Client stays(lab, "stays");
  {
    Client leaves(lab, "leaves");
    stays.join_all("job", 0, 4, 8);
    leaves.join_all("job", 4, 4, 8);
    stays.wait_ready();
    leaves.wait_ready();
    stays.enter();
    leaves.enter();
    BOOST_TEST(all_are(leaves.finish(36), LK_OK));
  }
  BOOST_TEST(all_are(stays.finish(36), LK_OK));
  stays.enter();
  BOOST_TEST(all_are(stays.finish(0), LK_CANCELLED));
  BOOST_TEST(stays.wrong() == 0U);
  // The name is free again, and so are the GPUs.
  Client next(lab, "next");
  next.join_all("job", 0, 8, 8);
  next.wait_ready();
  next.enter();
  BOOST_TEST(all_are(next.finish(36), LK_OK));
}

BOOST_AUTO_TEST_CASE(a_client_that_leaves_before_all_have_joined_makes_room) {
  const RunningLab lab(2);
  Client waits(lab, "waits");
  waits.join_all("job", 0, 4, 8);
  {
    Client leaves(lab, "leaves");
    leaves.join_all("job", 4, 2, 8);
  }
  Client comes(lab, "comes");
  const MonotonicClock clock;
  for (std::uint16_t r = 4; r < 8; ++r) {
    lk_status s = comes.join("job", r, 8);
    while (s != LK_OK && clock.now() < kLong) s = comes.join("job", r, 8);
    BOOST_REQUIRE_MESSAGE(s == LK_OK, std::string(lk_last_error()));
  }
  waits.wait_ready();
  comes.wait_ready();
  waits.enter();
  comes.enter();
  BOOST_TEST(all_are(waits.finish(36), LK_OK));
  BOOST_TEST(all_are(comes.finish(36), LK_OK));
}

BOOST_AUTO_TEST_CASE(after_a_lost_node_the_others_join_anew_and_go_on) {
  RunningLab lab(3);
  Client n0(lab, "n0"), n1(lab, "n1"), n2(lab, "n2");
  Client* clients[] = {&n0, &n1, &n2};
  for (std::uint16_t c = 0; c < 3; ++c) clients[c]->join_all("job", static_cast<std::uint16_t>(4 * c), 4, 12);
  for (Client* c : clients) c->wait_ready();
  bool good = true;
  for (int op = 0; good; ++op) {
    if (op == 2) lab.inject({"cut", "n2"});
    BOOST_REQUIRE(op < 1000);
    for (Client* c : clients) c->enter();
    for (Client* c : clients) good = all_are(c->finish(78), LK_OK) && good;
  }
  for (std::uint16_t r = 0; r < 8; ++r) {
    Client& c = r < 4 ? n0 : n1;
    const MonotonicClock clock;
    lk_status s = c.join("job", r, 12);
    while (s != LK_OK && clock.now() < kLong) s = c.join("job", r, 12);
    BOOST_REQUIRE_MESSAGE(s == LK_OK, std::string(lk_last_error()));
  }
  for (int op = 0; op < 5; ++op) {
    n0.wait_ready();
    n1.wait_ready();
    n0.enter();
    n1.enter();
    BOOST_TEST(all_are(n0.finish(36), LK_OK));
    BOOST_TEST(all_are(n1.finish(36), LK_OK));
  }
  BOOST_TEST(n0.wrong() + n1.wrong() + n2.wrong() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

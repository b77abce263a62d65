// The reactor against the machine's own threads and clock. Every wait is for an event with a limit that only a failure
// reaches.
#include "dataplane/loop/reactor.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <string>
#include <thread>

#include "dataplane/base/ring.hpp"

using namespace lk;

namespace {

constexpr Nanos kLimit = 60 * kSecond;

void pin_to_first_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  BOOST_REQUIRE_EQUAL(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    BOOST_REQUIRE_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
    return;
  }
}

// Sends back what it gets, one higher; wakes the other side.
class Echo final : public Poller {
 public:
  Echo(Ring<std::uint64_t>& in, Ring<std::uint64_t>& out) : in_(in), out_(out) {}
  const char* name() const noexcept override { return "echo"; }
  Nanos next_time(Nanos) const noexcept override { return kNever; }
  unsigned poll(Nanos) noexcept override {
    std::uint64_t value = 0;
    if (!in_.pop(value)) return 0;
    last_.store(value, std::memory_order_release);
    if (!out_.push(value + 1)) full_ = true;
    if (peer != nullptr) peer->wake();
    return 1;
  }
  std::uint64_t last() const { return last_.load(std::memory_order_acquire); }
  bool full() const { return full_; }
  Reactor* peer = nullptr;

 private:
  Ring<std::uint64_t>& in_;
  Ring<std::uint64_t>& out_;
  std::atomic<std::uint64_t> last_{0};
  bool full_ = false;
};

// Runs `call` once, then says it has nothing to do.
template <typename Call>
class Once final : public Poller {
 public:
  Once(const char* name, Call call) : name_(name), call_(call) {}
  const char* name() const noexcept override { return name_; }
  Nanos next_time(Nanos) const noexcept override { return kNever; }
  unsigned poll(Nanos) noexcept override {
    if (done_) return 0;
    done_ = true;
    call_();
    return 1;
  }

 private:
  const char* name_;
  Call call_;
  bool done_ = false;
};

// Has work at given times only.
class Timed final : public Poller {
 public:
  explicit Timed(Nanos first) : at_(first) {}
  const char* name() const noexcept override { return "timed"; }
  Nanos next_time(Nanos) const noexcept override { return left_ == 0 ? kNever : at_; }
  unsigned poll(Nanos now) noexcept override {
    if (left_ == 0 || now < at_) return 0;
    latest_ = std::max(latest_, now - at_);
    at_ = now + 5 * kMilli;
    if (--left_ == 0 && stop != nullptr) stop->stop();
    return 1;
  }
  Reactor* stop = nullptr;
  Nanos latest() const { return latest_; }

 private:
  Nanos at_, latest_ = 0;
  int left_ = 10;
};

struct Sleepy final : Sleeper {
  bool arm() noexcept override { return ++armed, !has_work; }
  void disarm() noexcept override { ++disarmed; }
  int armed = 0, disarmed = 0;
  bool has_work = false;
};

// Two reactors on one core hand a number to and fro; how long `rounds` take.
Nanos ping_pong(const ReactorOptions& options, std::uint64_t rounds) {
  const MonotonicClock clock;
  Ring<std::uint64_t> there(8), back(8);
  Reactor a(clock, options), b(clock, options);
  Echo echo_a(back, there), echo_b(there, back);
  echo_a.peer = &b;
  echo_b.peer = &a;
  a.add(echo_a);
  b.add(echo_b);
  BOOST_REQUIRE(back.push(0));
  const Nanos begin = clock.now();
  std::thread first([&] { pin_to_first_core(), a.run(); });
  std::thread second([&] { pin_to_first_core(), b.run(); });
  Nanos end = begin;
  while (echo_a.last() < rounds && end - begin < kLimit) {
    std::this_thread::yield();
    end = clock.now();
  }
  a.stop();
  b.stop();
  first.join();
  second.join();
  BOOST_TEST(echo_a.last() >= rounds);
  BOOST_TEST(!echo_a.full());
  return end - begin;
}

// The same between two threads without a loop: each gives the core away until it is its turn.
Nanos bare_ping_pong(std::uint64_t rounds) {
  const MonotonicClock clock;
  std::atomic<std::uint64_t> value{0};
  const auto side = [&](std::uint64_t parity) {
    pin_to_first_core();
    for (std::uint64_t v = value; v < rounds; v = value) {
      if (v % 2 == parity) {
        value = v + 1;
      } else {
        ::sched_yield();
      }
    }
  };
  const Nanos begin = clock.now();
  std::thread first(side, 0), second(side, 1);
  first.join();
  second.join();
  return clock.now() - begin;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reactor_test)

BOOST_AUTO_TEST_CASE(turn_polls_each_poller_in_order_and_counts) {
  const MonotonicClock clock;
  Reactor reactor(clock, {});
  std::string order;
  auto first = Once("first", [&] { order += "1"; });
  auto second = Once("second", [&] { order += "2"; });
  reactor.add(first);
  reactor.add(second);
  BOOST_TEST(reactor.turn() == 2U);
  BOOST_TEST(reactor.turn() == 0U);
  BOOST_TEST(order == "12");
  const ReactorReport report = reactor.report();
  BOOST_TEST(report.turns == 2U);
  BOOST_REQUIRE(report.pollers.size() == 2U);
  BOOST_TEST(report.pollers[1].name == "second");
  BOOST_TEST(report.pollers[1].calls == 2U);
  BOOST_TEST(report.pollers[1].work == 1U);
  BOOST_TEST(report.pollers[1].busy_cycles > 0U);
  BOOST_TEST(report.pollers[1].idle_cycles > 0U);
}

BOOST_AUTO_TEST_CASE(a_long_turn_is_kept_with_its_neighbours) {
  const MonotonicClock clock;
  Reactor reactor(clock, {});
  const auto burn = [&](Nanos span) {
    const Nanos begin = clock.now();
    while (clock.now() - begin < span) {
    }
  };
  auto before = Once("before", [&] { burn(50 * kMicro); });
  auto slow = Once("slow", [&] { burn(2 * kLongTurn); });
  auto after = Once("after", [&] { burn(100 * kMicro); });
  reactor.add(before);
  reactor.add(slow);
  reactor.add(after);
  reactor.turn();
  const ReactorReport report = reactor.report();
  // A machine that takes the core away for long makes more long turns; ours is the one named slow.
  const auto row = std::find_if(report.long_turns.begin(), report.long_turns.end(),
                                [](const LongTurnReport& r) { return r.poller == "slow"; });
  BOOST_REQUIRE((row != report.long_turns.end()));
  BOOST_TEST(row->turn_ns >= 2 * kLongTurn * 9 / 10);
  BOOST_TEST(row->before_ns >= 45 * kMicro);
  BOOST_TEST(row->after_ns >= 90 * kMicro);
  BOOST_TEST(report.pollers[1].long_turns == 1U);
  BOOST_TEST(report.pollers[1].longest_turn_ns >= 2 * kLongTurn * 9 / 10);
}

BOOST_AUTO_TEST_CASE(wake_writes_only_to_a_sleeper) {
  const MonotonicClock clock;
  Reactor reactor(clock, {});
  for (int i = 0; i < 1000; ++i) reactor.wake();
  BOOST_TEST(reactor.report().wakes_written == 0U);
}

BOOST_AUTO_TEST_CASE(no_wake_up_is_lost) {
  for (const IdleMode mode : {IdleMode::kInterrupt, IdleMode::kAdaptive}) {
    const MonotonicClock clock;
    Ring<std::uint64_t> in(8), out(8);
    // Straight to sleep in both modes, so that each round races with it.
    Reactor reactor(clock, {.mode = mode, .pause_ns = 0, .yield_ns = 0});
    Echo echo(in, out);
    reactor.add(echo);
    std::thread thread([&] { reactor.run(); });
    const Nanos begin = clock.now();
    std::uint64_t rounds = 0;
    for (; rounds < 20000; ++rounds) {
      BOOST_REQUIRE(in.push(rounds));
      reactor.wake();
      std::uint64_t answer = 0;
      while (!out.pop(answer) && clock.now() - begin < kLimit) std::this_thread::yield();
      if (answer != rounds + 1) break;
    }
    BOOST_TEST(rounds == 20000U);
    reactor.stop();
    thread.join();
    const ReactorReport report = reactor.report();
    BOOST_TEST(report.sleeps > 0U);
    BOOST_TEST(report.wakes_written <= rounds + 1);
  }
}

// News that comes after the last look and before the arming: nobody writes the eventfd then.
BOOST_AUTO_TEST_CASE(looks_once_more_after_arming) {
  const MonotonicClock clock;
  Ring<std::uint64_t> in(8), out(8);
  Reactor reactor(clock, {.mode = IdleMode::kInterrupt});
  struct Late final : Poller {
    const char* name() const noexcept override { return "late"; }
    unsigned poll(Nanos) noexcept override { return 0; }
    Nanos next_time(Nanos) const noexcept override {  // asked for between that look and the arming
      if (!*pushed) {
        *pushed = true;
        ring->push(41);
        reactor->wake();
      }
      return kNever;
    }
    Ring<std::uint64_t>* ring = nullptr;
    Reactor* reactor = nullptr;
    bool* pushed = nullptr;
  } late;
  bool pushed = false;
  late.ring = &in;
  late.reactor = &reactor;
  late.pushed = &pushed;
  Echo echo(in, out);
  reactor.add(late);
  reactor.add(echo);
  std::thread thread([&] { reactor.run(); });
  std::uint64_t answer = 0;
  const Nanos begin = clock.now();
  while (!out.pop(answer) && clock.now() - begin < 10 * kSecond) std::this_thread::yield();
  reactor.stop();
  thread.join();
  BOOST_TEST(answer == 42U);
  BOOST_TEST(reactor.report().wakes_written <= 1U);  // the one of stop()
}

BOOST_AUTO_TEST_CASE(sleeps_until_the_earliest_time_and_not_longer) {
  for (const IdleMode mode : {IdleMode::kInterrupt, IdleMode::kAdaptive}) {
    const MonotonicClock clock;
    Reactor reactor(clock, {.mode = mode, .pause_ns = 0, .yield_ns = 0});
    Timed timed(clock.now() + 5 * kMilli);
    timed.stop = &reactor;
    reactor.add(timed);
    reactor.run();
    const ReactorReport report = reactor.report();
    BOOST_TEST(report.pollers[0].work == 10U);
    BOOST_TEST(report.sleeps >= 10U);
    BOOST_TEST(report.slept_ns >= 25 * kMilli);  // of the 50 ms that it had nothing to do
    BOOST_TEST(timed.latest() < kSecond);
  }
}

BOOST_AUTO_TEST_CASE(a_sleeper_with_work_keeps_the_reactor_awake) {
  const MonotonicClock clock;
  Reactor reactor(clock, {.mode = IdleMode::kInterrupt});
  Sleepy sleepy;
  sleepy.has_work = true;
  struct Stopper final : Poller {
    const char* name() const noexcept override { return "stopper"; }
    Nanos next_time(Nanos) const noexcept override { return kNever; }
    unsigned poll(Nanos) noexcept override {
      if (++calls == 100) reactor->stop();
      return 0;
    }
    Reactor* reactor = nullptr;
    int calls = 0;
  } stopper;
  stopper.reactor = &reactor;
  reactor.add(stopper, &sleepy);
  reactor.run();
  BOOST_TEST(reactor.report().sleeps == 0U);
  BOOST_TEST(sleepy.armed == 100);
  BOOST_TEST(sleepy.disarmed == 100);
}

// Against two bare threads that yield to each other on the same core, a little while each in turn: the best of a few
// tries is what the machine can do when nobody else takes the core.
BOOST_AUTO_TEST_CASE(two_reactors_on_one_core_do_not_starve_each_other) {
  constexpr std::uint64_t kRounds = 2000;
  const ReactorOptions on_shared{.pause_ns = 0}, on_its_own{};
  Nanos bare = kNever, shared = kNever, own = kNever;
  for (int attempt = 0; attempt < 10; ++attempt) {
    bare = std::min(bare, bare_ping_pong(kRounds) / Nanos{kRounds});
    shared = std::min(shared, ping_pong(on_shared, kRounds) / Nanos{kRounds});
    own = std::min(own, ping_pong(on_its_own, kRounds) / Nanos{kRounds});
  }
  BOOST_TEST_MESSAGE("two reactors on one core: " << shared << " ns a number with the core known as shared, " << own
                                                  << " ns with the pause of a core of its own, " << bare
                                                  << " ns between bare threads");
  // As long is right; pure spinning takes a scheduler's slice for each hop, thousands of times as long.
  BOOST_TEST(shared < 30 * bare);
  BOOST_TEST(own < 30 * bare + 2 * on_its_own.pause_ns);  // each of the two rests before it gives the core away
}

BOOST_AUTO_TEST_SUITE_END()

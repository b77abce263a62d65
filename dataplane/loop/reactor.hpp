// Reactor: one pinned core's loop. It owns its pollers' turns: each is polled in the order in which it was added, for
// as long as there is work, and put to rest when there is none: pause, yield, then sleep until a wake-up or the
// earliest next_time() of its pollers.
//
// Threads: add() and watch() during set-up (watch() and unwatch() later too, from any thread); run() is the reactor's
// thread; wake(), stop() and report() are for any thread. Fails at construction only (SystemError: no descriptors).
// A wake-up is never lost: the reactor arms, polls once more, and only then sleeps; wake() and arming exchange the same
// word, so one of them comes first. wake() costs a system call only when the reactor sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/clock.hpp"
#include "dataplane/base/unique_fd.hpp"
#include "dataplane/base/units.hpp"
#include "dataplane/loop/poller.hpp"
#include "dataplane/loop/reactor_stats.hpp"

namespace lk {

enum class IdleMode : std::uint8_t { kPoll, kAdaptive, kInterrupt };

constexpr const char* name_of(IdleMode m) noexcept {
  constexpr const char* kNames[] = {"poll", "adaptive", "interrupt"};
  return kNames[static_cast<unsigned>(m)];
}

struct ReactorOptions {
  IdleMode mode = IdleMode::kAdaptive;
  Nanos pause_ns = 5 * kMicro;         // idle for so long: only pause between turns; 0 when the core is shared
  Nanos yield_ns = 50 * kMicro;        // then give the core away between turns; idle for longer: sleep
  Nanos sleep_least_ns = 30 * kMicro;  // do not sleep when a poller has work sooner than this
};

// A poller whose wake-up comes from outside of this process's threads (a client's ring) takes part in going to sleep.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // Ask for a wake-up of a descriptor given to watch(). False: there is work already.
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
};

class Reactor {
 public:
  Reactor(const MonotonicClock& clock, const ReactorOptions& options);

  void add(Poller& poller, Sleeper* sleeper = nullptr);  // before run(); the poller outlives the reactor's run
  void watch(int fd);                                    // an eventfd that ends a sleep; it need not be read
  void unwatch(int fd) noexcept;

  void run() noexcept;       // until stop()
  unsigned turn() noexcept;  // every poller once; the work they did
  void stop() noexcept;
  void wake() noexcept;

  const ReactorOptions& options() const noexcept { return options_; }
  ReactorReport report() const;

 private:
  struct Slot {
    Poller* poller;
    Sleeper* sleeper;
    std::unique_ptr<PollerTally> tally;
  };

  void idle() noexcept;
  void sleep(Nanos now) noexcept;
  bool arm() noexcept;
  void disarm() noexcept;
  void wait(Nanos span) noexcept;
  Nanos next_time(Nanos now) const noexcept;
  void account(std::size_t slot, unsigned work, std::uint64_t cycles, Nanos now) noexcept;

  const MonotonicClock& clock_;
  ReactorOptions options_;
  double cycles_per_ns_;
  std::uint64_t long_cycles_;
  UniqueFd epoll_, wake_fd_;
  std::vector<Slot> slots_;
  Nanos idle_since_ = 0;           // 0: the last turn did work
  std::uint64_t last_cycles_ = 0;  // of the turn before
  LongTurnTally* open_ = nullptr;  // a long turn whose neighbour after it is to come
  ReactorTally tally_;
  alignas(64) std::atomic<std::uint32_t> asleep_{0};  // 1: whoever has news must write wake_fd_
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> wakes_written_{0};
};

}  // namespace lk

// DPDK still marks its light sleep (rte_power_pause) as subject to change.
#define ALLOW_EXPERIMENTAL_API
#include "dataplane/loop/reactor.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <rte_cpuflags.h>
#include <rte_cycles.h>
#include <rte_pause.h>
#include <rte_power_intrinsics.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// How fast the time stamp counter runs, measured once against the clock that everything else uses.
double measured_cycles_per_ns() noexcept {
  static const double rate = [] {
    const MonotonicClock clock;
    const Nanos begin = clock.now();
    const std::uint64_t first = rte_rdtsc();
    Nanos end = begin;
    while (end - begin < kMilli) end = clock.now();
    return static_cast<double>(rte_rdtsc() - first) / static_cast<double>(end - begin);
  }();
  return rate;
}

// One short rest of the core: its own light sleep where it has one, else the pause instruction.
void pause_core() noexcept {
  static const bool can_rest = [] {
    rte_cpu_intrinsics found{};
    rte_cpu_get_intrinsics_support(&found);
    return found.power_pause != 0;
  }();
  if (can_rest) {
    rte_power_pause(rte_rdtsc() + 500);
  } else {
    rte_pause();
  }
}

}  // namespace

Reactor::Reactor(const MonotonicClock& clock, const ReactorOptions& options)
    : clock_(clock),
      options_(options),
      cycles_per_ns_(measured_cycles_per_ns()),
      long_cycles_(static_cast<std::uint64_t>(static_cast<double>(kLongTurn) * cycles_per_ns_)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_fd_) throw SystemError(fmt::format("reactor: no descriptor: {}", std::strerror(errno)));
  watch(wake_fd_.get());
}

void Reactor::add(Poller& poller, Sleeper* sleeper) {
  slots_.push_back({&poller, sleeper, std::make_unique<PollerTally>()});
}

void Reactor::watch(int fd) {
  // Edge triggered: what a stranger leaves unread in its eventfd cannot keep us awake.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw SystemError(fmt::format("epoll_ctl for descriptor {}: {}", fd, std::strerror(errno)));
  }
}

void Reactor::unwatch(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

// The whole loop. Work: straight on. None: rest a little, then more, then sleep (idle()).
void Reactor::run() noexcept {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // a sleep until a time ends at that time, not 50 us later
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (turn() != 0) {
      idle_since_ = 0;
    } else {
      idle();
    }
  }
}

unsigned Reactor::turn() noexcept {
  unsigned total = 0;
  std::uint64_t begin = rte_rdtsc();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Nanos now = clock_.now();
    const unsigned work = slots_[i].poller->poll(now);
    const std::uint64_t end = rte_rdtsc();
    account(i, work, end - begin, now);
    begin = end;
    total += work;
  }
  tally_.turns.add(1);
  return total;
}

void Reactor::idle() noexcept {
  const Nanos now = clock_.now();
  if (idle_since_ == 0) idle_since_ = now;
  const Nanos rested = now - idle_since_;
  if (options_.mode == IdleMode::kPoll || (options_.mode == IdleMode::kAdaptive && rested < options_.pause_ns)) {
    pause_core();
  } else if (options_.mode == IdleMode::kAdaptive && rested < options_.yield_ns) {
    tally_.yields.add(1);
    ::sched_yield();
  } else {
    sleep(now);
  }
}

void Reactor::sleep(Nanos now) noexcept {
  const Nanos least = options_.mode == IdleMode::kInterrupt ? 1 : options_.sleep_least_ns;
  if (next_time(now) - now < least) {  // too soon for a sleep to end in time
    tally_.yields.add(1);
    ::sched_yield();
    return;
  }
  if (arm()) {
    // Looked once more: news that came before we armed is found here, news after it writes the eventfd.
    if (turn() == 0) {
      const Nanos then = clock_.now();
      const Nanos next = next_time(then);
      if (next > then) wait(next == kNever ? kNever : next - then);
    } else {
      idle_since_ = 0;
    }
  }
  disarm();
}

bool Reactor::arm() noexcept {
  asleep_.exchange(1, std::memory_order_acq_rel);
  bool quiet = !stopping_.load(std::memory_order_acquire);
  for (Slot& s : slots_) {
    if (s.sleeper != nullptr && !s.sleeper->arm()) quiet = false;
  }
  return quiet;
}

void Reactor::disarm() noexcept {
  asleep_.store(0, std::memory_order_relaxed);
  for (Slot& s : slots_) {
    if (s.sleeper != nullptr) s.sleeper->disarm();
  }
}

void Reactor::wait(Nanos span) noexcept {
  pollfd waited{epoll_.get(), POLLIN, 0};
  timespec limit{};
  if (span != kNever) limit = {span / kSecond, span % kSecond};
  const std::uint64_t begin = rte_rdtsc();
  // ppoll, not epoll_wait: its limit has nanoseconds on every kernel.
  if (::ppoll(&waited, 1, span == kNever ? nullptr : &limit, nullptr) > 0) {
    epoll_event events[16];
    ::epoll_wait(epoll_.get(), events, 16, 0);  // takes the edges
  }
  tally_.sleeps.add(1);
  tally_.slept_cycles.add(rte_rdtsc() - begin);
}

Nanos Reactor::next_time(Nanos now) const noexcept {
  Nanos next = kNever;
  for (const Slot& s : slots_) next = std::min(next, s.poller->next_time(now));
  return next;
}

void Reactor::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake();
}

void Reactor::wake() noexcept {
  if (asleep_.exchange(0, std::memory_order_acq_rel) == 0) return;
  wakes_written_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full: it is readable then, which is all we want.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
}

void Reactor::account(std::size_t slot, unsigned work, std::uint64_t cycles, Nanos now) noexcept {
  PollerTally& t = *slots_[slot].tally;
  t.calls.add(1);
  t.work.add(work);
  (work != 0 ? t.busy_cycles : t.idle_cycles).add(cycles);
  t.longest_cycles.raise_to(cycles);
  if (open_ != nullptr) {
    open_->after_cycles.set(cycles);
    open_->sequence.fetch_add(1, std::memory_order_release);
    open_ = nullptr;
  }
  if (cycles > long_cycles_) {
    t.long_turns.add(1);
    open_ = &tally_.long_turns[tally_.long_turn_count.get() % kLongTurnsKept];
    open_->sequence.fetch_add(1, std::memory_order_acq_rel);
    open_->at_ns.set(static_cast<std::uint64_t>(now));
    open_->poller.set(slot);
    open_->turn_cycles.set(cycles);
    open_->before_cycles.set(last_cycles_);
    tally_.long_turn_count.add(1);
  }
  last_cycles_ = cycles;
}

ReactorReport Reactor::report() const {
  const auto span = [this](std::uint64_t cycles) {
    return static_cast<Nanos>(static_cast<double>(cycles) / cycles_per_ns_);
  };
  ReactorReport out;
  out.turns = tally_.turns.get();
  out.yields = tally_.yields.get();
  out.sleeps = tally_.sleeps.get();
  out.wakes_written = wakes_written_.load(std::memory_order_relaxed);
  out.slept_ns = span(tally_.slept_cycles.get());
  for (const Slot& s : slots_) {
    const PollerTally& t = *s.tally;
    out.pollers.push_back({s.poller->name(), t.calls.get(), t.work.get(), t.busy_cycles.get(), t.idle_cycles.get(),
                           t.long_turns.get(), span(t.longest_cycles.get())});
  }
  for (const LongTurnTally& l : tally_.long_turns) {
    const std::uint64_t before = l.sequence.load(std::memory_order_acquire);
    const LongTurnReport row{static_cast<Nanos>(l.at_ns.read()), "", span(l.turn_cycles.read()),
                             span(l.before_cycles.read()), span(l.after_cycles.read())};
    const std::uint64_t poller = l.poller.read();
    if (before == 0 || before % 2 != 0 || l.sequence.load(std::memory_order_acquire) != before) continue;
    out.long_turns.push_back(row);
    out.long_turns.back().poller = slots_[poller].poller->name();
  }
  std::sort(out.long_turns.begin(), out.long_turns.end(),
            [](const LongTurnReport& a, const LongTurnReport& b) { return a.at_ns < b.at_ns; });
  return out;
}

}  // namespace lk

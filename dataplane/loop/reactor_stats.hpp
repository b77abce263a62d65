// What a reactor counts about itself and its pollers. One writer (the reactor's thread), read by any other without a
// lock: each number is a relaxed atomic, right by itself and at most a turn old against its neighbours.
// A turn is one call of a poller's poll(). Cycles are those of the time stamp counter; names say the unit.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/units.hpp"

namespace lk {

inline constexpr Nanos kLongTurn = 250 * kMicro;
inline constexpr std::size_t kLongTurnsKept = 16;

// A number that one thread writes and others read.
class Tally {
 public:
  void add(std::uint64_t n) noexcept { value_.store(get() + n, std::memory_order_relaxed); }
  void raise_to(std::uint64_t n) noexcept {
    if (n > get()) value_.store(n, std::memory_order_relaxed);
  }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }
  // For a record of several numbers: what is read after it is not older.
  std::uint64_t read() const noexcept { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct PollerTally {
  Tally calls, work, busy_cycles, idle_cycles, longest_cycles, long_turns;
};

// One turn over kLongTurn and the turns next to it; `poller` is an index, kept once `sequence` is even and not 0.
struct LongTurnTally {
  Tally at_ns, poller, turn_cycles, before_cycles, after_cycles;
  std::atomic<std::uint64_t> sequence{0};
};

struct ReactorTally {
  Tally turns, yields, sleeps, slept_cycles;
  std::array<LongTurnTally, kLongTurnsKept> long_turns;
  Tally long_turn_count;
};

// Copies, for those who show them.
struct PollerReport {
  std::string name;
  std::uint64_t calls = 0, work = 0, busy_cycles = 0, idle_cycles = 0, long_turns = 0;
  Nanos longest_turn_ns = 0;
};
struct LongTurnReport {
  Nanos at_ns = 0;
  std::string poller;
  Nanos turn_ns = 0, before_ns = 0, after_ns = 0;  // the poller's, of the turn before it and of the one after it
};
struct ReactorReport {
  std::uint64_t turns = 0, yields = 0, sleeps = 0, wakes_written = 0;
  Nanos slept_ns = 0;
  std::vector<PollerReport> pollers;
  std::vector<LongTurnReport> long_turns;  // the last ones, oldest first
};

}  // namespace lk

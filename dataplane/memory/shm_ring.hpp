// ShmProducer and ShmConsumer: the two ends of a ring in memory that a stranger can write. One producing thread, one
// consuming thread, in different processes; plain memory, no DPDK (the client library includes this file).
//
// Each end keeps its own position and its own size. What the other end wrote is only ever compared with them: a
// position that cannot be gives kInvalid and touches nothing, and an entry is copied out, each word read once, before
// anybody looks at it. Wake-up: a consumer that wants to sleep calls arm(), looks once more, then waits on its eventfd;
// the producer writes the eventfd when push_wakes() says so, which costs it no system call while the consumer polls.
// noexcept, allocates nothing. Positions count from 0 and never wrap (64 bits).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

#include "dataplane/base/status.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct ShmRingIndexes {
  alignas(64) std::atomic<std::uint64_t> produced;  // written by the producer
  alignas(64) std::atomic<std::uint64_t> consumed;  // written by the consumer
  alignas(64) std::atomic<std::uint32_t> asleep;    // 1: the consumer wants its eventfd written
};
static_assert(sizeof(ShmRingIndexes) == 192 && std::atomic<std::uint64_t>::is_always_lock_free);

template <typename T>
constexpr Bytes shm_ring_bytes(std::uint32_t slots) noexcept {
  return sizeof(ShmRingIndexes) + Bytes{slots} * sizeof(T);
}

// kFresh: positions begin at 0. kResume: where the memory says this end was (a restarted agent).
enum class ShmRingStart { kFresh, kResume };

template <typename T>
class ShmProducer {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

 public:
  ShmProducer() noexcept = default;
  // `ring` is shm_ring_bytes<T>(slots) bytes at a multiple of 64; slots a power of two.
  ShmProducer(std::byte* ring, std::uint32_t slots, ShmRingStart start) noexcept
      : indexes_(std::launder(reinterpret_cast<ShmRingIndexes*>(ring))),
        entries_(ring + sizeof(ShmRingIndexes)),
        slots_(slots) {
    if (start == ShmRingStart::kResume) position_ = indexes_->produced.load(std::memory_order_relaxed);
    consumed_ = start == ShmRingStart::kResume ? indexes_->consumed.load(std::memory_order_relaxed) : 0;
  }

  // kBusy: full. kInvalid: the consumer's position is impossible; nothing was written.
  Status push(const T& value) noexcept {
    if (position_ - consumed_ >= slots_) {
      consumed_ = indexes_->consumed.load(std::memory_order_acquire);
      if (position_ - consumed_ > slots_) {
        consumed_ = position_ - slots_;  // full, so the next push looks again
        return Status::kInvalid;
      }
      if (position_ - consumed_ == slots_) return Status::kBusy;
    }
    std::uint64_t words[sizeof(T) / 8];
    std::memcpy(words, &value, sizeof(T));
    std::byte* slot = entries_ + (position_ & (slots_ - 1)) * sizeof(T);
    for (std::size_t i = 0; i < sizeof(T) / 8; ++i) {
      std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(slot)[i])
          .store(words[i], std::memory_order_relaxed);
    }
    indexes_->produced.store(++position_, std::memory_order_release);
    return Status::kOk;
  }

  // After one or more pushes: whether the consumer sleeps, so that its eventfd must be written. True once for each
  // arm().
  bool push_wakes() noexcept {
    // Both ends exchange the same word, so one of them comes first: either we see 1, or arm() sees what we pushed.
    return indexes_->asleep.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  ShmRingIndexes* indexes_ = nullptr;
  std::byte* entries_ = nullptr;
  std::uint64_t slots_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t consumed_ = 0;  // last seen
};

template <typename T>
class ShmConsumer {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

 public:
  ShmConsumer() noexcept = default;
  ShmConsumer(std::byte* ring, std::uint32_t slots, ShmRingStart start) noexcept
      : indexes_(std::launder(reinterpret_cast<ShmRingIndexes*>(ring))),
        entries_(ring + sizeof(ShmRingIndexes)),
        slots_(slots) {
    if (start == ShmRingStart::kResume) position_ = indexes_->consumed.load(std::memory_order_relaxed);
  }

  // kBusy: empty. kInvalid: the producer's position is impossible; `out` is as it was.
  Status pop(T& out) noexcept {
    const std::uint64_t waiting = indexes_->produced.load(std::memory_order_acquire) - position_;
    if (waiting == 0) return Status::kBusy;
    if (waiting > slots_) return Status::kInvalid;
    std::uint64_t words[sizeof(T) / 8];
    std::byte* slot = entries_ + (position_ & (slots_ - 1)) * sizeof(T);
    for (std::size_t i = 0; i < sizeof(T) / 8; ++i) {
      words[i] =
          std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(slot)[i]).load(std::memory_order_relaxed);
    }
    std::memcpy(&out, words, sizeof(T));
    indexes_->consumed.store(++position_, std::memory_order_release);
    return Status::kOk;
  }

  // Asks for a wake-up at the next push. False when there is something to pop (or an impossible position) already.
  bool arm() noexcept {
    indexes_->asleep.exchange(1, std::memory_order_acq_rel);
    if (indexes_->produced.load(std::memory_order_acquire) == position_) return true;
    disarm();
    return false;
  }
  void disarm() noexcept { indexes_->asleep.store(0, std::memory_order_relaxed); }

 private:
  ShmRingIndexes* indexes_ = nullptr;
  std::byte* entries_ = nullptr;
  std::uint64_t slots_ = 0;
  std::uint64_t position_ = 0;
};

}  // namespace lk

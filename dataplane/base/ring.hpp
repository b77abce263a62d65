// Ring: a bounded queue of values between two cores, over DPDK's rte_ring (elements by value, on memory of our own, so
// it works with and without EAL). A full ring is a result that the caller handles: push never waits.
// Owner: one pushing thread (or several with kMulti), one popping thread. With several nobody waits for one that lost
// its core in the middle of a push: what comes after that element is seen when it is through, and its pusher wakes the
// popping side then as all do.
#pragma once

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "dataplane/base/error.hpp"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace lk {

enum class RingProducers { kSingle, kMulti };

template <typename T>
class Ring {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) % 4 == 0, "rte_ring moves elements in words of 4 bytes");

 public:
  // `capacity` elements at least; throws SystemError when memory is refused.
  explicit Ring(unsigned capacity, RingProducers producers = RingProducers::kSingle) {
    unsigned slots = 2;
    while (slots - 1 < capacity) slots *= 2;
    const ssize_t bytes = rte_ring_get_memsize_elem(sizeof(T), slots);
    void* memory = bytes > 0 ? std::aligned_alloc(64, (static_cast<std::size_t>(bytes) + 63) / 64 * 64) : nullptr;
    if (memory == nullptr) throw SystemError("ring: no memory for the elements");
    ring_.reset(static_cast<rte_ring*>(memory));
    const bool several = producers == RingProducers::kMulti;
    const unsigned flags = RING_F_SC_DEQ | (several ? RING_F_MP_RTS_ENQ : RING_F_SP_ENQ);
    if (rte_ring_init(ring_.get(), "lk", slots, flags) != 0 ||
        (several && rte_ring_set_prod_htd_max(ring_.get(), rte_ring_get_capacity(ring_.get())) != 0)) {
      throw SystemError("rte_ring_init: refused");
    }
  }

  bool push(const T& value) noexcept {
    release();
    return rte_ring_enqueue_elem(ring_.get(), const_cast<T*>(&value), sizeof(T)) == 0;
  }
  bool pop(T& out) noexcept {
    if (rte_ring_dequeue_elem(ring_.get(), &out, sizeof(T)) != 0) return false;
    acquire();
    return true;
  }
  unsigned pop_burst(T* out, unsigned most) noexcept {
    const unsigned count = rte_ring_dequeue_burst_elem(ring_.get(), out, sizeof(T), most, nullptr);
    acquire();
    return count;
  }
  // Hints for either side. DPDK's own functions read the two ends plainly while another thread moves them.
  bool empty() const noexcept { return used() == 0; }
  unsigned room() const noexcept { return rte_ring_get_capacity(ring_.get()) - used(); }

 private:
  struct Free {
    void operator()(rte_ring* r) const noexcept { std::free(r); }
  };
  unsigned used() const noexcept {
    const std::uint32_t popped = __atomic_load_n(&ring_->cons.tail, __ATOMIC_ACQUIRE);
    const std::uint32_t pushed = __atomic_load_n(&ring_->prod.tail, __ATOMIC_ACQUIRE);
    return std::min((pushed - popped) & ring_->mask, ring_->capacity);
  }
  // Several pushing threads release an end of the ring by its 8 bytes and the popping one acquires 4 of them, which the
  // thread sanitizer takes for two things. These tell it what was ordered.
  void release() noexcept {
#ifdef __SANITIZE_THREAD__
    __tsan_release(ring_.get());
#endif
  }
  void acquire() noexcept {
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(ring_.get());
#endif
  }

  std::unique_ptr<rte_ring, Free> ring_;
};

}  // namespace lk

// Transfer: one chunk on its way from one GPU to another in one step of an op. Request: one posting of it on one lane;
// a transfer has several when it was sent again. Flow: all transfers of one group from one GPU to one other, with the
// landing slots that the receiver granted. Trunk: the lanes and flows between the two GPUs, in the sending direction.
// Pools are arrays with an index and a generation, so an old id never finds a new object. Owner: the engine's reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/base/error.hpp"
#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct OpState;

enum class Step : std::uint8_t {
  kGather,  // a rank's input to its domain's owner of the chunk
  kCross,   // a domain's value to the home domain's owner
  kReturn,  // the finished value from the home's owner to a domain's owner
  kSpread,  // the finished value from a domain's owner to its other ranks
};

// Does the receiver hold the landing slot until others have come (kGather, kCross), or is it free at once?
constexpr bool is_held(Step s) noexcept { return s == Step::kGather || s == Step::kCross; }

inline constexpr unsigned kMostPosts = 4;  // postings of one transfer under way at once

struct Transfer {
  OpState* op = nullptr;
  std::uint32_t chunk = 0;
  std::uint32_t generation = 1;
  std::uint32_t flow = kNoId;
  std::uint32_t bytes = 0;
  const std::byte* data = nullptr;
  std::uint32_t next = kNoId;                                        // in its flow's queue
  std::uint32_t request[kMostPosts] = {kNoId, kNoId, kNoId, kNoId};  // not settled
  Rank from = 0, to = 0;
  Step step{};
  bool queued = false;
  bool retired = false;             // acknowledged (message) or read (addressable)
  bool cancelled = false;           // its op failed
  bool resend = false;              // waits to be sent again
  bool hedge = false;               // … because its lane is suspected
  std::uint32_t last_side = kNoId;  // lane side of the last post, not to be chosen for the resend
  Nanos orphaned_at = 0;

  unsigned posts() const noexcept {
    unsigned n = 0;
    for (const std::uint32_t r : request) n += r != kNoId ? 1U : 0U;
    return n;
  }
};

struct Request {
  std::uint32_t transfer = kNoId;
  std::uint32_t transfer_generation = 0;
  std::uint32_t generation = 1;
  std::uint32_t side = kNoId;
  std::uint32_t slot = kNoId;  // (slot << 16) | generation of the receiver's slot; kNoId: a read
  std::uint32_t bytes = 0;
  std::uint32_t next = kNoId, previous = kNoId;  // on its lane side
  Nanos posted_at = 0;
  Nanos deadline = 0;
  Nanos expected_ns = 0;
  bool reaped = false;  // its completion was seen
  bool landed = false;  // its chunk was acknowledged from this very slot
  bool in_use = false;
  bool relayed = false;  // holds a relay buffer
};

// A slot that the receiver granted to a flow, as the sender keeps it.
struct RemoteSlot {
  std::uint16_t slot = 0;
  std::uint16_t generation = 0;
  bool free = false;
  OpNumber used_by = 0;
};

struct Flow {
  GroupId group = 0;
  EndpointId from = 0, to = 0;
  bool active = false;                       // belongs to the group's present membership
  bool outgoing = false;                     // we send
  std::uint32_t trunk = kNoId;               // outgoing: index of the engine's trunk
  std::uint32_t head = kNoId, tail = kNoId;  // transfers that wait for a lane
  std::uint32_t waiting = 0;
  OpNumber granted_op = 0;                  // the receiver has entered all ops up to this one
  std::vector<RemoteSlot> remote;           // outgoing between nodes
  std::vector<std::uint32_t> granted;       // incoming: our slots that belong to this flow
  std::vector<std::uint32_t> to_advertise;  // incoming: slots whose grant is still to be told
  bool credit_due = false;
};

struct Trunk {
  EndpointId from = 0, to = 0;
  bool far = false;
  bool dirty = false;
  std::uint8_t last_rung = 0xff;
  std::vector<std::uint32_t> sides;  // lane sides, by rung
  std::vector<std::uint32_t> flows;  // outgoing flows
  std::size_t next_flow = 0;
};

// The last acknowledgements told to one peer: pairs of transfer token and landing slot, the newest over the oldest.
struct ToldAcks {
  static constexpr std::uint32_t kMost = 64;
  std::array<std::uint64_t, std::size_t{2} * kMost> words{};
  std::uint32_t count = 0;     // ever
  std::uint32_t repeated = 0;  // of those, told again with a heartbeat
  void note(std::uint64_t token, std::uint64_t slot) noexcept {
    words[count % kMost * std::size_t{2}] = token;
    words[count++ % kMost * std::size_t{2} + 1] = slot;
  }
};

// Objects by index with a free list. Grows only in set-up (`reserve`); take() returns kNoId when all are in use.
template <typename T>
class IndexPool {
 public:
  void reserve(std::uint32_t n) {
    items_.resize(n);
    free_.reserve(n);
    for (std::uint32_t i = n; i-- > 0;) free_.push_back(i);
  }
  std::uint32_t take() noexcept {
    if (free_.empty()) return kNoId;
    const std::uint32_t i = free_.back();
    free_.pop_back();
    return i;
  }
  void give_back(std::uint32_t i) noexcept {
    const std::uint32_t generation = items_[i].generation + 1;
    items_[i] = T{};
    items_[i].generation = generation;
    free_.push_back(i);
  }
  T& operator[](std::uint32_t i) noexcept { return items_[i]; }
  const T& operator[](std::uint32_t i) const noexcept { return items_[i]; }
  std::uint32_t room() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(items_.size()); }

 private:
  std::vector<T> items_;
  std::vector<std::uint32_t> free_;
};

}  // namespace lk

// Wire: the bottom of the data path, all lanes of one node over one technology (loopback now, verbs and CUDA later).
// Small, burst sized, no queueing policy of its own. A fault decorator (lane/fault.hpp) is a Wire over a Wire.
//
// Owner: one reactor. All calls are noexcept. Contract:
//  - post() takes a request or says why not. A taken one ends in exactly one kSendDone: ok, an error, or flushed by
//    reset(). A silent fault may hold it until reset().
//  - kRead requests (addressable lanes) only pass the time that the bytes take; the engine touches the memory itself
//    when the request is done. kWrite requests carry a 64-byte header and a payload into a landing slot of the
//    receiver, whose wire gives a kRecv.
//  - reset() ends a lane's use of this node's memory in both directions; nothing of it is delivered afterwards.
//    open() makes it usable again with a new epoch; what was sent in another epoch is refused.
//  - signal() is a small message over that very lane; it may be lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/status.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

// In front of every chunk's payload, in the same work request.
struct ChunkHeader {
  Incarnation incarnation = 0;
  std::uint64_t token = 0;  // the sender's transfer; comes back in the acknowledgement
  OpNumber op = 0;
  std::uint32_t chunk = 0;
  std::uint32_t length = 0;  // payload bytes
  std::uint32_t descriptor_hash = 0;
  std::uint32_t crc = 0;  // CRC32C of header (with crc = 0) and payload; 0 when the lane's rung has none
  std::uint32_t plan_version = 0;
  GroupId group = 0;
  std::uint16_t membership = 0;
  Rank from = 0, to = 0;
  std::uint8_t step = 0;
  std::uint8_t has_crc = 0;
  std::uint16_t unused = 0;
  std::uint32_t unused2 = 0;
};
static_assert(sizeof(ChunkHeader) == 64);

enum class SignalKind : std::uint8_t {
  kAck,        // words: pairs of transfer token and landing slot
  kCredit,     // words: (from rank << 16) | to rank, granted up to op, descriptor hash, then slots (slot << 16) |
               // generation
  kFence,      // lane, epoch: I reset my side; words: slots I used on it and that are not acknowledged
  kFenceAck,   // lane, epoch: your Fence is done here; words[0]: bitmap of what I have of your list
  kProbe,      // lane, epoch: open with this epoch and answer over the lane itself; epoch 0: begin one, I closed the
               // epoch of words[0]; words[1]: I have no other lane to you
  kProbeEcho,  // over the lane itself
  kProbeBack,  // over the lane itself: I heard you
  kHeartbeat,  // words[0]: the sender's turn counter
  kAbort,      // group, words: op, status, rank that says so, other rank, node
  kPeer,       // a PeerMessage of the control plane travelling in band
};

inline constexpr std::size_t kSignalWords = 24;

struct Signal {
  SignalKind kind{};
  std::uint8_t count = 0;  // words in use
  NodeId from = 0, to = 0;
  GroupId group = 0;
  LaneId lane = kNoId;
  std::uint32_t epoch = 0;
  std::uint16_t membership = 0;
  std::uint16_t unused = 0;
  std::uint32_t heard = 0;  // small messages that the sender has received over the lane that this one takes
  Incarnation incarnation = 0;
  std::uint64_t words[kSignalWords] = {};
};

enum class RequestKind : std::uint8_t { kRead, kWrite };

struct WorkRequest {
  std::uint64_t id = 0;  // comes back in kSendDone
  LaneId lane = kNoId;
  std::uint32_t epoch = 0;
  Direction direction{};
  RequestKind kind{};
  std::uint32_t slot = 0;              // receiver's landing slot
  std::uint32_t immediate = 0;         // (slot << 16) | generation
  std::uint32_t bytes = 0;             // payload
  const std::byte* payload = nullptr;  // null: payload off
  ChunkHeader header{};
};

enum class WorkStatus : std::uint8_t { kOk, kFlushed, kError };

enum class CompletionKind : std::uint8_t { kSendDone, kRecv, kSignal, kPortDown, kPortUp };

struct Completion {
  CompletionKind kind{};
  WorkStatus status{};
  Direction direction{};  // of travel
  LaneId lane = kNoId;
  std::uint32_t epoch = 0;
  std::uint32_t immediate = 0;
  LinkId link = kNoId;
  std::uint64_t id = 0;
  Signal signal{};
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual Status post(const WorkRequest& request, Nanos now) noexcept = 0;
  virtual unsigned poll(std::span<Completion> out, Nanos now) noexcept = 0;
  virtual Status signal(LaneId lane, Direction direction, std::uint32_t epoch, const Signal& s, Nanos now) noexcept = 0;
  virtual void open(LaneId lane, Direction direction, std::uint32_t epoch) noexcept = 0;
  virtual void reset(LaneId lane, Direction direction) noexcept = 0;
  // When poll() will next have something by the passing of time alone; kNever if nothing is under way.
  virtual Nanos next_time(Nanos now) const noexcept = 0;
};

}  // namespace lk

// What faults do to the completions of the wire below: pass, swallow, alter, repeat or keep them for later.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "dataplane/base/error.hpp"
#include "dataplane/lane/fault.hpp"

namespace lk {

namespace {
constexpr Nanos kRetransmitNs = 200 * kMicro;  // a NIC's check failed: the packet comes again after its local timeout
constexpr Nanos kReplayNs = 2 * kMicro;        // NVLink's and PCIe's link-level replay
}  // namespace

bool FaultWire::judge(Completion& c, Nanos now) noexcept {
  if (c.kind == CompletionKind::kSendDone) return judge_send(c, now);
  if (c.kind != CompletionKind::kRecv && c.kind != CompletionKind::kSignal) return true;
  Effect* e = effect_of(sides_[side_of(c.lane, c.direction)]);
  if (e == nullptr) return true;
  const bool is_signal = c.kind == CompletionKind::kSignal;
  if (e->cut || e->stall) {
    ++(is_signal ? counters_.signal_lost : counters_.receive_swallowed);
    return false;
  }
  if (e->drop > 0 && e->random.chance(e->drop)) {
    ++(is_signal ? counters_.signal_lost : counters_.receive_dropped);
    return false;
  }
  return is_signal || judge_receive(c, *e, now);
}

bool FaultWire::judge_send(Completion& c, Nanos now) noexcept {
  Side& s = sides_[side_of(c.lane, c.direction)];
  LK_CHECK(s.outstanding > 0);
  --s.outstanding;
  if (s.flush_is_error && c.status == WorkStatus::kFlushed) {
    c.status = WorkStatus::kError;
    ++counters_.request_failed;
    return true;
  }
  Effect* e = effect_of(s);
  if (e == nullptr || c.status != WorkStatus::kOk) return true;
  if (e->stall) {
    keep(Kept::kHeldSend, c);
    ++counters_.request_held;
    return false;
  }
  // Loads over NVLink or PCIe: nothing of them can be lost or altered, but the link repeats and that takes time.
  if (!cluster_.lanes[c.lane].addressable) return true;
  Nanos by = 0;
  const double lost = 1 - (1 - e->corrupt) * (1 - e->drop);
  if (lost > 0 && e->random.chance(lost)) by += kReplayNs;
  if (e->late > 0 && e->random.chance(e->late)) by += e->late_by;
  if (by == 0) return true;
  keep_until(Kept::kSlowSend, c, now + by);
  ++counters_.replayed;
  return false;
}

bool FaultWire::judge_receive(Completion& c, Effect& e, Nanos now) noexcept {
  if (e.corrupt > 0 && e.random.chance(e.corrupt)) {
    ChunkHeader header;
    std::memcpy(&header, landing_.slot(c.immediate >> 16), sizeof(header));
    if (header.has_crc == 0) {
      ++counters_.replayed;
      keep_until(Kept::kReceive, c, now + kRetransmitNs);
      return false;
    }
    flip_bit(c, e);
    ++counters_.receive_corrupted;
  }
  if (e.late > 0 && e.random.chance(e.late) && keep_late(c, e, now)) return false;
  if (e.duplicate > 0 && e.random.chance(e.duplicate)) {
    ++counters_.receive_duplicated;
    ready_.push_back(c);
  }
  return true;
}

void FaultWire::flip_bit(const Completion& c, Effect& e) noexcept {
  std::byte* slot = landing_.slot(c.immediate >> 16);
  ChunkHeader header;
  std::memcpy(&header, slot, sizeof(header));
  const Bytes length = std::min<Bytes>(header.length, landing_.stride - sizeof(header));
  Bytes bit = offsetof(ChunkHeader, crc) * 8 + e.random.below(32);
  if (options_.payload) bit = e.random.below((sizeof(header) + length) * 8);
  slot[bit / 8] ^= std::byte{1} << (bit % 8);
}

bool FaultWire::keep_late(const Completion& c, const Effect& e, Nanos now) noexcept {
  if (free_copies_.empty()) return false;
  const std::uint32_t i = keep_until(Kept::kLate, c, now + e.late_by);
  Item& item = items_[i];
  item.copy = free_copies_.back();
  free_copies_.pop_back();
  const Bytes size = options_.payload ? landing_.stride : sizeof(ChunkHeader);
  const std::byte* slot = landing_.slot(c.immediate >> 16);
  ChunkHeader header;
  std::memcpy(&header, slot, sizeof(header));
  std::memcpy(copies_.get() + size * item.copy, slot, std::min<Bytes>(sizeof(header) + header.length, size));
  return true;
}

// A destroyed queue pair writes nothing; that its completion still comes is what the engine must refuse.
void FaultWire::release_receive(Item& item) noexcept {
  const Completion& c = item.completion;
  const Effect* e = effect_of(sides_[side_of(c.lane, c.direction)]);
  if (e != nullptr && (e->cut || e->stall)) {
    ++counters_.receive_swallowed;
    return;
  }
  if (item.kept == Kept::kLate && !item.closed) {
    const Bytes size = options_.payload ? landing_.stride : sizeof(ChunkHeader);
    const std::byte* copy = copies_.get() + size * item.copy;
    ChunkHeader header;
    std::memcpy(&header, copy, sizeof(header));
    std::memcpy(landing_.slot(c.immediate >> 16), copy, std::min<Bytes>(sizeof(header) + header.length, size));
    ++counters_.late_written;
  } else if (item.kept == Kept::kLate) {
    ++counters_.late_after_reset;
  }
  ready_.push_back(c);
}

}  // namespace lk

#include "dataplane/memory/slots.hpp"

#include <algorithm>

#include "dataplane/base/error.hpp"

namespace lk {

SlotTable::SlotTable(std::uint32_t slots, Bytes payload_bytes)
    : memory_{nullptr, (payload_bytes + 64 + 63) / 64 * 64}, reserved_(memory_.stride * slots) {
  LK_CHECK(slots <= 65536);
  memory_.base = reserved_.data();
  rows_.resize(slots);
  free_.reserve(slots);
  for (std::uint32_t i = slots; i-- > 0;) free_.push_back(i);
}

std::uint32_t SlotTable::take() noexcept {
  if (free_.empty()) return kNoId;
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  rows_[slot].state = SlotState::kGranted;
  return slot;
}

void SlotTable::hold(std::uint32_t slot) noexcept {
  LK_CHECK(rows_[slot].state == SlotState::kGranted);
  rows_[slot].state = SlotState::kHeld;
}

void SlotTable::regrant(std::uint32_t slot) noexcept {
  LK_CHECK(rows_[slot].state != SlotState::kFree);
  rows_[slot].state = SlotState::kGranted;
  ++rows_[slot].generation;
}

void SlotTable::give_back(std::uint32_t slot) noexcept {
  LK_CHECK(rows_[slot].state != SlotState::kFree);
  rows_[slot].state = SlotState::kFree;
  rows_[slot].owner = kNoId;
  ++rows_[slot].generation;
  free_.push_back(slot);
}

std::uint32_t SlotTable::count(SlotState s) const noexcept {
  return static_cast<std::uint32_t>(
      std::count_if(rows_.begin(), rows_.end(), [s](const Row& r) { return r.state == s; }));
}

}  // namespace lk

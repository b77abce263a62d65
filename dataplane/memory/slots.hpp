// SlotTable: the landing slots of one node. A message lane writes header and payload of a chunk into a slot that this
// node granted to the sender; only this node decides when a slot may be written again.
//
// A slot's life: free → granted (a sender may write it, generation g) → held (committed, in use by an op) → granted or
// free with generation g + 1. While a lane that may still write it is not fenced, the *sender* keeps the slot in
// quarantine: it does not use it, and this node does not grant it anew until the fence says that nothing can land.
// The memory is reserved, not touched, until a chunk lands. Owner: the node's reactor; the wire writes into granted
// slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"
#include "dataplane/memory/reserved.hpp"

namespace lk {

enum class SlotState : std::uint8_t { kFree, kGranted, kHeld };

struct LandingMemory {
  std::byte* base = nullptr;
  Bytes stride = 0;
  std::byte* slot(std::uint32_t index) const noexcept { return base + Bytes{index} * stride; }
};

class SlotTable {
 public:
  // Throws SystemError when the address space is refused. `slots` ≤ 65536: a slot number travels in 16 bits.
  SlotTable(std::uint32_t slots, Bytes payload_bytes);

  std::uint32_t take() noexcept;                // free → granted; kNoId when none is left
  void hold(std::uint32_t slot) noexcept;       // granted → held
  void regrant(std::uint32_t slot) noexcept;    // granted or held → granted, next generation
  void give_back(std::uint32_t slot) noexcept;  // granted or held → free, next generation

  // The last generation whose chunk is in the ledger: what a fence may call received. A chunk that was refused is not.
  void note_committed(std::uint32_t slot) noexcept { rows_[slot].committed = rows_[slot].generation; }
  bool was_committed(std::uint32_t slot, std::uint16_t generation) const noexcept {
    return rows_[slot].committed == generation;
  }

  SlotState state(std::uint32_t slot) const noexcept { return rows_[slot].state; }
  bool is_granted(std::uint32_t slot, std::uint16_t generation) const noexcept {
    return rows_[slot].state == SlotState::kGranted && rows_[slot].generation == generation;
  }
  std::uint16_t generation(std::uint32_t slot) const noexcept { return rows_[slot].generation; }
  std::uint32_t owner(std::uint32_t slot) const noexcept { return rows_[slot].owner; }
  void set_owner(std::uint32_t slot, std::uint32_t flow) noexcept { rows_[slot].owner = flow; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(rows_.size()); }
  std::uint32_t count(SlotState s) const noexcept;
  const LandingMemory& memory() const noexcept { return memory_; }
  Bytes payload_bytes() const noexcept { return memory_.stride - 64; }

 private:
  struct Row {
    std::uint32_t owner = kNoId;  // the flow it is granted to
    std::uint16_t generation = 1;
    std::uint16_t committed = 0;
    SlotState state = SlotState::kFree;
  };
  LandingMemory memory_;
  ReservedMemory reserved_;
  std::vector<Row> rows_;
  std::vector<std::uint32_t> free_;
};

}  // namespace lk

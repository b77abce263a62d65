// Loss: a lane took a chunk, went on, and never delivered that one; meanwhile the chunk got through another way. Its
// landing slot cannot be used again, for as long as the lane lives it may still be written. So the slot stays with the
// lane: one that is missing for long, or several, prove that the lane loses chunks, and it is fenced (path/fence.cpp),
// which gives them back. Without this a lane that loses a chunk now and then would take all slots of a flow, one by
// one.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {
namespace {

constexpr Nanos kLongMissing = 200 * kMilli;
constexpr Nanos kMissing = 10 * kMilli;  // of the oldest, when there are several
constexpr std::size_t kSeveral = 6;

}  // namespace

// May the slot of a request over this lane still be written by it?
bool Engine::is_missing(const LaneSide& s, std::uint32_t word) const noexcept {
  const std::uint32_t slot = word >> 16;
  if (!s.far) return slots_.is_granted(slot, static_cast<std::uint16_t>(word));
  for (const std::uint32_t f : trunks_[s.trunk].flows) {
    for (const RemoteSlot& r : flows_[f].remote) {
      if (r.slot == slot) return r.generation == static_cast<std::uint16_t>(word);  // else the receiver granted it anew
    }
  }
  return false;
}

// A request is settled: is its slot free of it?
void Engine::note_missing(const Request& r, Nanos now) noexcept {
  LaneSide& s = sides_[r.side];
  if (!s.far && (s.state == LaneState::kDown || s.state == LaneState::kProbing)) return free_missing(r.slot);
  if (r.landed || (s.state != LaneState::kUp && s.state != LaneState::kStalled) || !is_missing(s, r.slot)) return;
  if (s.missing.empty()) losing_.push_back(r.side);
  s.missing.push_back({r.slot, now});
  arm(now + kMissing);
}

// Inside the node the slot is our own, and a lane that was reset writes no more.
void Engine::free_missing(std::uint32_t word) noexcept {
  const std::uint32_t slot = word >> 16;
  if (slots_.is_granted(slot, static_cast<std::uint16_t>(word))) slots_.give_back(slot);
}

void Engine::watch_losses(Nanos now) noexcept {
  scan_.assign(losing_.begin(), losing_.end());  // a copy: what is found changes the list
  for (const std::uint32_t side : scan_) {
    LaneSide& s = sides_[side];
    std::erase_if(s.missing, [&](const MissingSlot& m) { return !is_missing(s, m.word); });
    if (s.missing.empty()) {
      std::erase(losing_, side);
      continue;
    }
    const Nanos age = now - s.missing.front().since;
    std::size_t all = 0;
    for (const std::uint32_t i : trunks_[s.trunk].sides) all += sides_[i].missing.size();
    const Nanos patience = all >= kSeveral ? kMissing : kLongMissing;
    if (age >= patience)
      fail_side(side, Cause::kStall, now);
    else
      arm(now + patience - age);
  }
}

}  // namespace lk

#include "agent/loopback_watch.hpp"

namespace lk {

LoopbackWatch::LoopbackWatch(const ClusterSpec& cluster, RateControl& below)
    : cluster_(cluster), below_(below), fraction_(std::make_unique<std::atomic<double>[]>(cluster.links.size() * 2)) {
  for (std::size_t i = 0; i < cluster.links.size() * 2; ++i) fraction_[i].store(1, std::memory_order_relaxed);
}

void LoopbackWatch::set_rate(LinkId link, Direction direction, double fraction, Nanos now) noexcept {
  fraction_[std::size_t{link} * 2 + static_cast<std::size_t>(direction)].store(fraction, std::memory_order_relaxed);
  below_.set_rate(link, direction, fraction, now);
}

LinkReading LoopbackWatch::read(LinkId link) {
  LinkReading reading;
  reading.signal = port_is_down(link) ? LinkSignal::kDown : LinkSignal::kUp;
  for (std::size_t d = 0; d < 2; ++d) {
    reading.fraction[d] = fraction_[std::size_t{link} * 2 + d].load(std::memory_order_relaxed);
  }
  return reading;
}

void LoopbackWatch::fault(const FaultRow& row) {
  std::erase_if(cuts_, [this](const FaultRow& r) { return r.until_ns <= now_; });
  if (row.kind == FaultKind::kClear) {
    std::erase_if(cuts_, [&](const FaultRow& r) { return row.fault == 0 || r.fault == row.fault; });
    return;
  }
  const bool cut = row.kind == FaultKind::kCut || row.kind == FaultKind::kFlap;
  if (cut && row.target == FaultTarget::kLink && row.silent == 0) cuts_.push_back(row);
}

bool LoopbackWatch::port_is_down(LinkId link) const noexcept {
  const LinkKind kind = cluster_.links[link].kind;
  if (kind != LinkKind::kPort && kind != LinkKind::kNvlink) return false;
  unsigned directions = 0;
  for (const FaultRow& r : cuts_) {
    if (r.id == link && is_active(r, now_)) directions |= r.directions;
  }
  return directions == kBothDirections;
}

}  // namespace lk

#include "agent/local_bus.hpp"

#include <algorithm>

namespace lk {
namespace {

bool is_ours(const FaultRow& row) noexcept {
  const bool breaks = row.kind == FaultKind::kCut || row.kind == FaultKind::kFlap || row.kind == FaultKind::kStall;
  return breaks && (row.target == FaultTarget::kControl || row.target == FaultTarget::kNode);
}

bool separates(const FaultRow& row, NodeId a, NodeId b) noexcept {
  if (row.target == FaultTarget::kNode) return row.id == a || row.id == b;
  return (row.id == a && row.peer == b) || (row.id == b && row.peer == a);
}

}  // namespace

class LocalBus::Port final : public PeerBus {
 public:
  explicit Port(LocalBus& bus) : bus_(bus) {}
  bool send(const PeerMessage& message) override { return bus_.send(message); }

 private:
  LocalBus& bus_;
};

LocalBus::LocalBus(std::size_t nodes) {
  for (std::size_t n = 0; n < nodes; ++n) ports_.push_back(std::make_unique<Port>(*this));
}

LocalBus::~LocalBus() = default;

PeerBus& LocalBus::port(NodeId node) noexcept { return *ports_[node]; }

void LocalBus::fault(const FaultRow& row) {
  std::erase_if(rows_, [this](const FaultRow& r) { return r.until_ns <= now_; });
  if (row.kind == FaultKind::kClear) {
    std::erase_if(rows_, [&](const FaultRow& r) { return row.fault == 0 || r.fault == row.fault; });
  } else if (is_ours(row)) {
    rows_.push_back(row);
  }
}

bool LocalBus::is_cut(NodeId a, NodeId b) const noexcept {
  return std::any_of(rows_.begin(), rows_.end(),
                     [&](const FaultRow& r) { return separates(r, a, b) && is_active(r, now_); });
}

bool LocalBus::send(const PeerMessage& message) {
  if (message.to >= ports_.size() || is_cut(message.from, message.to)) return false;
  waiting_.push_back(message);
  return true;
}

std::optional<PeerMessage> LocalBus::next() {
  if (waiting_.empty()) return std::nullopt;
  const PeerMessage message = waiting_.front();
  waiting_.pop_front();
  return message;
}

}  // namespace lk

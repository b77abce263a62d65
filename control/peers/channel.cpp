#include "control/peers/channel.hpp"

#include <algorithm>
#include <cstring>

namespace lk {
namespace {

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kDataHeaderBytes = kHeaderBytes + 2;  // record kind, last fragment
constexpr std::size_t kBodyBytes = sizeof(PeerMessage::payload) - kDataHeaderBytes;
constexpr std::size_t kWindow = 64;   // fragments under way
constexpr unsigned kMostBackOff = 5;  // doublings of the wait between repeats

void store(std::uint8_t* to, std::uint64_t value) {
  for (unsigned i = 0; i < 8; ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint64_t load(const std::uint8_t* from) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{from[i]} << (8 * i);
  return value;
}

Nanos wait_of(unsigned attempts, Nanos retransmit_ns) {
  return retransmit_ns << std::min(attempts > 3 ? attempts - 3 : 0U, kMostBackOff);
}

}  // namespace

void PeerChannel::open(Incarnation peer_incarnation) {
  close();
  peer_incarnation_ = peer_incarnation;
}

void PeerChannel::close() {
  peer_incarnation_ = 0;
  pending_.clear();
  next_sequence_ = 1;
  taken_ = 0;
  early_.clear();
  partial_ = {};
  ack_due_ = false;
}

void PeerChannel::fill_header(PeerMessage& message) const {
  store(message.payload, peer_incarnation_);
  store(message.payload + 8, taken_);
}

std::optional<PeerHeader> PeerChannel::header_of(const PeerMessage& message) {
  if (message.length < kHeaderBytes || message.length > sizeof(message.payload)) return std::nullopt;
  return PeerHeader{load(message.payload), load(message.payload + 8)};
}

PeerMessage PeerChannel::control_message(PeerMessageKind kind) {
  PeerMessage message;
  message.kind = static_cast<std::uint16_t>(kind);
  message.from = self_;
  message.to = peer_;
  message.incarnation = incarnation_;
  message.length = kHeaderBytes;
  fill_header(message);
  return message;
}

void PeerChannel::queue(RecordKind kind, const Bytestring& body) {
  if (!is_open()) return;
  std::size_t at = 0;
  do {
    const std::size_t take = std::min(kBodyBytes, body.size() - at);
    Fragment fragment;
    fragment.message = control_message(PeerMessageKind::kData);
    fragment.message.sequence = next_sequence_++;
    fragment.message.payload[kHeaderBytes] = static_cast<std::uint8_t>(kind);
    fragment.message.payload[kHeaderBytes + 1] = at + take == body.size() ? 1 : 0;
    if (take > 0) std::memcpy(fragment.message.payload + kDataHeaderBytes, body.data() + at, take);
    fragment.message.length = static_cast<std::uint16_t>(kDataHeaderBytes + take);
    pending_.push_back(fragment);
    at += take;
  } while (at < body.size());
}

void PeerChannel::take(const PeerMessage& message, Nanos /*now*/, std::vector<Record>& out) {
  const auto header = header_of(message);
  if (!header || header->addressee != incarnation_ || !is_open()) return;
  while (!pending_.empty() && pending_.front().message.sequence <= header->acknowledged) pending_.pop_front();
  if (message.kind != static_cast<std::uint16_t>(PeerMessageKind::kData) || message.length < kDataHeaderBytes) return;
  ack_due_ = true;
  if (message.sequence <= taken_ || message.sequence > taken_ + kWindow) return;
  early_.emplace(message.sequence, message);
  for (auto it = early_.begin(); it != early_.end() && it->first == taken_ + 1; it = early_.erase(it)) {
    ++taken_;
    accept(it->second, out);
  }
}

void PeerChannel::accept(const PeerMessage& message, std::vector<Record>& out) {
  partial_.kind = static_cast<RecordKind>(message.payload[kHeaderBytes]);
  partial_.body.insert(partial_.body.end(), message.payload + kDataHeaderBytes, message.payload + message.length);
  if (message.payload[kHeaderBytes + 1] == 0) return;
  out.push_back(std::move(partial_));
  partial_ = {};
}

void PeerChannel::collect(Nanos now, Nanos retransmit_ns, std::vector<Due>& out) {
  bool sent = false;
  const std::size_t most = std::min(pending_.size(), kWindow);
  for (std::size_t i = 0; i < most; ++i) {
    Fragment& f = pending_[i];
    if (f.attempts > 0 && now - f.sent_at < wait_of(f.attempts, retransmit_ns)) continue;
    fill_header(f.message);
    f.sent_at = now;
    out.push_back({f.message, f.attempts++});
    sent = true;
  }
  if (ack_due_ && !sent) out.push_back({control_message(PeerMessageKind::kHeartbeat), 0});
  ack_due_ = false;
}

Nanos PeerChannel::next_time(Nanos now, Nanos retransmit_ns) const noexcept {
  if (ack_due_) return now;
  Nanos next = kNever;
  const std::size_t most = std::min(pending_.size(), kWindow);
  for (std::size_t i = 0; i < most; ++i) {
    const Fragment& f = pending_[i];
    if (f.attempts == 0) return now;
    next = std::min(next, f.sent_at + wait_of(f.attempts, retransmit_ns));
  }
  return std::max(next, now);
}

}  // namespace lk

#include "dataplane/lane/loopback/port.hpp"

#include <algorithm>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {
constexpr Nanos kFullInboxNs = 1000;  // until a full inbox is tried again
}

LoopbackPort::LoopbackPort(LoopbackNet& net, NodeId node, LandingMemory landing)
    : net_(net), cluster_(net.cluster()), node_(node), landing_(landing) {
  const double scale = net.options().rate_scale;
  for (const LinkSpec& link : cluster_.links) {
    servers_.emplace_back(link.nominal_GBps * scale);
    servers_.emplace_back(link.nominal_GBps * scale);
  }
  fraction_.assign(servers_.size(), 1.0);
  lane_cap_.assign(cluster_.lanes.size() * 2, kNoId);
  for (LaneId id = 0; id < cluster_.lanes.size(); ++id) {
    const LaneSpec& lane = cluster_.lanes[id];
    GBps least = 1e9;
    for (const Hop& h : lane.near_hops) least = std::min(least, cluster_.links[h.link].nominal_GBps);
    for (const Hop& h : lane.far_hops) least = std::min(least, cluster_.links[h.link].nominal_GBps);
    if (lane.nominal_GBps > least * 0.999) continue;
    for (unsigned d = 0; d < 2; ++d) {
      lane_cap_[side_of(id, static_cast<Direction>(d))] = static_cast<std::uint32_t>(servers_.size());
      servers_.emplace_back(lane.nominal_GBps * scale);
    }
  }
  unsent_.resize(cluster_.nodes.size());
  tx_epoch_.assign(cluster_.lanes.size() * 2, 1);
  rx_epoch_.assign(cluster_.lanes.size() * 2, 1);
}

NodeId LoopbackPort::far_node(const LaneSpec& lane, Direction travel) const noexcept {
  return cluster_.gpus[travel == Direction::kForward ? lane.b : lane.a].node;
}

// Puts the bytes on every hop of the lane's path that this node owns. `far_part` is the receiving half.
void LoopbackPort::occupy(Record& r, LaneId id, Direction d, Bytes bytes, Nanos from, bool far_part) noexcept {
  const LaneSpec& lane = cluster_.lanes[id];
  const bool a_side = (d == Direction::kForward) != far_part;
  const auto& hops = a_side ? lane.near_hops : (lane.far_hops.empty() ? lane.near_hops : lane.far_hops);
  r.hop_count = 0;
  const auto add = [&](std::size_t server) noexcept {
    LK_CHECK(r.hop_count < kMaxHops);
    LinkServer& s = servers_[server];
    // The receiving half was already fed while the sending half worked: a link that is no slower adds no time of its
    // own.
    const double alone = s.rate() > 0 ? static_cast<double>(bytes) / s.rate() : 0;
    const Nanos lead = far_part ? std::min(r.message.lead_ns, static_cast<Nanos>(alone)) : 0;
    r.server[r.hop_count] = static_cast<std::uint32_t>(server);
    r.position[r.hop_count++] = s.enqueue(bytes, std::max<Nanos>(0, from - lead));
  };
  for (const Hop& h : hops) add(server_of(h.link, d == Direction::kForward ? h.direction : opposite(h.direction)));
  if (!far_part && lane_cap_[side_of(id, d)] != kNoId) add(lane_cap_[side_of(id, d)]);
}

std::uint32_t LoopbackPort::new_record() noexcept {
  if (free_.empty()) {
    records_.emplace_back();
    return static_cast<std::uint32_t>(records_.size() - 1);
  }
  const std::uint32_t i = free_.back();
  free_.pop_back();
  return i;
}

void LoopbackPort::free_record(std::uint32_t index) noexcept {
  Record& r = records_[index];
  r.stage = Stage::kFree;
  ++r.generation;
  free_.push_back(index);
}

void LoopbackPort::schedule(std::uint32_t index, Nanos) noexcept {
  const Record& r = records_[index];
  Nanos at = r.not_before;
  for (unsigned i = 0; i < r.hop_count; ++i) at = std::max(at, servers_[r.server[i]].time_of(r.position[i]));
  heap_.push_back({at, sequence_++, index, r.generation});
  std::push_heap(heap_.begin(), heap_.end());
}

Status LoopbackPort::post(const WorkRequest& q, Nanos now) noexcept {
  if (tx_epoch_[side_of(q.lane, q.direction)] != q.epoch) return Status::kDown;
  const LaneSpec& lane = cluster_.lanes[q.lane];
  std::uint32_t staging = kNoId;
  const bool writes = q.kind == RequestKind::kWrite;
  if (writes && q.payload != nullptr && is_far(lane)) {
    staging = net_.take_staging(node_);
    if (staging == kNoId) return Status::kBusy;
    std::memcpy(net_.staging(staging), q.payload, q.bytes);
  }
  const std::uint32_t index = new_record();
  Record& r = records_[index];
  r.stage = Stage::kSending;
  r.far = is_far(lane) && writes;
  r.id = q.id;
  r.request = q.kind;
  r.message = WireMessage{};
  r.message.kind = WireMessage::Kind::kChunk;
  r.message.lane = q.lane;
  r.message.direction = q.direction;
  r.message.epoch = q.epoch;
  r.message.immediate = q.immediate;
  r.message.bytes = q.bytes;
  r.message.staging = staging;
  r.message.from = node_;
  r.message.header = q.header;
  r.payload = writes && !r.far ? q.payload : nullptr;
  r.not_before = r.far ? now : now + lane.latency_ns;
  occupy(r, q.lane, q.direction, q.bytes, now, false);
  schedule(index, now);
  return Status::kOk;
}

Status LoopbackPort::signal(LaneId id, Direction d, std::uint32_t epoch, const Signal& s, Nanos now) noexcept {
  if (tx_epoch_[side_of(id, d)] != epoch) return Status::kDown;
  const LaneSpec& lane = cluster_.lanes[id];
  WireMessage m;
  m.kind = WireMessage::Kind::kSignal;
  m.lane = id;
  m.direction = d;
  m.epoch = epoch;
  m.from = node_;
  m.signal = s;
  m.arrive_at = now + lane.latency_ns;
  if (is_far(lane)) {
    send_out(far_node(lane, d), m);
  } else {
    arrive(m, now);
  }
  return Status::kOk;
}

void LoopbackPort::send_out(NodeId to, const WireMessage& m) noexcept {
  if (unsent_[to].empty() && net_.send(to, m)) return;
  unsent_[to].push_back(m);
  ++unsent_count_;
}

// Each inbox has a queue of its own: a node that does not take its messages must not keep the others' back.
void LoopbackPort::send_unsent() noexcept {
  if (unsent_count_ == 0) return;
  for (NodeId to = 0; to < unsent_.size(); ++to) {
    while (!unsent_[to].empty() && net_.send(to, unsent_[to].front())) {
      unsent_[to].pop_front();
      --unsent_count_;
    }
  }
}

void LoopbackPort::open(LaneId lane, Direction d, std::uint32_t epoch) noexcept {
  tx_epoch_[side_of(lane, d)] = epoch;
  rx_epoch_[side_of(lane, is_far(cluster_.lanes[lane]) ? opposite(d) : d)] = epoch;
}

void LoopbackPort::flush_side(LaneId lane, Direction d) noexcept {
  for (std::uint32_t i = 0; i < records_.size(); ++i) {
    Record& r = records_[i];
    if (r.message.lane != lane || r.message.direction != d) continue;
    if (r.stage == Stage::kSending || r.stage == Stage::kAwaiting || r.stage == Stage::kAnswered) {
      complete(r, WorkStatus::kFlushed);
      if (r.stage == Stage::kSending && r.message.staging != kNoId) net_.free_staging(r.message.staging);
      free_record(i);
    }
  }
}

void LoopbackPort::reset(LaneId lane, Direction d) noexcept {
  tx_epoch_[side_of(lane, d)] = 0;
  rx_epoch_[side_of(lane, is_far(cluster_.lanes[lane]) ? opposite(d) : d)] = 0;
  forget_received(side_of(lane, is_far(cluster_.lanes[lane]) ? opposite(d) : d));
  flush_side(lane, d);
}

// What has arrived and was not polled is not told any more, as when a queue pair's completions are cleaned out.
void LoopbackPort::forget_received(std::size_t side) noexcept {
  const auto gone = [side](const Completion& c) {
    return (c.kind == CompletionKind::kRecv || c.kind == CompletionKind::kSignal) &&
           side_of(c.lane, c.direction) == side;
  };
  const auto from = done_.begin() + static_cast<std::ptrdiff_t>(done_head_);
  done_.erase(std::remove_if(from, done_.end(), gone), done_.end());
}

void LoopbackPort::complete(const Record& r, WorkStatus status) noexcept {
  Completion c;
  c.kind = CompletionKind::kSendDone;
  c.status = status;
  c.direction = r.message.direction;
  c.lane = r.message.lane;
  c.epoch = r.message.epoch;
  c.id = r.id;
  done_.push_back(c);
}

void LoopbackPort::arrive(const WireMessage& m, Nanos now) noexcept {
  if (m.kind == WireMessage::Kind::kDelivered) {
    const auto index = static_cast<std::uint32_t>(m.id);
    Record& r = records_[index];
    if (r.stage == Stage::kAwaiting && r.generation == static_cast<std::uint32_t>(m.id >> 32)) {
      r.stage = Stage::kAnswered;
      r.not_before = m.arrive_at;
      r.hop_count = 0;
      schedule(index, now);
    }
    return;
  }
  const std::uint32_t index = new_record();
  Record& r = records_[index];
  r.message = m;
  r.payload = nullptr;
  r.far = false;
  r.not_before = m.arrive_at;
  r.hop_count = 0;
  if (m.kind == WireMessage::Kind::kSignal) {
    r.stage = Stage::kSignal;
  } else {
    r.stage = Stage::kReceiving;
    occupy(r, m.lane, m.direction, m.bytes, m.arrive_at, true);
  }
  schedule(index, now);
}

// Writes header and payload into the landing slot, as the NIC's DMA would.
void LoopbackPort::land(const Record& r) noexcept {
  std::byte* slot = landing_.slot(r.message.immediate >> 16);
  std::memcpy(slot, &r.message.header, sizeof(ChunkHeader));
  const std::byte* from = r.message.staging != kNoId ? net_.staging(r.message.staging) : r.payload;
  if (from != nullptr) std::memcpy(slot + sizeof(ChunkHeader), from, r.message.bytes);
  Completion c;
  c.kind = CompletionKind::kRecv;
  c.status = WorkStatus::kOk;
  c.direction = r.message.direction;
  c.lane = r.message.lane;
  c.epoch = r.message.epoch;
  c.immediate = r.message.immediate;
  done_.push_back(c);
}

void LoopbackPort::finish(std::uint32_t index, Nanos now) noexcept {
  Record& r = records_[index];
  const LaneSpec& lane = cluster_.lanes[r.message.lane];
  const bool open = rx_epoch_[side_of(r.message.lane, r.message.direction)] == r.message.epoch;
  switch (r.stage) {
    case Stage::kSending:
      if (r.far) {
        r.stage = Stage::kAwaiting;
        WireMessage m = r.message;
        m.id = std::uint64_t{r.generation} << 32 | index;
        m.arrive_at = now + lane.latency_ns;
        for (unsigned i = 0; i < r.hop_count; ++i) {
          const GBps rate = servers_[r.server[i]].rate();
          if (rate > 0) m.lead_ns = std::max(m.lead_ns, static_cast<Nanos>(static_cast<double>(m.bytes) / rate));
        }
        r.message.staging = kNoId;
        send_out(far_node(lane, r.message.direction), m);
        return;
      }
      if (r.request == RequestKind::kWrite && open) land(r);
      complete(r, WorkStatus::kOk);
      break;
    case Stage::kReceiving: {
      if (open) {
        land(r);
        WireMessage back;
        back.kind = WireMessage::Kind::kDelivered;
        back.lane = r.message.lane;
        back.direction = r.message.direction;
        back.id = r.message.id;
        back.arrive_at = now + lane.latency_ns;
        send_out(r.message.from, back);
      }
      if (r.message.staging != kNoId) net_.free_staging(r.message.staging);
      break;
    }
    case Stage::kSignal:
      if (open) {
        Completion c;
        c.kind = CompletionKind::kSignal;
        c.direction = r.message.direction;
        c.lane = r.message.lane;
        c.epoch = r.message.epoch;
        c.signal = r.message.signal;
        done_.push_back(c);
      }
      break;
    case Stage::kAnswered:
      complete(r, WorkStatus::kOk);
      break;
    case Stage::kAwaiting:
    case Stage::kFree:
      return;
  }
  free_record(index);
}

unsigned LoopbackPort::poll(std::span<Completion> out, Nanos now) noexcept {
  send_unsent();
  WireMessage m;
  for (unsigned i = 0; i < 64 && net_.receive(node_, m); ++i) arrive(m, now);
  while (!heap_.empty() && heap_.front().at <= now) {
    const Due due = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    if (records_[due.record].generation != due.generation || records_[due.record].stage == Stage::kAwaiting) continue;
    finish(due.record, now);
  }
  unsigned n = 0;
  while (n < out.size() && done_head_ < done_.size()) out[n++] = done_[done_head_++];
  if (done_head_ == done_.size()) {
    done_.clear();
    done_head_ = 0;
  }
  return n;
}

Nanos LoopbackPort::next_time(Nanos now) const noexcept {
  if (done_head_ < done_.size()) return now;
  const Nanos again = unsent_count_ == 0 ? kNever : now + kFullInboxNs;
  return heap_.empty() ? again : std::min(again, heap_.front().at);
}

void LoopbackPort::set_rate(LinkId link, Direction d, double fraction, Nanos now) noexcept {
  const std::size_t server = server_of(link, d);
  fraction_[server] = fraction;
  servers_[server].set_rate(cluster_.links[link].nominal_GBps * net_.options().rate_scale * fraction, now);
  heap_.clear();
  for (std::uint32_t i = 0; i < records_.size(); ++i) {
    if (records_[i].stage != Stage::kFree && records_[i].stage != Stage::kAwaiting) schedule(i, now);
  }
}

}  // namespace lk

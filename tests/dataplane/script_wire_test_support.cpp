#include <algorithm>
#include <cstring>

#include "tests/dataplane/script_wire.hpp"

namespace lk::test {

ScriptNet::ScriptNet(const ClusterSpec& cluster)
    : cluster_(cluster),
      ends_(cluster.nodes.size() * cluster.lanes.size() * 2),
      busy_until_(cluster.lanes.size() * 2),
      inbox_(cluster.nodes.size()),
      landing_(cluster.nodes.size()) {}

ScriptNet::End& ScriptNet::end(NodeId node, LaneId lane, Direction d) {
  const bool far = !cluster_.lanes[lane].far_hops.empty();
  return ends_[(node * cluster_.lanes.size() + lane) * 2 + (far ? 0 : static_cast<std::size_t>(d))];
}

void ScriptNet::fly(const PacketPtr& p) {
  const auto later = [](Nanos due, const PacketPtr& other) { return due < other->due; };
  flying_.insert(std::upper_bound(flying_.begin(), flying_.end(), p->due, later), p);
}

void ScriptNet::send(const PacketPtr& p, Nanos now) {
  const LaneSpec& lane = cluster_.lanes[p->request.lane];
  Nanos& busy = busy_until_[p->request.lane * 2 + static_cast<std::size_t>(p->request.direction)];
  const Bytes bytes = p->chunk ? p->request.bytes : 0;
  busy = std::max(busy, now) + static_cast<Nanos>(static_cast<double>(bytes) / lane.nominal_GBps);
  p->due = busy + lane.latency_ns;
  const Fate f = fate ? fate(*p) : Fate::kPass;
  Packet entry = *p;
  entry.payload.clear();
  log.push_back(std::move(entry));
  const bool fails = f == Fate::kFail || f == Fate::kFailLate;
  if (fails) complete(*p, WorkStatus::kError);
  if (f == Fate::kLate || f == Fate::kFailLate || f == Fate::kHold) held.push_back(p);
  if (f == Fate::kHold || fails) return;
  if (f == Fate::kLose) p->lands = false;
  if (f == Fate::kTwice || f == Fate::kLate) {
    auto other = std::make_shared<Packet>(*p);
    other->done = f == Fate::kTwice;
    other->lands = f == Fate::kTwice;
    if (f == Fate::kLate) p->done = true;  // the held one only lands
    fly(other);
    if (f == Fate::kLate) return;
  }
  fly(p);
}

void ScriptNet::complete(Packet& p, WorkStatus status) {
  if (!p.chunk || p.done) return;
  p.done = true;
  Completion c;
  c.kind = CompletionKind::kSendDone;
  c.status = status;
  c.lane = p.request.lane;
  c.direction = p.request.direction;
  c.epoch = p.request.epoch;
  c.id = p.request.id;
  inbox_[p.from].push_back(c);
}

void ScriptNet::land(const Packet& p) {
  if (p.chunk && p.request.kind == RequestKind::kRead) return;
  const End& e = end(p.to, p.request.lane, p.request.direction);
  if (!e.open || e.epoch != p.request.epoch) {
    ++refused;
    return;
  }
  if (p.chunk) {
    std::byte* slot = landing_[p.to].slot(p.request.slot);
    std::memcpy(slot, &p.request.header, sizeof(ChunkHeader));
    if (!p.payload.empty()) std::memcpy(slot + sizeof(ChunkHeader), p.payload.data(), p.payload.size());
    return tell(p, p.request.epoch, p.request.immediate);
  }
  Completion c;
  c.kind = CompletionKind::kSignal;
  c.lane = p.request.lane;
  c.direction = p.request.direction;
  c.epoch = p.request.epoch;
  c.signal = p.signal;
  inbox_[p.to].push_back(c);
}

void ScriptNet::tell(const Packet& p, std::uint32_t epoch, std::uint32_t immediate) {
  Completion c;
  c.kind = CompletionKind::kRecv;
  c.lane = p.request.lane;
  c.direction = p.request.direction;
  c.epoch = epoch;
  c.immediate = immediate;
  inbox_[p.to].push_back(c);
}

void ScriptNet::tell_port(NodeId node, LinkId link, bool up) {
  Completion c;
  c.kind = up ? CompletionKind::kPortUp : CompletionKind::kPortDown;
  c.link = link;
  inbox_[node].push_back(c);
}

void ScriptNet::advance(Nanos now) {
  while (!flying_.empty() && flying_.front()->due <= now) {
    const PacketPtr p = flying_.front();
    flying_.pop_front();
    if (p->lands) land(*p);
    complete(*p, WorkStatus::kOk);
  }
}

void ScriptNet::release(const std::function<bool(const Packet&)>& which, Nanos now) {
  std::vector<PacketPtr> kept;
  for (PacketPtr& p : held) {
    if (!which(*p)) {
      kept.push_back(p);
      continue;
    }
    p->due = now;
    fly(p);
  }
  held.swap(kept);
}

void ScriptNet::release_all(Nanos now) {
  release([](const Packet&) { return true; }, now);
}

std::size_t ScriptNet::count(const std::function<bool(const Packet&)>& which) const {
  return static_cast<std::size_t>(std::count_if(log.begin(), log.end(), which));
}

ScriptWire::ScriptWire(ScriptNet& net, NodeId node, LandingMemory landing) : net_(net), node_(node) {
  net.landing_[node] = landing;
}

PacketPtr ScriptWire::packet(LaneId lane, Direction direction, std::uint32_t epoch, Nanos now) const {
  auto p = std::make_shared<Packet>();
  const LaneSpec& spec = net_.cluster_.lanes[lane];
  p->from = node_;
  p->to = net_.cluster_.gpus[direction == Direction::kForward ? spec.b : spec.a].node;
  p->request.lane = lane;
  p->request.direction = direction;
  p->request.epoch = epoch;
  p->sent_at = now;
  return p;
}

Status ScriptWire::post(const WorkRequest& w, Nanos now) noexcept {
  const ScriptNet::End& e = net_.end(node_, w.lane, w.direction);
  if (!e.open || e.epoch != w.epoch) return Status::kDown;
  PacketPtr p = packet(w.lane, w.direction, w.epoch, now);
  p->chunk = true;
  p->request = w;
  if (w.kind == RequestKind::kWrite && w.payload != nullptr) p->payload.assign(w.payload, w.payload + w.bytes);
  net_.send(p, now);
  return Status::kOk;
}

Status ScriptWire::signal(LaneId lane, Direction direction, std::uint32_t epoch, const Signal& s, Nanos now) noexcept {
  const ScriptNet::End& e = net_.end(node_, lane, direction);
  if (!e.open || e.epoch != epoch) return Status::kDown;
  PacketPtr p = packet(lane, direction, epoch, now);
  p->signal = s;
  net_.send(p, now);
  return Status::kOk;
}

unsigned ScriptWire::poll(std::span<Completion> out, Nanos now) noexcept {
  net_.advance(now);
  std::deque<Completion>& box = net_.inbox_[node_];
  unsigned n = 0;
  for (; n < out.size() && !box.empty(); ++n) {
    out[n] = box.front();
    box.pop_front();
  }
  return n;
}

void ScriptWire::open(LaneId lane, Direction direction, std::uint32_t epoch) noexcept {
  net_.end(node_, lane, direction) = {true, epoch};
}

void ScriptWire::reset(LaneId lane, Direction direction) noexcept {
  net_.end(node_, lane, direction).open = false;
  const bool far = !net_.cluster_.lanes[lane].far_hops.empty();
  const auto flush = [&](Packet& p) {
    if (p.from == node_ && p.on(lane) && (far || p.request.direction == direction))
      net_.complete(p, WorkStatus::kFlushed);
  };
  for (const PacketPtr& p : net_.flying_) flush(*p);
  for (const PacketPtr& p : net_.held) flush(*p);
}

Nanos ScriptWire::next_time(Nanos now) const noexcept {
  if (!net_.inbox_[node_].empty()) return now;
  return net_.flying_.empty() ? kNever : std::max(now, net_.flying_.front()->due);
}

}  // namespace lk::test

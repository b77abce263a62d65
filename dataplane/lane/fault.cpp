// The calls of Wire, and what is kept for later. Which faults act: fault_edges.cpp; on what comes out: fault_judge.cpp.
#include "dataplane/lane/fault.hpp"

#include <algorithm>

namespace lk {

namespace {
constexpr Nanos kRetryNs = kMicro;  // a delayed post found the wire full

Completion completion_of(const WorkRequest& q) noexcept {
  Completion c;
  c.kind = CompletionKind::kSendDone;
  c.direction = q.direction;
  c.lane = q.lane;
  c.epoch = q.epoch;
  c.immediate = q.immediate;
  c.id = q.id;
  return c;
}
}  // namespace

FaultWire::FaultWire(const ClusterSpec& cluster, NodeId node, Wire& inner, LandingMemory landing, RateControl* rates,
                     const FaultOptions& options)
    : cluster_(cluster),
      node_(node),
      inner_(inner),
      landing_(landing),
      rates_(rates),
      options_(options),
      incoming_(options.rows),
      sides_(cluster.lanes.size() * 2),
      link_sides_(cluster.links.size() * 2),
      link_down_(cluster.links.size()) {
  rows_.reserve(options.rows);
  map_links();
}

Status FaultWire::post(const WorkRequest& q, Nanos now) noexcept {
  const std::uint32_t side = side_of(q.lane, q.direction);
  Side& s = sides_[side];
  if (s.epoch != q.epoch) return Status::kDown;
  Effect* e = effect_of(s);
  if (s.dead || (e != nullptr && e->cut)) {
    if (!s.dead) kill(side);
    finish(q, WorkStatus::kError);
    return Status::kOk;
  }
  if (e != nullptr && e->stall) {
    keep(Kept::kHeldSend, completion_of(q));
    ++counters_.request_held;
    return Status::kOk;
  }
  if (e != nullptr && e->bad > 0 && e->random.chance(e->bad)) {
    finish(q, WorkStatus::kError);
    return Status::kOk;
  }
  const Nanos delay = e != nullptr ? e->delay : 0;
  if (delay > 0 || s.delayed > 0) {
    keep_post(q, s, delay, now);
    return Status::kOk;
  }
  const Status status = inner_.post(q, now);
  if (status == Status::kOk) ++s.outstanding;
  return status;
}

Status FaultWire::signal(LaneId lane, Direction d, std::uint32_t epoch, const Signal& signal, Nanos now) noexcept {
  Side& s = sides_[side_of(lane, d)];
  if (s.epoch != epoch) return Status::kDown;
  const Effect* e = effect_of(s);
  if (s.dead || (e != nullptr && e->cut)) {
    ++counters_.signal_lost;
    return Status::kDown;
  }
  if (e != nullptr && e->stall) {
    ++counters_.signal_lost;
    return Status::kOk;
  }
  const Nanos delay = e != nullptr ? e->delay : 0;
  if (delay == 0 && s.delayed == 0) return inner_.signal(lane, d, epoch, signal, now);
  Completion c;
  c.kind = CompletionKind::kSignal;
  c.direction = d;
  c.lane = lane;
  c.epoch = epoch;
  c.signal = signal;
  s.last_release = std::max(now + delay, s.last_release);
  keep_until(Kept::kSignal, c, s.last_release);
  return Status::kOk;
}

void FaultWire::open(LaneId lane, Direction d, std::uint32_t epoch) noexcept {
  Side& s = sides_[side_of(lane, d)];
  s.epoch = epoch;
  s.dead = s.flush_is_error = false;
  inner_.open(lane, d, epoch);
}

void FaultWire::reset(LaneId lane, Direction d) noexcept {
  Side& s = sides_[side_of(lane, d)];
  s.epoch = 0;
  s.dead = s.flush_is_error = false;
  end_waiting(side_of(lane, d), WorkStatus::kFlushed);
  close_receiving(receiving_side(lane, d));
  inner_.reset(lane, d);
}

// A queue pair with a request that cannot be delivered goes to error: all of its requests fail, and nothing arrives.
void FaultWire::kill(std::uint32_t side) noexcept {
  Side& s = sides_[side];
  s.dead = s.flush_is_error = true;
  ++counters_.pair_killed;
  const LaneId lane = side / 2;
  const auto d = static_cast<Direction>(side % 2);
  end_waiting(side, WorkStatus::kError);
  close_receiving(receiving_side(lane, d));
  inner_.reset(lane, d);
}

void FaultWire::end_waiting(std::uint32_t side, WorkStatus status) noexcept {
  Side& s = sides_[side];
  if (s.waiting + s.delayed == 0) return;
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (side_of(item.completion.lane, item.completion.direction) != side) continue;
    if (item.kept == Kept::kHeldSend || item.kept == Kept::kSlowSend || item.kept == Kept::kPost) {
      item.completion.status = status;
      counters_.request_failed += status == WorkStatus::kError;
      ready_.push_back(item.completion);
      let_go(i);
    } else if (item.kept == Kept::kSignal) {
      ++counters_.signal_lost;
      let_go(i);
    }
  }
  s.last_release = 0;
}

void FaultWire::close_receiving(std::uint32_t side) noexcept {
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (side_of(item.completion.lane, item.completion.direction) != side) continue;
    if (item.kept == Kept::kReceive) let_go(i);
    if (item.kept == Kept::kLate) item.closed = true;
  }
  const auto from = ready_.begin() + static_cast<std::ptrdiff_t>(ready_head_);
  const auto gone = [side](const Completion& c) {
    return (c.kind == CompletionKind::kRecv || c.kind == CompletionKind::kSignal) &&
           side_of(c.lane, c.direction) == side;
  };
  ready_.erase(std::remove_if(from, ready_.end(), gone), ready_.end());
}

void FaultWire::finish(const WorkRequest& q, WorkStatus status) noexcept {
  Completion c = completion_of(q);
  c.status = status;
  counters_.request_failed += status == WorkStatus::kError;
  ready_.push_back(c);
}

void FaultWire::keep_post(const WorkRequest& q, Side& s, Nanos delay, Nanos now) noexcept {
  s.last_release = std::max(now + delay, s.last_release);
  const std::uint32_t i = keep_until(Kept::kPost, completion_of(q), s.last_release);
  items_[i].request = q;
  ++counters_.request_delayed;
}

std::uint32_t FaultWire::keep(Kept kept, const Completion& c) noexcept {
  if (free_items_.empty()) {
    items_.emplace_back();
    free_items_.push_back(static_cast<std::uint32_t>(items_.size() - 1));
  }
  const std::uint32_t i = free_items_.back();
  free_items_.pop_back();
  Item& item = items_[i];
  item.kept = kept;
  item.closed = false;
  item.copy = kNoId;
  item.completion = c;
  Side& s = sides_[side_of(c.lane, c.direction)];
  s.waiting += kept == Kept::kHeldSend || kept == Kept::kSlowSend || kept == Kept::kPost;
  s.delayed += kept == Kept::kPost || kept == Kept::kSignal;
  return i;
}

std::uint32_t FaultWire::keep_until(Kept kept, const Completion& c, Nanos at) noexcept {
  const std::uint32_t i = keep(kept, c);
  wake(i, at);
  return i;
}

void FaultWire::wake(std::uint32_t item, Nanos at) noexcept {
  due_.push_back({at, sequence_++, item, items_[item].generation});
  std::push_heap(due_.begin(), due_.end());
}

void FaultWire::let_go(std::uint32_t i) noexcept {
  Item& item = items_[i];
  Side& s = sides_[side_of(item.completion.lane, item.completion.direction)];
  s.waiting -= item.kept == Kept::kHeldSend || item.kept == Kept::kSlowSend || item.kept == Kept::kPost;
  s.delayed -= item.kept == Kept::kPost || item.kept == Kept::kSignal;
  if (item.copy != kNoId) free_copies_.push_back(item.copy);
  item.kept = Kept::kNothing;
  ++item.generation;
  free_items_.push_back(i);
}

void FaultWire::release_due(Nanos now) noexcept {
  while (!due_.empty() && due_.front().at <= now && blocked_until_ <= now) {
    const Due due = due_.front();
    Item& item = items_[due.item];
    if (item.generation == due.generation) {
      switch (item.kept) {
        case Kept::kPost:
        case Kept::kSignal:
          if (!forward(item, now)) {
            blocked_until_ = now + kRetryNs;
            return;
          }
          if (item.kept == Kept::kHeldSend) break;  // a stall began while it waited
          let_go(due.item);
          break;
        case Kept::kSlowSend:
          ready_.push_back(item.completion);
          let_go(due.item);
          break;
        case Kept::kReceive:
        case Kept::kLate:
          release_receive(item);
          let_go(due.item);
          break;
        case Kept::kHeldSend:
        case Kept::kNothing:
          break;
      }
    }
    std::pop_heap(due_.begin(), due_.end());
    due_.pop_back();
  }
}

// A post or a signal whose delay is over. A cut has ended all posts that waited when it began, and no post waits in
// one.
bool FaultWire::forward(Item& item, Nanos now) noexcept {
  const Completion& c = item.completion;
  Side& s = sides_[side_of(c.lane, c.direction)];
  const Effect* e = effect_of(s);
  if (item.kept == Kept::kSignal) {
    const bool passes = !s.dead && (e == nullptr || (!e->cut && !e->stall));
    if (!passes || inner_.signal(c.lane, c.direction, c.epoch, c.signal, now) != Status::kOk) ++counters_.signal_lost;
    return true;
  }
  if (e != nullptr && e->stall) {
    item.kept = Kept::kHeldSend;
    --s.delayed;
    ++counters_.request_held;
    return true;
  }
  const Status status = inner_.post(item.request, now);
  if (status == Status::kBusy) return false;
  if (status == Status::kOk) {
    ++s.outstanding;
  } else {
    finish(item.request, WorkStatus::kError);
  }
  return true;
}

unsigned FaultWire::take_ready(std::span<Completion> out) noexcept {
  unsigned n = 0;
  while (n < out.size() && ready_head_ < ready_.size()) out[n++] = ready_[ready_head_++];
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
  return n;
}

unsigned FaultWire::poll(std::span<Completion> out, Nanos now) noexcept {
  advance(now);
  release_due(now);
  auto n = static_cast<std::size_t>(take_ready(out));
  for (bool more = true; more && n < out.size();) {
    const unsigned got = inner_.poll(out.subspan(n), now);
    more = got == out.size() - n;
    const std::size_t end = n + got;
    for (std::size_t i = n; i < end; ++i) {
      if (!judge(out[i], now)) continue;
      if (i != n) out[n] = out[i];
      ++n;
    }
  }
  n += take_ready(out.subspan(n));
  return static_cast<unsigned>(n);
}

Nanos FaultWire::next_time(Nanos now) const noexcept {
  if (ready_head_ < ready_.size() || !incoming_.empty()) return now;
  const Nanos kept = due_.empty() ? kNever : std::max(due_.front().at, blocked_until_);
  return std::min({next_edge_, kept, inner_.next_time(now)});
}

}  // namespace lk

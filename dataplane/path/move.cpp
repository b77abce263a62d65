// Move: transfers are posted, their requests complete, their chunks are acknowledged. A completion only ends the use of
// a request; a transfer is retired by the receiver's acknowledgement (a read, by its completion).
#include <algorithm>

#include "dataplane/base/crc32c.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

std::uint32_t Engine::make_transfer(OpState& op, std::uint32_t chunk, Step step, Rank from, Rank to,
                                    const std::byte* data) noexcept {
  const std::uint32_t index = transfers_.take();
  LK_CHECK(index != kNoId);  // begin_chunk reserved it
  EngineGroup& g = *op.group;
  Transfer& x = transfers_[index];
  x.op = &op;
  x.chunk = chunk;
  x.step = step;
  x.from = from;
  x.to = to;
  x.data = data;
  x.bytes = op.length(chunk);
  const std::size_t place = g.local_place[from];
  x.flow = g.flow_out[place * g.spec->members.size() + to];
  LK_CHECK(x.flow != kNoId);
  ++op.ranks[place].open_transfers;
  enqueue(index, false);
  return index;
}

// The order in a flow: older ops first; in an op first what the receiver consumes at once, since what it must hold may
// wait for exactly that; what is sent again before its like.
void Engine::enqueue(std::uint32_t index, bool front) noexcept {
  Transfer& x = transfers_[index];
  Flow& f = flows_[x.flow];
  const auto key = [](const Transfer& t) noexcept { return t.op->number * 2 + (is_held(t.step) ? 1U : 0U); };
  const OpNumber mine = key(x);
  x.queued = true;
  ++f.waiting;
  std::uint32_t* link = &f.head;
  if (!front && f.tail != kNoId && key(transfers_[f.tail]) <= mine) {
    link = &transfers_[f.tail].next;
  } else {
    while (*link != kNoId && (key(transfers_[*link]) < mine || (!front && key(transfers_[*link]) == mine))) {
      link = &transfers_[*link].next;
    }
  }
  x.next = *link;
  *link = index;
  if (x.next == kNoId) f.tail = index;
  mark_dirty(f.trunk);
}

void Engine::fill_header(const Transfer& x, std::uint32_t index, const LaneSide& s, WorkRequest& w) noexcept {
  ChunkHeader& h = w.header;
  h.incarnation = incarnation_;
  h.token = std::uint64_t{x.generation} << 32 | index;
  h.op = x.op->number;
  h.chunk = x.chunk;
  h.length = x.bytes;
  h.descriptor_hash = x.op->hash;
  h.plan_version = x.op->plan->version;
  h.group = x.op->group->spec->id;
  h.membership = x.op->group->spec->membership;
  h.from = x.from;
  h.to = x.to;
  h.step = static_cast<std::uint8_t>(x.step);
  h.has_crc = options_.checksum[static_cast<std::size_t>(s.kind)] ? 1 : 0;
  if (h.has_crc == 0) return;
  std::uint32_t crc = crc32c(0, &h, sizeof(h));
  if (x.data != nullptr) crc = crc32c(crc, x.data, x.bytes);
  h.crc = crc;
}

// False: no buffer now (relay, slot, wire); the transfer stays where it is.
bool Engine::post(std::uint32_t index, std::uint32_t side, Nanos now) noexcept {
  Transfer& x = transfers_[index];
  LaneSide& s = sides_[side];
  std::uint32_t* place = std::find(x.request, x.request + kMostPosts, kNoId);
  if (place == x.request + kMostPosts) return false;
  if (s.relay != kNoId16 && relay_free_[s.relay] == 0) {
    ++counters_[Counter::relay_refused];
    return false;
  }
  const std::uint32_t ri = posted_.take();
  if (ri == kNoId) return false;
  Request& r = posted_[ri];
  WorkRequest w;
  w.id = std::uint64_t{r.generation} << 32 | ri;
  w.lane = s.lane;
  w.epoch = s.epoch;
  w.direction = s.direction;
  w.kind = s.addressable ? RequestKind::kRead : RequestKind::kWrite;
  w.bytes = x.bytes;
  w.payload = x.data;
  RemoteSlot* remote = nullptr;
  if (!s.addressable) {
    if (s.far) {
      remote = free_slot(flows_[x.flow], x);
      if (remote != nullptr) r.slot = std::uint32_t{remote->slot} << 16 | remote->generation;
    } else if (const std::uint32_t slot = slots_.take(); slot != kNoId) {
      r.slot = slot << 16 | slots_.generation(slot);
    }
    if (r.slot == kNoId) {
      posted_.give_back(ri);
      return false;
    }
    w.slot = r.slot >> 16;
    w.immediate = r.slot;
    fill_header(x, index, s, w);
  }
  const double expected =
      cost_ns(s, x.bytes, s.measured_GBps > 0 ? std::min(s.measured_GBps, s.nominal_GBps) : s.nominal_GBps);
  if (wire_.post(w, now) != Status::kOk) {
    if (!s.far && r.slot != kNoId) slots_.give_back(r.slot >> 16);
    posted_.give_back(ri);
    return false;
  }
  if (remote != nullptr) {
    remote->free = false;
    remote->used_by = x.op->number;
  }
  *place = ri;
  r.transfer = index;
  append_request(ri, side, static_cast<Nanos>(std::min(expected, 1e15)), now);
  ++x.op->ranks[x.op->group->local_place[x.from]].open_requests;
  ++s.chunks;
  ++counters_[Counter::chunk_posted];
  if (x.resend) note_resent(x, s, now);
  x.last_side = side;
  return true;
}

// Puts a posted request at the end of its lane's queue, with the time by which it should be through.
void Engine::append_request(std::uint32_t ri, std::uint32_t side, Nanos expected_ns, Nanos now) noexcept {
  Request& r = posted_[ri];
  LaneSide& s = sides_[side];
  const Transfer& x = transfers_[r.transfer];
  r.in_use = true;
  r.transfer_generation = x.generation;
  r.side = side;
  r.bytes = x.bytes;
  r.posted_at = now;
  r.expected_ns = expected_ns + std::max(s.latency_ns, s.round_trip_ns);
  r.deadline = now + std::max(options_.stall_least_ns,
                              static_cast<Nanos>(options_.stall_factor * static_cast<double>(r.expected_ns)));
  r.relayed = s.relay != kNoId16;
  if (r.relayed) --relay_free_[s.relay];
  r.previous = s.tail;
  if (s.tail != kNoId) posted_[s.tail].next = ri;
  s.tail = ri;
  if (s.head == kNoId) {
    s.head = ri;
    s.progress_at = now;
    busy_.push_back(side);
    arm(r.deadline);
  }
  ++s.request_count;
  s.queued_bytes += r.bytes;
  s.turn_bytes += r.bytes;
  each_hop(s, [&](std::size_t hop) { link_queued_[hop] += r.bytes; });
}

// The first chunk that moves elsewhere after a lane failed is what a failover took.
void Engine::note_resent(Transfer& x, LaneSide& s, Nanos now) noexcept {
  ++s.resent;
  ++counters_[x.hedge ? Counter::chunk_hedged : Counter::chunk_resent];
  LaneSide& old = sides_[x.last_side];
  if (!old.orphan_reported) {
    old.orphan_reported = true;
    Event e;
    e.kind = EventKind::kChunkResent;
    e.cause = x.hedge ? Cause::kStall : Cause::kBadCompletion;
    e.lane = old.lane;
    e.direction = old.direction;
    e.value = static_cast<std::uint64_t>(now - x.orphaned_at);
    emit(e, now);
  }
  x.resend = x.hedge = false;
}

unsigned Engine::take_completions(Nanos now) noexcept {
  Completion burst[32];
  unsigned total = 0;
  for (unsigned round = 0; round < 8; ++round) {
    const unsigned n = wire_.poll(burst, now);
    for (unsigned i = 0; i < n; ++i) {
      switch (burst[i].kind) {
        case CompletionKind::kSendDone:
          on_send_done(burst[i], now);
          break;
        case CompletionKind::kRecv:
          on_recv(burst[i], now);
          break;
        case CompletionKind::kSignal:
          on_signal(burst[i], now);
          break;
        case CompletionKind::kPortDown:
          on_port(burst[i].link, false, now);
          break;
        case CompletionKind::kPortUp:
          on_port(burst[i].link, true, now);
          break;
      }
    }
    total += n;
    if (n < 32) break;
  }
  return total;
}

void Engine::on_send_done(const Completion& c, Nanos now) noexcept {
  const auto ri = static_cast<std::uint32_t>(c.id);
  Request& r = posted_[ri];
  if (!r.in_use || r.generation != static_cast<std::uint32_t>(c.id >> 32) || r.reaped) return;
  r.reaped = true;
  Transfer& x = transfers_[r.transfer];
  LaneSide& s = sides_[r.side];
  const std::uint32_t side = r.side;
  if (r.relayed) ++relay_free_[s.relay];
  OpState& op = *x.op;
  const std::size_t place = op.group->local_place[x.from];
  --op.ranks[place].open_requests;
  if (c.status == WorkStatus::kError) fail_side(side, Cause::kBadCompletion, now);
  if (!r.in_use) return check_done(op, place);  // fail_side settled it
  const std::uint32_t xi = r.transfer;
  if (c.status == WorkStatus::kOk && s.addressable && s.state != LaneState::kDown) {
    progress(s, r, now);
    if (!x.retired && !x.cancelled) {
      if (x.step == Step::kGather) {
        gather_arrived(op, x.chunk, op.group->spec->domains.empty() ? 0 : op.group->spec->place_of[x.from], now);
      } else {
        const std::byte* value = x.data;
        this->place(op, x.chunk, op.group->local_place[x.to], value, now);
      }
      retire(xi, now);
    }
  }
  Request& again = posted_[ri];
  if (again.in_use &&
      (c.status != WorkStatus::kOk || s.addressable || transfers_[xi].retired || transfers_[xi].cancelled)) {
    settle(ri, now);
  }
  check_done(op, place);
}

// A chunk of this side moved.
void Engine::progress(LaneSide& s, const Request& r, Nanos now) noexcept {
  const Nanos busy = now - std::max(r.posted_at, s.progress_at);
  s.progress_at = now;
  s.unanswered = 0;
  s.proved_at = now;
  s.sent_bytes += r.bytes;
  counters_[Counter::payload_sent_bytes] += r.bytes;
  if (busy > 0) {
    const double rate = static_cast<double>(r.bytes) / static_cast<double>(busy);
    if (s.measured_GBps <= 0) s.measured_GBps = rate;
    // A chunk that found the lane idle also waited for the way there and back: it only shows that more is possible.
    if (s.request_count > 1 || rate > s.measured_GBps) s.measured_GBps += (rate - s.measured_GBps) / 8;
  }
  if (s.state == LaneState::kStalled) resume(side_index(s.lane, s.direction), now);
}

void Engine::on_ack(const Signal& sig, Nanos now) noexcept {
  for (unsigned i = 0; i + 1 < sig.count; i += 2) {
    const auto xi = static_cast<std::uint32_t>(sig.words[i]);
    if (xi >= transfers_.size()) continue;
    Transfer& x = transfers_[xi];
    if (x.op == nullptr || x.generation != static_cast<std::uint32_t>(sig.words[i] >> 32)) continue;
    for (const std::uint32_t ri : x.request) {
      if (ri != kNoId && posted_[ri].slot == static_cast<std::uint32_t>(sig.words[i + 1])) {
        posted_[ri].landed = true;
        progress(sides_[posted_[ri].side], posted_[ri], now);
        break;
      }
    }
    if (x.retired || x.cancelled) continue;
    ++counters_[Counter::chunk_acknowledged];
    retire(xi, now);
  }
}

// The receiver has the chunk. The sender's memory may still be in use by requests that are not reaped.
void Engine::retire(std::uint32_t index, Nanos now) noexcept {
  Transfer& x = transfers_[index];
  if (x.retired) return;
  x.retired = true;
  OpState& op = *x.op;
  const std::size_t place = op.group->local_place[x.from];
  const std::uint32_t chunk = x.chunk;
  const Step step = x.step;
  const Rank to = x.to;
  --op.ranks[place].open_transfers;
  settle_reaped(index, now);
  free_transfer_if_done(index);
  if (step == Step::kSpread && op.status == Status::kOk && --op.spread_left[chunk] == 0) spread_done(op, chunk, now);
  for (OpState* running : op.group->running) advance_stream(*running, place, to);
  check_done(op, place);
}

void Engine::settle_reaped(std::uint32_t index, Nanos now) noexcept {
  Transfer& x = transfers_[index];
  for (const std::uint32_t ri : x.request) {
    if (ri != kNoId && posted_[ri].reaped) settle(ri, now);
  }
}

// A request has no more effect: its lane's queue moves on.
void Engine::settle(std::uint32_t ri, Nanos now) noexcept {
  Request& r = posted_[ri];
  LaneSide& s = sides_[r.side];
  (r.previous != kNoId ? posted_[r.previous].next : s.head) = r.next;
  (r.next != kNoId ? posted_[r.next].previous : s.tail) = r.previous;
  --s.request_count;
  s.queued_bytes -= r.bytes;
  each_hop(s, [&](std::size_t hop) { link_queued_[hop] -= r.bytes; });
  if (s.head == kNoId) {
    std::erase(busy_, r.side);
    if (s.state == LaneState::kUp) s.orphan_reported = false;
    if (s.state == LaneState::kStalled) arm(0);
  }
  if (r.slot != kNoId) note_missing(r, now);
  Transfer& x = transfers_[r.transfer];
  std::replace(x.request, x.request + kMostPosts, ri, kNoId);
  const std::uint32_t xi = r.transfer;
  posted_.give_back(ri);
  free_transfer_if_done(xi);
  mark_dirty(s.trunk);
  for (const std::uint32_t t : starved_) mark_dirty(t);
  starved_.clear();
}

void Engine::free_transfer_if_done(std::uint32_t index) noexcept {
  Transfer& x = transfers_[index];
  if (x.op == nullptr || x.queued || x.posts() != 0 || !(x.retired || x.cancelled)) return;
  transfers_.give_back(index);
}

}  // namespace lk

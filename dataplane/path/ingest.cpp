// Ingest: ranks enter ops. An op starts at this node when all its local ranks have entered it, so no buffer is read or
// written before its owner allowed it. Ops of a group start in order, a few at a time.
#include <algorithm>
#include <cstring>

#include "dataplane/collective/schedule.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

unsigned Engine::take_requests(Nanos now) noexcept {
  unsigned n = 0;
  if (!deferred_.empty()) {
    std::vector<OpRequest> again;
    again.swap(deferred_);
    for (const OpRequest& q : again) enter(q, now);
  }
  OpRequest q;
  for (; n < 64 && requests_.pop(q); ++n) enter(q, now);
  return n;
}

Status Engine::check_request(const OpRequest& q) const noexcept {
  const EngineGroup* g = q.group < groups_.size() ? groups_[q.group].get() : nullptr;
  if (g == nullptr) return Status::kInvalid;
  if (q.membership != 0 && q.membership != g->spec->membership) return Status::kNodeLost;  // it has shrunk since
  if (q.rank >= g->local_place.size() || g->local_place[q.rank] == kNoId16) return Status::kInvalid;
  if (q.kind > Collective::kBroadcast || q.redop > RedOp::kAvg || q.dtype > DType::kBF16) return Status::kUnsupported;
  if (q.kind == Collective::kBroadcast && q.root >= g->spec->members.size()) return Status::kInvalid;
  if (q.count > (std::uint64_t{1} << 40)) return Status::kInvalid;
  if (options_.payload && q.count > 0 && (q.in == nullptr || q.out == nullptr || q.scratch == nullptr))
    return Status::kInvalid;
  return Status::kOk;
}

void Engine::refuse(const OpRequest& q, Status status, NodeId lost) noexcept {
  OpResult r;
  r.number = q.number;
  r.cookie = q.cookie;
  r.session = q.session;
  r.group = q.group;
  r.rank = q.rank;
  r.membership = q.membership;
  r.status = status;
  r.lost_node = lost;
  ++counters_[Counter::op_failed];
  push_result(r);
}

void Engine::enter(const OpRequest& q, Nanos now) noexcept {
  const EngineGroup* known = group(q.group);
  if (known != nullptr && !known->ended && q.membership > known->spec->membership) {
    deferred_.push_back(q);  // the client has heard of the new membership before us
    return;
  }
  if (const Status s = check_request(q); s != Status::kOk) return refuse(q, s);
  EngineGroup& g = *groups_[q.group];
  if (g.ended) return refuse(q, g.end_status, g.end_node);
  if (q.number < g.next_start || q.number < g.spec->first_op) {
    const auto& closed = g.closed[q.number % kOpWindow];
    const bool failed = closed.number == q.number && closed.status != Status::kOk;
    return refuse(q, failed ? closed.status : Status::kInvalid, failed ? closed.lost_node : kNoId16);
  }
  if (q.number >= g.next_start + kOpWindow - 8 ||
      (g.ops[q.number % kOpWindow] != nullptr && g.ops[q.number % kOpWindow]->open && g.find(q.number) == nullptr)) {
    deferred_.push_back(q);
    return;
  }
  if (const auto& closed = g.closed[q.number % kOpWindow]; closed.number == q.number && closed.status != Status::kOk) {
    refuse(q, closed.status, closed.lost_node);
    return start_ready(g, now);
  }
  OpState* found = g.find(q.number);
  OpState& op = found != nullptr ? *found : open_op(g, q, now);
  const std::size_t place = g.local_place[q.rank];
  if (op.status != Status::kOk) return refuse(q, op.status, op.lost_node);
  if (op.ranks[place].entered) return refuse(q, Status::kInvalid);
  op.ranks[place].entered = true;
  op.ranks[place].request = q;
  ++op.entered;
  ++counters_[Counter::op_entered];
  g.highest_entered = std::max(g.highest_entered, q.number);
  if (descriptor_hash(q, g.spec->membership) != op.hash) {
    Rank first = kNoId16;
    for (std::size_t i = 0; i < op.ranks.size() && first == kNoId16; ++i) {
      if (op.ranks[i].entered && i != place) first = g.local[i];
    }
    mismatch(op, q.rank, now, first);
  }
  start_ready(g, now);
}

OpState& Engine::open_op(EngineGroup& g, const OpRequest& q, Nanos now) {
  auto& owned = g.ops[q.number % kOpWindow];
  if (owned == nullptr) owned = std::make_unique<OpState>();
  OpState& op = *owned;
  op.open = true;
  op.started = op.advancing = false;
  op.status = Status::kOk;
  op.group = &g;
  op.plan = nullptr;
  op.number = q.number;
  op.hash = descriptor_hash(q, g.spec->membership);
  op.kind = q.kind;
  op.redop = q.redop;
  op.dtype = q.dtype;
  op.root = q.root;
  op.count = q.count;
  op.bytes = q.count * size_of(q.dtype);
  op.chunks = 0;
  op.entered = op.delivered = 0;
  op.entered_at = now;
  op.lost_node = kNoId16;
  op.other_rank = kNoId16;
  op.ranks.assign(g.local.size(), LocalRank{});
  arm(now + options_.op_deadline_ns);
  return op;
}

void Engine::start_ready(EngineGroup& g, Nanos now) noexcept {
  while (g.running.size() < options_.active_ops && !g.ended) {
    const auto& closed = g.closed[g.next_start % kOpWindow];
    OpState* op = g.find(g.next_start);
    if (op == nullptr && closed.number == g.next_start && closed.status != Status::kOk) {
      ++g.next_start;  // failed before it began
      continue;
    }
    if (op == nullptr || op->entered < g.local.size() || op->status != Status::kOk) return;
    if (op->number >= g.hold_from || g.plan_of(op->number) == nullptr) return;
    ++g.next_start;
    g.highest_started = op->number;
    g.running.push_back(op);
    start(*op, now);
  }
}

void Engine::lay_out(OpState& op) {
  EngineGroup& g = *op.group;
  const std::size_t m = g.domain_size(), d = g.domains();
  op.plan = g.plan_of(op.number);
  op.chunk_bytes = chunk_bytes_for(op.bytes, *op.plan);
  op.chunks = static_cast<std::uint32_t>((op.bytes + op.chunk_bytes - 1) / op.chunk_bytes);
  const std::uint16_t only = op.kind == Collective::kBroadcast ? g.spec->domain_of[op.root] : kNoId16;
  assign_chunks(*op.plan, g.spec->columns, static_cast<std::uint16_t>(d), op.chunks, only, op.column, op.home);
  op.mask_words = static_cast<unsigned>((m + 63) / 64);
  op.phase.assign(op.chunks, ChunkPhase::kIdle);
  op.gathered.assign(std::size_t{op.chunks} * op.mask_words, 0);
  op.crossed.assign(op.chunks, 0);
  op.placed.assign(op.chunks, 0);
  op.spread_left.assign(op.chunks, 0);
  op.need_left.assign(op.chunks, 0);
  op.gather_slot.assign(std::size_t{op.chunks} * m, kNoId);
  op.cross_slot.assign(std::size_t{op.chunks} * d, kNoId);
  op.next_owned.assign(g.local.size(), 0);
  op.active.assign(g.local.size(), 0);
  op.next_stream.assign(g.local.size() * m, 0);
}

void Engine::start(OpState& op, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  op.started = true;
  lay_out(op);
  grant_op(g, op, now);
  const std::size_t root_place = op.kind == Collective::kBroadcast ? g.local_place[op.root] : kNoId16;
  if (root_place != kNoId16) {  // the root has the result already
    const OpRequest& q = op.ranks[root_place].request;
    if (q.in != nullptr && q.in != q.out) std::memmove(q.out, q.in, op.bytes);
    for (std::uint32_t c = 0; c < op.chunks; ++c) op.placed[c] |= std::uint64_t{1} << root_place;
    op.ranks[root_place].placed = op.chunks;
  }
  advance_owners(op, now);
  advance_streams(op);
  for (std::size_t i = 0; i < op.ranks.size() && op.open; ++i) check_done(op, i);
}

}  // namespace lk

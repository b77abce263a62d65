// Complete: an op ends for a rank when all its chunks are placed, all its transfers are retired and no request touches
// its memory any more. A failed op ends with an error that says who and how far, and also only then: a lane that keeps
// a request is fenced.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {

void Engine::check_done(OpState& op, std::size_t place) noexcept {
  if (!op.open || !op.started || op.status != Status::kOk) return;
  const LocalRank& r = op.ranks[place];
  if (r.delivered || r.placed != op.chunks || r.open_transfers != 0 || r.open_requests != 0) return;
  ++counters_[Counter::op_completed];
  deliver(op, place);
  if (op.delivered == op.ranks.size()) close_op(op);
}

void Engine::deliver(OpState& op, std::size_t place) noexcept {
  LocalRank& r = op.ranks[place];
  r.delivered = true;
  ++op.delivered;
  OpResult out;
  out.number = op.number;
  out.cookie = r.request.cookie;
  out.session = r.request.session;
  out.group = op.group->spec->id;
  out.rank = r.request.rank;
  out.membership = op.group->spec->membership;
  out.status = op.status;
  out.lost_node = op.lost_node;
  out.other_rank = op.other_rank;
  out.chunks_done = r.placed;
  out.chunks_total = op.chunks;
  push_result(out);
}

void Engine::push_result(const OpResult& r) noexcept {
  if (late_results_.empty() && results_.push(r)) return;
  ++counters_[Counter::result_delayed];
  late_results_.push_back(r);
}

unsigned Engine::deliver_late_results() noexcept {
  unsigned n = 0;
  while (n < late_results_.size() && results_.push(late_results_[n])) ++n;
  late_results_.erase(late_results_.begin(), late_results_.begin() + n);
  return n;
}

void Engine::close_op(OpState& op) noexcept {
  EngineGroup& g = *op.group;
  op.open = false;
  g.closed[op.number % kOpWindow] = {op.number, op.hash, op.status, op.lost_node};
  std::erase(g.running, &op);
  for (Rank r = 0; r < g.spec->members.size(); ++r) {
    for (std::size_t p = 0; p < g.local.size(); ++p) {
      const std::uint32_t f = g.flow_out[p * g.spec->members.size() + r];
      if (f != kNoId && flows_[f].head != kNoId) mark_dirty(flows_[f].trunk);  // the next op may use the kept slots now
    }
  }
  arm(0);  // start the next one from the tick, not from inside this op's bookkeeping
}

void Engine::mismatch(OpState& op, Rank other, Nanos now, Rank mine) noexcept {
  if (op.status != Status::kOk) return;
  Event e;
  e.kind = EventKind::kMismatch;
  e.group = op.group->spec->id;
  e.op = op.number;
  e.value = std::uint64_t{mine == kNoId16 ? op.group->local.front() : mine} << 16 | other;
  emit(e, now);
  fail_op(op, Status::kMismatch, kNoId16, other, true, now);
}

void Engine::fail_op(OpState& op, Status status, NodeId lost, Rank other, bool tell, Nanos now) noexcept {
  if (!op.open || op.status != Status::kOk) return;
  op.status = status;
  op.lost_node = lost;
  op.other_rank = other;
  Event e;
  e.kind = EventKind::kOpFailed;
  e.status = status;
  e.group = op.group->spec->id;
  e.op = op.number;
  e.peer = lost;
  emit(e, now);
  op.group->closed[op.number % kOpWindow] = {op.number, op.hash, status, lost};
  if (tell) send_abort(op, now);
  drop_chunks(op);
  failing_.push_back(&op);
  arm(now);
}

// Takes everything of a failed op out of queues, pools and slots. Requests under way stay until they are reaped.
void Engine::drop_chunks(OpState& op) noexcept {
  for (std::uint32_t i = 0; i < transfers_.size(); ++i) {
    Transfer& x = transfers_[i];
    if (x.op != &op || x.cancelled) continue;
    x.cancelled = true;
    if (!x.retired) --op.ranks[op.group->local_place[x.from]].open_transfers;
    if (!x.queued) {
      for (const std::uint32_t ri : x.request) {
        if (ri != kNoId && posted_[ri].reaped) settle(ri, 0);
      }
      free_transfer_if_done(i);
    }
  }
  for (Flow& f : flows_) {
    if (f.group != op.group->spec->id || !f.outgoing) continue;
    std::uint32_t* link = &f.head;
    f.tail = kNoId;
    while (*link != kNoId) {
      const std::uint32_t i = *link;
      Transfer& x = transfers_[i];
      if (!x.cancelled) {
        f.tail = i;
        link = &x.next;
        continue;
      }
      *link = x.next;
      --f.waiting;
      x.queued = false;
      for (const std::uint32_t ri : x.request) {
        if (ri != kNoId && posted_[ri].reaped) settle(ri, 0);
      }
      free_transfer_if_done(i);
    }
  }
  for (std::uint16_t& n : op.need_left) {
    reserved_transfers_ -= n;
    n = 0;
  }
  for (std::uint32_t& slot : op.gather_slot) release_slot(slot);
  for (std::uint32_t& slot : op.cross_slot) release_slot(slot);
  std::fill(op.active.begin(), op.active.end(), 0);
}

// True when every local rank that entered has its result. Lanes that hold a request are fenced: after an error nothing
// may touch a client's memory.
bool Engine::deliver_failed(OpState& op, Nanos now) noexcept {
  bool all = true;
  for (std::size_t p = 0; p < op.ranks.size(); ++p) {
    LocalRank& r = op.ranks[p];
    if (!r.entered || r.delivered) continue;
    if (r.open_requests != 0) {
      all = false;
      continue;
    }
    ++counters_[Counter::op_failed];
    deliver(op, p);
  }
  if (all) return true;
  std::vector<std::uint32_t> holders;
  for (const std::uint32_t side : busy_) {
    for (std::uint32_t ri = sides_[side].head; ri != kNoId; ri = posted_[ri].next) {
      const Transfer& x = transfers_[posted_[ri].transfer];
      if (x.op == &op && !posted_[ri].reaped && now - posted_[ri].posted_at > 10 * posted_[ri].expected_ns + kMilli) {
        holders.push_back(side);
        break;
      }
    }
  }
  for (const std::uint32_t side : holders) {
    if (sides_[side].state == LaneState::kUp || sides_[side].state == LaneState::kStalled)
      fail_side(side, Cause::kStall, now);
  }
  return false;
}

void Engine::deliver_failed_all(Nanos now) noexcept {
  for (std::size_t i = 0; i < failing_.size();) {
    OpState& op = *failing_[i];
    if (!deliver_failed(op, now)) {
      arm(now + kMilli);
      ++i;
      continue;
    }
    failing_[i] = failing_.back();
    failing_.pop_back();
    op.delivered = static_cast<std::uint32_t>(op.ranks.size());
    close_op(op);
  }
}

}  // namespace lk

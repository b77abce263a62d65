// Credits: the receiver owns the landing slots and grants them to flows (one rank of a group to another). A grant is a
// slot and its generation; telling it twice does no harm, so everything is told again when it may have been lost.
// Of a flow's slots some are kept (free_slot): what waits for others cannot starve them.
#include <algorithm>

#include "dataplane/path/engine.hpp"

namespace lk {

void Engine::grant_slots(Flow& f, std::uint32_t index, unsigned quota) noexcept {
  while (f.granted.size() < quota) {
    const std::uint32_t slot = slots_.take();
    if (slot == kNoId) return;
    slots_.set_owner(slot, index);
    f.granted.push_back(slot);
    f.to_advertise.push_back(slot);
  }
}

// All local ranks have entered the op: whoever sends to us may send it now.
void Engine::grant_op(EngineGroup& g, OpState& op, Nanos now) noexcept {
  for (const std::uint32_t f : g.flows_in) {
    flows_[f].granted_op = op.number;
    send_credit(f, op.number, op.hash, false, now);
  }
}

void Engine::send_credit(std::uint32_t index, OpNumber granted, std::uint32_t hash, bool all, Nanos now) noexcept {
  Flow& f = flows_[index];
  const EngineGroup& g = *groups_[f.group];
  Signal s = new_signal(SignalKind::kCredit, cluster_.gpus[f.from].node);
  s.group = f.group;
  s.membership = g.spec->membership;
  s.words[0] = std::uint64_t{f.from} << 16 | f.to;
  s.words[1] = granted;
  s.words[2] = hash;
  unsigned n = 0;
  const auto put = [&](std::uint32_t slot) noexcept {
    if (n >= (kSignalWords - 3) * 2 || slots_.state(slot) != SlotState::kGranted) return;
    const std::uint64_t grant = std::uint64_t{slot} << 16 | slots_.generation(slot);
    std::uint64_t& word = s.words[3 + n / 2];
    word = n % 2 == 0 ? (grant << 32 | 0xffffffffU) : ((word & ~std::uint64_t{0xffffffffU}) | grant);
    ++n;
  };
  for (const std::uint32_t slot : all ? f.granted : f.to_advertise) put(slot);
  f.to_advertise.clear();
  s.count = static_cast<std::uint8_t>(3 + (n + 1) / 2);
  send_signal(s, now);
}

void Engine::flush_credits(Nanos now) noexcept {
  for (const std::uint32_t f : credits_due_) {
    flows_[f].credit_due = false;
    if (!flows_[f].active)
      flows_[f].to_advertise.clear();
    else
      send_credit(f, flows_[f].granted_op, 0, false, now);
  }
  credits_due_.clear();
}

void Engine::on_credit(const Signal& s, Nanos now) noexcept {
  EngineGroup* g = group(s.group);
  if (g == nullptr || g->ended || s.membership != g->spec->membership || s.count < 3) return;
  const auto from = static_cast<EndpointId>(s.words[0] >> 16), to = static_cast<EndpointId>(s.words[0]);
  Flow* flow = nullptr;
  Rank to_rank = kNoId16;
  for (std::size_t p = 0; p < g->local.size() && flow == nullptr; ++p) {
    if (g->spec->members[g->local[p]] != from) continue;
    for (Rank r = 0; r < g->spec->members.size(); ++r) {
      const std::uint32_t f = g->flow_out[p * g->spec->members.size() + r];
      if (f != kNoId && g->spec->members[r] == to) {
        flow = &flows_[f];
        to_rank = r;
        break;
      }
    }
  }
  if (flow == nullptr) return;
  flow->granted_op = std::max<OpNumber>(flow->granted_op, s.words[1]);
  for (unsigned i = 0; i < (s.count - 3U) * 2; ++i) {
    const auto grant = static_cast<std::uint32_t>(i % 2 == 0 ? s.words[3 + i / 2] >> 32 : s.words[3 + i / 2]);
    if (grant == 0xffffffffU) continue;
    const auto slot = static_cast<std::uint16_t>(grant >> 16), generation = static_cast<std::uint16_t>(grant);
    const auto it =
        std::find_if(flow->remote.begin(), flow->remote.end(), [slot](const RemoteSlot& r) { return r.slot == slot; });
    if (it == flow->remote.end()) {
      if (flow->remote.size() < flow->remote.capacity()) flow->remote.push_back({slot, generation, true, 0});
    } else if (static_cast<std::int16_t>(generation - it->generation) > 0) {
      *it = {slot, generation, true, 0};
    }
  }
  mark_dirty(flow->trunk);
  if (s.words[2] != 0) check_hash(*g, s.words[1], static_cast<std::uint32_t>(s.words[2]), to_rank, now);
}

// Another rank entered op `number`: do we mean the same op?
void Engine::check_hash(EngineGroup& g, OpNumber number, std::uint32_t hash, Rank other, Nanos now) noexcept {
  if (OpState* op = g.find(number); op != nullptr) {
    if (op->hash != hash) mismatch(*op, other, now);
    return;
  }
  // An op that already ended here for all ranks (one of no elements): tell the others that they mean something else.
  const auto& closed = g.closed[number % kOpWindow];
  if (closed.number != number || closed.status != Status::kOk || closed.hash == hash) return;
  OpState gone;
  gone.group = &g;
  gone.number = number;
  gone.status = Status::kMismatch;
  gone.other_rank = other;
  send_abort(gone, now);
}

// A slot for this transfer, if one is left that is not kept for others. Two kinds of chunks must always get through:
// those that are consumed at once (a few slots are theirs), and the held ones of the oldest op (active_chunks slots).
RemoteSlot* Engine::free_slot(Flow& f, const Transfer& x) noexcept {
  const EngineGroup& g = *x.op->group;
  const OpNumber oldest = g.running.empty() ? x.op->number : g.running.front()->number;
  RemoteSlot* found = nullptr;
  unsigned free = 0, by_oldest = 0;
  for (RemoteSlot& r : f.remote) {
    if (r.free) {
      ++free;
      found = &r;
    } else if (r.used_by == oldest) {
      ++by_oldest;
    }
  }
  if (found == nullptr || !is_held(x.step)) return found;
  unsigned kept = kAtOnceSlots;
  if (x.op->number != oldest && g.active_chunks > by_oldest) kept += g.active_chunks - by_oldest;
  return free > kept ? found : nullptr;
}

}  // namespace lk

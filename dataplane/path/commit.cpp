// Commit: a chunk landed. It is checked (slot generation, epoch, incarnation, membership, op, descriptor, checksum) and
// entered in the ledger; the first commit of a (step, chunk, source) wins, later ones are counted and dropped. Then it
// is acknowledged. Everything that is refused leaves the slot to be granted again and is never acknowledged.
#include <cstring>

#include "dataplane/base/crc32c.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

void Engine::on_recv(const Completion& c, Nanos now) noexcept {
  const std::uint32_t slot = c.immediate >> 16;
  const std::uint32_t side = our_side(c.lane, c.direction);
  LaneSide& s = sides_[side];
  if (s.far && s.state == LaneState::kProbing && s.epoch == c.epoch) lane_returned(side, now);
  const bool epoch_ok = s.epoch == c.epoch && s.state != LaneState::kFencing && s.state != LaneState::kDown;
  if (!epoch_ok || slot >= slots_.size() || !slots_.is_granted(slot, static_cast<std::uint16_t>(c.immediate))) {
    ++counters_[Counter::chunk_stale_rejected];
    Event e;
    e.kind = EventKind::kChunkStale;
    e.lane = c.lane;
    e.direction = c.direction;
    emit(e, now);
    return;
  }
  const std::byte* memory = slots_.memory().slot(slot);
  ChunkHeader h;
  std::memcpy(&h, memory, sizeof(h));
  slots_.hold(slot);
  if (!accept(c, h, memory + sizeof(h), now)) return free_landed(slot);
  const std::uint32_t word = std::uint32_t{slot} << 16 | slots_.generation(slot);
  slots_.note_committed(slot);
  EngineGroup& g = *groups_[h.group];
  OpState* op = g.find(h.op);
  const bool have = op == nullptr || already_have(*op, h);
  // The token is acknowledged with the slot's number of this landing, before the slot gets its next generation.
  const NodeId to = s.far ? s.peer : node_;
  if (have) {
    ++counters_[Counter::chunk_duplicate_dropped];
    free_landed(slot);
  } else {
    ++counters_[Counter::chunk_committed];
    commit(*op, h, slot, now);
  }
  if (s.far) {
    Peer& p = peers_[to];
    if (p.acks.count == 0) {
      p.acks = new_signal(SignalKind::kAck, to);
      acks_due_.push_back(to);
    }
    p.acks.words[p.acks.count++] = h.token;
    p.acks.words[p.acks.count++] = word;
    p.told.note(h.token, word);
    if (p.acks.count + 2U > kSignalWords) {
      send_signal(p.acks, now);
      p.acks.count = 0;
      std::erase(acks_due_, to);
    }
    return;
  }
  Signal own = new_signal(SignalKind::kAck, node_);
  own.count = 2;
  own.words[0] = h.token;
  own.words[1] = word;
  on_ack(own, now);
}

// The checks that need more than the slot. True: to be committed, or known already and to be acknowledged again.
bool Engine::accept(const Completion& c, const ChunkHeader& h, const std::byte* payload, Nanos now) noexcept {
  const std::uint32_t side = our_side(c.lane, c.direction);
  LaneSide& s = sides_[side];
  // A header that a bit flip changed must not be believed: the checksum covers it, so it comes first where there is
  // one.
  if (h.has_crc != 0 || options_.checksum[static_cast<std::size_t>(s.kind)]) {
    ChunkHeader plain = h;
    plain.crc = 0;
    const bool length_ok = h.length <= slots_.payload_bytes();
    std::uint32_t crc = crc32c(0, &plain, sizeof(plain));
    if (length_ok && options_.payload) crc = crc32c(crc, payload, h.length);
    if (!length_ok || crc != h.crc) {
      ++counters_[Counter::chunk_corrupt_rejected];
      emit_lane(EventKind::kChunkCorrupt, s, Cause::kCorrupt, 0, now);
      fail_side(side, Cause::kCorrupt, now);
      return false;
    }
  }
  const NodeId from = s.far ? s.peer : node_;
  if (from != node_ ? !hear(from, h.incarnation, now) : h.incarnation != incarnation_) {
    ++counters_[Counter::chunk_stale_rejected];
    return false;
  }
  EngineGroup* g = group(h.group);
  if (g == nullptr || g->ended) {
    ++counters_[Counter::chunk_unknown_rejected];
    return false;
  }
  if (h.membership != g->spec->membership) {
    ++counters_[Counter::chunk_stale_rejected];
    return false;
  }
  const OpState* op = g->find(h.op);
  if (op == nullptr || !op->started || op->status != Status::kOk) {
    const auto& closed = g->closed[h.op % kOpWindow];
    if (op == nullptr && closed.number == h.op && closed.status == Status::kOk && closed.hash == h.descriptor_hash)
      return true;
    ++counters_[Counter::chunk_unknown_rejected];
    return false;
  }
  if (op->hash != h.descriptor_hash || op->plan->version != h.plan_version) {
    mismatch(*g->find(h.op), h.from, now);
    return false;
  }
  if (!valid_chunk(*op, h)) {
    ++counters_[Counter::chunk_unknown_rejected];
    return false;
  }
  return true;
}

// Is this a chunk that the schedule sends here?
bool Engine::valid_chunk(const OpState& op, const ChunkHeader& h) const noexcept {
  const EngineGroup& g = *op.group;
  const std::size_t ranks = g.spec->members.size();
  if (h.chunk >= op.chunks || h.length != op.length(h.chunk) || h.from >= ranks || h.to >= ranks) return false;
  if (g.local_place[h.to] == kNoId16) return false;
  const Rank owner = g.spec->owner(g.domain, op.column[h.chunk]);
  switch (static_cast<Step>(h.step)) {
    case Step::kGather:
      return h.to == owner && g.spec->domain_of[h.from] == g.domain;
    case Step::kCross:
      return h.to == owner && op.home[h.chunk] == g.domain && g.spec->domain_of[h.from] != g.domain;
    case Step::kReturn:
      return h.to == owner && op.home[h.chunk] == g.spec->domain_of[h.from] && op.home[h.chunk] != g.domain;
    case Step::kSpread:
      return h.from == owner;
  }
  return false;
}

bool Engine::already_have(const OpState& op, const ChunkHeader& h) const noexcept {
  const EngineGroup& g = *op.group;
  switch (static_cast<Step>(h.step)) {
    case Step::kGather: {
      const std::size_t place = g.spec->place_of[h.from];
      return (op.gathered[std::size_t{h.chunk} * op.mask_words + place / 64] >> (place % 64) & 1) != 0;
    }
    case Step::kCross:
      return (op.crossed[h.chunk] >> g.spec->domain_of[h.from] & 1) != 0;
    case Step::kReturn:
      return op.phase[h.chunk] >= ChunkPhase::kFinal || (op.crossed[h.chunk] >> g.spec->domain_of[h.from] & 1) != 0;
    case Step::kSpread:
      return (op.placed[h.chunk] >> g.local_place[h.to] & 1) != 0;
  }
  return true;
}

void Engine::commit(OpState& op, const ChunkHeader& h, std::uint32_t slot, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  const std::byte* payload = slots_.memory().slot(slot) + sizeof(ChunkHeader);
  const std::size_t to = g.local_place[h.to];
  switch (static_cast<Step>(h.step)) {
    case Step::kGather:
      op.gather_slot[std::size_t{h.chunk} * g.domain_size() + g.spec->place_of[h.from]] = slot;
      return gather_arrived(op, h.chunk, g.spec->place_of[h.from], now);
    case Step::kCross:
      op.cross_slot[std::size_t{h.chunk} * g.domains() + g.spec->domain_of[h.from]] = slot;
      return cross_arrived(op, h.chunk, g.spec->domain_of[h.from], now);
    case Step::kReturn: {
      if (op.phase[h.chunk] == ChunkPhase::kIdle) {  // a broadcast ahead of our window: begin_chunk finds it
        op.crossed[h.chunk] |= std::uint64_t{1} << g.spec->domain_of[h.from];
        op.cross_slot[std::size_t{h.chunk} * g.domains() + g.spec->domain_of[h.from]] = slot;
        return;
      }
      std::byte* scratch = op.ranks[to].request.scratch;
      if (options_.payload) std::memcpy(scratch + op.offset(h.chunk), payload, h.length);
      free_landed(slot);
      return finish_chunk(op, h.chunk, now);
    }
    case Step::kSpread:
      place(op, h.chunk, to, options_.payload ? payload : nullptr, now);
      return free_landed(slot);
  }
}

// The slot may be written again: told to the flow that it belongs to, or free when it is the node's own.
void Engine::free_landed(std::uint32_t slot) noexcept {
  const std::uint32_t owner = slots_.owner(slot);
  if (owner == kNoId) return slots_.give_back(slot);
  Flow& f = flows_[owner];
  if (!f.active) {
    std::erase(f.granted, slot);
    return slots_.give_back(slot);
  }
  slots_.regrant(slot);
  f.to_advertise.push_back(slot);
  if (!f.credit_due) {
    f.credit_due = true;
    credits_due_.push_back(owner);
  }
}

}  // namespace lk

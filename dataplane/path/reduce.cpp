// Reduce: what follows when a value is in. At a chunk's owner: inputs of the domain → the domain's value → (between
// domains) the op's value → every rank of the domain. The order of every fold is the order of ranks and of domains,
// whatever came first. Values wait in scratch; an input is overwritten only when the op's value is placed.
#include "dataplane/reduce/fold.hpp"

#include <bit>
#include <cstring>

#include "dataplane/path/engine.hpp"

namespace lk {

void Engine::advance_owners(OpState& op, Nanos now) noexcept {
  for (std::size_t place = 0; place < op.ranks.size(); ++place) advance_owner(op, place, now);
}

// Begins the next chunks that a local rank owns, as far as the window allows.
void Engine::advance_owner(OpState& op, std::size_t place, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  const Rank me = g.local[place];
  if (op.advancing) return;  // the loop below goes on
  op.advancing = true;
  std::uint32_t& next = op.next_owned[place];
  while (op.open && op.started && op.status == Status::kOk && next < op.chunks && op.active[place] < g.active_chunks) {
    if (g.spec->owner(g.domain, op.column[next]) != me) {
      ++next;
      continue;
    }
    if (!begin_chunk(op, place, next, now)) break;
    ++next;
  }
  op.advancing = false;
}

// How many of its domain's ranks give an input for the chunk.
std::size_t Engine::expected_gathers(const OpState& op, std::uint32_t) const noexcept {
  const EngineGroup& g = *op.group;
  if (op.kind == Collective::kAllReduce) return g.domain_size();
  return g.spec->domain_of[op.root] == g.domain ? 1 : 0;
}

bool Engine::gather_complete(const OpState& op, std::uint32_t chunk) const noexcept {
  std::size_t have = 0;
  for (unsigned w = 0; w < op.mask_words; ++w) {
    have += static_cast<std::size_t>(std::popcount(op.gathered[std::size_t{chunk} * op.mask_words + w]));
  }
  return have == expected_gathers(op, chunk);
}

bool Engine::begin_chunk(OpState& op, std::size_t place, std::uint32_t chunk, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  const Rank me = g.local[place];
  const bool all = op.kind == Collective::kAllReduce;
  const bool home = op.home[chunk] == g.domain;
  std::size_t gathers = 0, spreads = 0;
  for (const Rank r : g.spec->domains[g.domain].ranks) {
    if (r == me) continue;
    if (g.local_place[r] != kNoId16 && (all || r == op.root)) ++gathers;
    if (all || r != op.root) ++spreads;
  }
  const std::size_t crosses = g.domains() == 1 ? 0 : home ? g.domains() - 1 : (all ? 1 : 0);
  if (transfers_.room() < reserved_transfers_ + gathers + spreads + crosses) return false;
  op.need_left[chunk] = static_cast<std::uint16_t>(spreads + crosses);
  reserved_transfers_ += op.need_left[chunk];
  op.spread_left[chunk] = static_cast<std::uint32_t>(spreads);
  op.phase[chunk] = ChunkPhase::kGathering;
  ++op.active[place];
  for (const Rank r : g.spec->domains[g.domain].ranks) {
    if (r == me || g.local_place[r] == kNoId16 || !(all || r == op.root)) continue;
    const std::byte* in = op.ranks[g.local_place[r]].request.in;
    make_transfer(op, chunk, Step::kGather, r, me, in == nullptr ? nullptr : in + op.offset(chunk));
  }
  if (all || me == op.root)
    gather_arrived(op, chunk, g.spec->place_of[me], now);
  else if (expected_gathers(op, chunk) != 0 && gather_complete(op, chunk))
    reduce_domain(op, chunk, now);
  else if (op.crossed[chunk] != 0)
    take_early_return(op, place, chunk, now);
  return true;
}

// A broadcast's value came before this owner had room for its chunk.
void Engine::take_early_return(OpState& op, std::size_t place, std::uint32_t chunk, Nanos now) noexcept {
  std::uint32_t& slot = op.cross_slot[std::size_t{chunk} * op.group->domains() + op.home[chunk]];
  if (slot == kNoId) return;
  std::byte* scratch = op.ranks[place].request.scratch;
  if (options_.payload) {
    std::memcpy(scratch + op.offset(chunk), slots_.memory().slot(slot) + sizeof(ChunkHeader), op.length(chunk));
  }
  release_slot(slot);
  finish_chunk(op, chunk, now);
}

// Inputs for owners on other nodes of the same NVLink domain: sent in order, a few at a time.
void Engine::advance_streams(OpState& op) noexcept {
  const EngineGroup& g = *op.group;
  if (g.domain_size() == g.local.size()) return;
  for (std::size_t place = 0; place < g.local.size(); ++place) {
    for (const Rank to : g.spec->domains[g.domain].ranks) advance_stream(op, place, to);
  }
}

void Engine::advance_stream(OpState& op, std::size_t place, Rank to) noexcept {
  EngineGroup& g = *op.group;
  if (!op.open || !op.started || op.status != Status::kOk || g.local_place[to] != kNoId16) return;
  if (g.spec->domain_of[to] != g.domain || (op.kind == Collective::kBroadcast && g.local[place] != op.root)) return;
  std::uint32_t& next = op.next_stream[place * g.domain_size() + g.spec->place_of[to]];
  const Flow& flow = flows_[g.flow_out[place * g.spec->members.size() + to]];
  while (next < op.chunks && flow.waiting < 4 && transfers_.room() > reserved_transfers_) {
    if (g.spec->owner(g.domain, op.column[next]) == to) {
      const std::byte* in = op.ranks[place].request.in;
      make_transfer(op, next, Step::kGather, g.local[place], to, in == nullptr ? nullptr : in + op.offset(next));
    }
    ++next;
  }
}

void Engine::gather_arrived(OpState& op, std::uint32_t chunk, std::size_t domain_place, Nanos now) noexcept {
  op.gathered[std::size_t{chunk} * op.mask_words + domain_place / 64] |= std::uint64_t{1} << (domain_place % 64);
  if (op.phase[chunk] == ChunkPhase::kGathering && gather_complete(op, chunk)) reduce_domain(op, chunk, now);
}

void Engine::release_slot(std::uint32_t& slot) noexcept {
  if (slot != kNoId) free_landed(slot);
  slot = kNoId;
}

void Engine::reduce_domain(OpState& op, std::uint32_t chunk, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  const auto& ranks = g.spec->domains[g.domain].ranks;
  const Rank me = g.spec->owner(g.domain, op.column[chunk]);
  const std::size_t place = g.local_place[me];
  std::byte* scratch = op.ranks[place].request.scratch;
  const std::byte* inputs[kMaxFoldInputs];
  std::size_t n = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (op.kind == Collective::kBroadcast && ranks[i] != op.root) continue;
    const std::uint32_t slot = op.gather_slot[std::size_t{chunk} * ranks.size() + i];
    if (slot != kNoId)
      inputs[n++] = slots_.memory().slot(slot) + sizeof(ChunkHeader);
    else if (options_.payload)
      inputs[n++] = op.ranks[g.local_place[ranks[i]]].request.in + op.offset(chunk);
  }
  if (options_.payload) {
    std::byte* out = scratch + op.offset(chunk);
    const std::size_t count = op.length(chunk) / size_of(op.dtype);
    if (op.kind == Collective::kBroadcast) {
      std::memcpy(out, inputs[0], op.length(chunk));
    } else {
      const auto last = FoldRounding::last(op.redop, static_cast<std::uint32_t>(g.spec->members.size()));
      fold(op.dtype, FoldInputs(inputs, n), count, g.domains() == 1 ? last : FoldRounding::partial(), out);
    }
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) release_slot(op.gather_slot[std::size_t{chunk} * ranks.size() + i]);
  op.phase[chunk] = ChunkPhase::kReduced;
  if (g.domains() == 1) return finish_chunk(op, chunk, now);
  if (op.home[chunk] == g.domain) return cross_arrived(op, chunk, g.domain, now);
  --op.need_left[chunk];
  --reserved_transfers_;
  make_transfer(op, chunk, Step::kCross, me, g.spec->owner(op.home[chunk], op.column[chunk]),
                scratch == nullptr ? nullptr : scratch + op.offset(chunk));
}

void Engine::cross_arrived(OpState& op, std::uint32_t chunk, std::size_t domain, Nanos now) noexcept {
  op.crossed[chunk] |= std::uint64_t{1} << domain;
  const int expected = op.kind == Collective::kBroadcast ? 1 : static_cast<int>(op.group->domains());
  if (op.phase[chunk] == ChunkPhase::kReduced && std::popcount(op.crossed[chunk]) == expected)
    reduce_domains(op, chunk, now);
}

// At the home domain's owner: all domains' values are in.
void Engine::reduce_domains(OpState& op, std::uint32_t chunk, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  const Rank me = g.spec->owner(g.domain, op.column[chunk]);
  std::byte* scratch = op.ranks[g.local_place[me]].request.scratch;
  std::byte* own = scratch == nullptr ? nullptr : scratch + op.offset(chunk);
  if (options_.payload && op.kind == Collective::kAllReduce) {
    const std::byte* inputs[64];
    for (std::size_t d = 0; d < g.domains(); ++d) {
      const std::uint32_t slot = op.cross_slot[std::size_t{chunk} * g.domains() + d];
      inputs[d] = slot == kNoId ? own : slots_.memory().slot(slot) + sizeof(ChunkHeader);
    }
    fold(op.dtype, FoldInputs(inputs, g.domains()), op.length(chunk) / size_of(op.dtype),
         FoldRounding::last(op.redop, static_cast<std::uint32_t>(g.spec->members.size())), own);
  }
  for (std::size_t d = 0; d < g.domains(); ++d) release_slot(op.cross_slot[std::size_t{chunk} * g.domains() + d]);
  for (std::uint16_t d = 0; d < g.domains(); ++d) {
    if (d == g.domain) continue;
    --op.need_left[chunk];
    --reserved_transfers_;
    make_transfer(op, chunk, Step::kReturn, me, g.spec->owner(d, op.column[chunk]), own);
  }
  finish_chunk(op, chunk, now);
}

// The op's value is in the owner's scratch: to all ranks of the domain.
void Engine::finish_chunk(OpState& op, std::uint32_t chunk, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  const Rank me = g.spec->owner(g.domain, op.column[chunk]);
  const std::size_t local = g.local_place[me];
  const std::byte* scratch = op.ranks[local].request.scratch;
  const std::byte* value = scratch == nullptr ? nullptr : scratch + op.offset(chunk);
  op.phase[chunk] = ChunkPhase::kFinal;
  for (const Rank r : g.spec->domains[g.domain].ranks) {
    if (r == me || (op.kind == Collective::kBroadcast && r == op.root)) continue;
    --op.need_left[chunk];
    --reserved_transfers_;
    make_transfer(op, chunk, Step::kSpread, me, r, value);
  }
  place(op, chunk, local, value, now);
  if (op.open && op.spread_left[chunk] == 0) spread_done(op, chunk, now);
}

// Reduced → placed: the only step that overwrites what a rank gave. It can be repeated.
void Engine::place(OpState& op, std::uint32_t chunk, std::size_t local_place, const std::byte* value, Nanos) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << local_place;
  if ((op.placed[chunk] & bit) != 0) return;
  op.placed[chunk] |= bit;
  LocalRank& r = op.ranks[local_place];
  if (value != nullptr && r.request.out != nullptr)
    std::memcpy(r.request.out + op.offset(chunk), value, op.length(chunk));
  ++r.placed;
  check_done(op, local_place);
}

void Engine::spread_done(OpState& op, std::uint32_t chunk, Nanos now) noexcept {
  EngineGroup& g = *op.group;
  op.phase[chunk] = ChunkPhase::kSpread;
  const std::size_t place = g.local_place[g.spec->owner(g.domain, op.column[chunk])];
  --op.active[place];
  advance_owner(op, place, now);
}

}  // namespace lk

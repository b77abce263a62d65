// OpState: one op at one node: what each local rank gave, and for every chunk what is in (the ledger), what is reduced
// and what is placed. Objects are kept by their group and used again, so a warm engine allocates nothing.
//
// A chunk's phases at its owner: idle → gathering → reduced (the domain's value is in scratch) → final (the op's value
// is in scratch) → spread (all ranks of the domain have it). Inputs are overwritten only when a value is placed, from
// scratch, and placing can be repeated. Ledger: the first commit of (step, chunk, source) wins. Owner: the reactor.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/api/group.hpp"
#include "dataplane/api/op.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct EngineGroup;

enum class ChunkPhase : std::uint8_t { kIdle, kGathering, kReduced, kFinal, kSpread };

struct LocalRank {  // a rank of this node in one op
  bool entered = false, delivered = false;
  OpRequest request{};
  std::uint32_t placed = 0;          // chunks in their place
  std::uint32_t open_transfers = 0;  // from this rank, not retired
  std::uint32_t open_requests = 0;   // from this rank, not reaped
};

struct OpState {
  bool open = false;       // some local rank has entered and not all are delivered
  bool started = false;    // all local ranks have entered, data moves
  bool advancing = false;  // advance_owner is at work
  Status status = Status::kOk;
  EngineGroup* group = nullptr;
  const PlanSpec* plan = nullptr;
  OpNumber number = 0;
  std::uint32_t hash = 0;  // of its descriptor
  Collective kind{};
  RedOp redop{};
  DType dtype{};
  Rank root = 0;
  std::uint64_t count = 0;
  Bytes bytes = 0, chunk_bytes = 0;
  std::uint32_t chunks = 0;
  unsigned mask_words = 1;  // of rs mask
  std::uint32_t entered = 0, delivered = 0;
  Nanos entered_at = 0;
  NodeId lost_node = kNoId16;
  Rank other_rank = kNoId16;

  std::vector<LocalRank> ranks;             // by local place
  std::vector<std::uint16_t> column, home;  // by chunk
  std::vector<ChunkPhase> phase;            // by chunk; of the owner when it is local
  std::vector<std::uint64_t> gathered;      // by chunk × mask_words: places of the domain whose input is in
  std::vector<std::uint64_t> crossed;       // by chunk: domains whose value is in
  std::vector<std::uint64_t> placed;        // by chunk: local places that have the result
  std::vector<std::uint32_t> spread_left;   // by chunk, at its owner: ranks of the domain that do not have it yet
  std::vector<std::uint16_t> need_left;     // by chunk, at its owner: transfers reserved and not yet made
  std::vector<std::uint32_t>
      gather_slot;  // by chunk × domain size: landing slot that holds an input, kNoId: read directly
  std::vector<std::uint32_t> cross_slot;  // by chunk × domains
  std::vector<std::uint32_t> next_owned;  // by local place: cursor over the chunks that it owns
  std::vector<std::uint32_t> active;      // by local place: chunks under way at this owner
  std::vector<std::uint32_t>
      next_stream;  // by local place × domain size: cursor of inputs sent to owners on other nodes

  Bytes offset(std::uint32_t chunk) const noexcept { return Bytes{chunk} * chunk_bytes; }
  std::uint32_t length(std::uint32_t chunk) const noexcept {
    const Bytes left = bytes - offset(chunk);
    return static_cast<std::uint32_t>(left < chunk_bytes ? left : chunk_bytes);
  }
};

}  // namespace lk

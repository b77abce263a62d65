// EngineGroup: a group at one node: its members and plans, its ops by number, and what is remembered of closed ones.
// Owner: the engine's reactor; the specs are control's, lent until given back by event.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "dataplane/api/group.hpp"
#include "dataplane/collective/op_state.hpp"

namespace lk {

inline constexpr unsigned kOpWindow = 64;  // ops of a group that may be entered and not closed

struct EngineGroup {
  const GroupSpec* spec = nullptr;
  std::vector<const PlanSpec*> plans;                   // by from_op; the last with from_op ≤ number is an op's plan
  std::uint16_t domain = 0;                             // of this node's ranks
  std::vector<Rank> local;                              // this node's ranks, in order
  std::vector<std::uint16_t> local_place;               // by rank: index into local, kNoId16 for others
  std::vector<NodeId> nodes;                            // other nodes
  std::vector<std::uint32_t> flow_out;                  // by local place × rank: flow, kNoId
  std::vector<std::uint32_t> flows_in;                  // from other nodes
  std::array<std::unique_ptr<OpState>, kOpWindow> ops;  // by number % kOpWindow
  struct Closed {
    OpNumber number = 0;
    std::uint32_t hash = 0;
    Status status{};
    NodeId lost_node = kNoId16;
  };
  std::array<Closed, kOpWindow> closed{};
  unsigned slots_per_flow = 0;  // the same on every node, so a sender's window fits what a receiver can hold
  unsigned active_chunks = 0;
  OpNumber next_start = 1;  // lowest op that has not started
  OpNumber highest_started = 0;
  OpNumber highest_entered = 0;
  OpNumber hold_from = ~OpNumber{0};
  std::vector<OpState*> running;  // started and not closed, oldest first
  bool ended = false;
  Status end_status = Status::kOk;
  NodeId end_node = kNoId16;

  OpState* find(OpNumber number) noexcept {
    OpState* op = ops[number % kOpWindow].get();
    return op != nullptr && op->open && op->number == number ? op : nullptr;
  }
  const PlanSpec* plan_of(OpNumber number) const noexcept {
    const PlanSpec* best = nullptr;
    for (const PlanSpec* p : plans) {
      if (p->from_op <= number) best = p;
    }
    return best;
  }
  std::size_t domain_size() const noexcept { return spec->domains[domain].ranks.size(); }
  std::size_t domains() const noexcept { return spec->domains.size(); }
};

}  // namespace lk

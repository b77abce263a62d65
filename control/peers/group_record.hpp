// GroupRecord: what one node's control plane knows of one group: its description and plan in force, how far its local
// ranks came, and where the three agreements about it stand (creation, the next plan, a smaller membership).
// Owner: the control thread; the group table holds it, plan agreement and membership write their own parts.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/health/thresholds.hpp"
#include "control/journal/journal.hpp"
#include "control/peers/engine_port.hpp"
#include "control/peers/peers.hpp"
#include "dataplane/api/cluster.hpp"
#include "dataplane/api/group.hpp"
#include "dataplane/base/status.hpp"

namespace lk {

enum class GroupState : std::uint8_t {
  kOffering,    // here: creation began, some have not accepted
  kOffered,     // accepted, not yet installed
  kInstalling,  // here: all accepted, some have not installed
  kInstalled,   // the engine has it; not everybody's engine has
  kReady,       // ops may be entered: the engine has this membership
  kEnded,
};

constexpr const char* name_of(GroupState s) noexcept {
  constexpr const char* kNames[] = {"offering", "offered", "installing", "installed", "ready", "ended"};
  return kNames[static_cast<unsigned>(s)];
}

// Ops that one local rank has finished with success.
struct RankProgress {
  OpNumber done = 0;         // all up to here
  std::set<OpNumber> ahead;  // and these
};

enum class PlanPhase : std::uint8_t {
  kIdle,
  kOwnHold,  // proposer: asked its own engine to hold
  kVoting,   // proposer: waits for the others
  kHolding,  // asked its engine to hold
  kInDoubt,  // has said yes, does not know how it ended
};

struct PlanRound {
  PlanPhase phase = PlanPhase::kIdle;
  PlanSpec plan;
  std::vector<NodeId> awaited;
  Nanos deadline = kNever;            // proposer: give up; in doubt: ask around
  std::uint32_t highest_version = 1;  // ever proposed or in force
  OpNumber highest_entered = 0;       // of any rank, as far as told
  Nanos not_before = 0;               // proposer: earliest next try
  unsigned tries = 0;                 // refused in a row
  bool again = false;                 // proposer: the last try came to nothing
};

struct ShrinkRound {
  bool open = false;         // a member is lost and the rest have not agreed
  std::uint16_t target = 0;  // coordinator: proposed membership
  std::vector<NodeId> gone;  // coordinator: as proposed
  std::vector<NodeId> awaited;
  OpNumber least_done = 0;
  std::uint32_t highest_version = 1;
  Nanos since = 0, deadline = kNever;
};

struct GroupRecord {
  GroupSpec spec;
  PlanSpec plan;
  GroupState state = GroupState::kOffered;
  std::string owner;
  Nanos created_at = 0;
  NodeId creator = 0;
  Bytes chunk_most_bytes = 4 * kMiB;
  std::vector<NodeId> nodes;    // that hold ranks now, ascending
  std::vector<NodeId> gone;     // that once held ranks, ascending
  std::vector<NodeId> offered;  // creation: who was asked
  std::vector<NodeId> awaited;  // creation: who has not answered
  Nanos deadline = kNever;      // creation
  Status end_status = Status::kOk;
  std::string error;       // why it ended
  unsigned shrinking = 0;  // smaller memberships that the engine has not taken over yet
  std::map<Rank, RankProgress> progress;
  PlanRound round;
  ShrinkRound shrink;

  bool live() const noexcept {
    return state == GroupState::kInstalling || state == GroupState::kInstalled || state == GroupState::kReady;
  }
  NodeId proposer(const ClusterSpec& cluster) const noexcept { return cluster.gpus[spec.members.front()].node; }
};

// The plan that the links' health asks for; made by the routes' owner.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  virtual PlanSpec best_plan(const GroupSpec& group, Bytes chunk_most_bytes) = 0;  // group, membership, first_op filled
};

struct GroupContext {
  const ClusterSpec& cluster;
  NodeId self;
  const Thresholds& thresholds;
  Peers& peers;
  EnginePort& engine;
  Journal& journal;
  PlanSource& plans;

  void send_all(const GroupRecord& group, RecordKind kind, const Bytestring& body) const;  // to its other nodes
};

// First words of every record about a group: its id and half of its 128 bits, so that a reused id is not mistaken.
RecordWriter about(const GroupSpec& spec);
void put_plan(RecordWriter& out, const PlanSpec& plan);
PlanSpec get_plan(RecordReader& in, const GroupSpec& spec, std::uint16_t membership);
bool plan_fits(const GroupSpec& spec, const PlanSpec& plan) noexcept;

OpNumber least_done(const GroupRecord& group) noexcept;                              // of the local ranks
void restart_progress(const ClusterSpec& cluster, NodeId self, GroupRecord& group);  // at spec.first_op

// Sorted vectors as sets.
bool contains(const std::vector<NodeId>& set, NodeId node) noexcept;
void insert(std::vector<NodeId>& set, NodeId node);
void erase(std::vector<NodeId>& set, NodeId node);

}  // namespace lk

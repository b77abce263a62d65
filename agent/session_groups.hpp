// SessionGroups: the groups that clients of this agent's sessions form: who has joined, when all are there, when the
// group is ready, shrunk or over, and what follows for every rank. The groups proper are the control planes'; this is
// about the clients in them.
//   forming   ranks join, each from a session of its own or several from one
//   creating  all are there; the control planes agree
//   ready     ops may be entered; every rank has been told
//   ended     no ops any more; the name is free
// A client that leaves with ops in flight ends its groups for all; one that leaves after its last op only ends what
// comes after that op, once the others have it too. After the loss of a node a group goes on without its ranks: each
// client joins anew under the same name, which tells the agent that it knows. Owner: the control thread. Refusals are
// InputError with the text for the client.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/session_poller.hpp"
#include "control/plane.hpp"

namespace lk {

class Lab;

// What a client hears later about a rank that it joined.
struct RankNews {
  std::uint64_t client = 0;
  std::uint16_t number = 0;
  Rank client_rank = 0;
  Status status = Status::kOk;
  OpNumber first_op = 1;
  std::uint64_t uuid_hi = 0, uuid_lo = 0;
  std::string text;
};

// Where a client's ranks go. `session` is known to its home's poller.
struct RankOwner {
  std::uint64_t client = 0;
  std::string name;  // for others to read
  Session* session = nullptr;
};

class SessionGroups {
 public:
  explicit SessionGroups(Lab& lab) : lab_(lab) {}

  struct Joined {
    std::uint16_t number = 0;
    EndpointId endpoint = 0;
  };
  Joined join(const RankOwner& owner, const std::string& name, Rank rank, std::uint16_t ranks, EndpointId wanted,
              Nanos now);
  // Its poller has stopped taking ops; `in_flight` of them are still the engines'.
  void client_left(std::uint64_t client, bool in_flight, Nanos now);
  void note_result(const OpResult& result);
  void step(Nanos now, std::vector<RankNews>& news);
  std::size_t size() const noexcept { return groups_.size(); }

 private:
  struct Member {
    RankOwner owner;
    EndpointId endpoint = 0;
    bool here = false;         // joined
    bool left = false;         // its client has gone
    bool ended = false;        // its node's control plane has ended the group
    bool told = false;         // knows that the group is ready, or how it is now
    std::uint16_t number = 0;  // under which the client knows the group: a new one after each loss
    OpNumber entered = 0, done = 0;
  };
  enum class Phase : std::uint8_t { kForming, kCreating, kReady, kEnded };
  struct Group {
    std::string name, owner;
    Phase phase = Phase::kForming;
    Nanos since = 0;
    GroupId id = kNoId16;
    std::uint16_t membership = 1;
    std::vector<Member> members;  // by the clients' rank
  };

  EndpointId choose_endpoint(const Group& group, Rank rank, EndpointId wanted) const;
  Group& forming(const RankOwner& owner, const std::string& name, std::uint16_t ranks, Nanos now);
  Joined join_again(Group& group, const RankOwner& owner, Rank rank, Nanos now);
  void forget_empty();
  void create(Group& group, Nanos now, std::vector<RankNews>& news);
  void watch_creation(Group& group, std::vector<RankNews>& news);
  void watch_ready(Group& group, Nanos now, std::vector<RankNews>& news);
  void tell_ready(Group& group, Member& member, const GroupRecord& record, std::vector<RankNews>& news);
  void end_everywhere(Group& group, Nanos now);
  void end_member(Member& member, Status status);
  void end_members(Group& group, Status status);
  void fail(Group& group, Status status, const std::string& why, std::vector<RankNews>& news);
  const GroupRecord* record_of(const Group& group, const Member& member) const;
  std::uint16_t new_number();

  Lab& lab_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::uint16_t last_number_ = 0;
};

}  // namespace lk

// SessionPoller: one node's part in moving ops between clients and engines. Each session has a home node whose poller
// alone touches its rings; ops of ranks on other nodes go to those nodes' pollers by value, and results come back so.
//   client's submit ring → home's poller → (the rank's node's poller) → engine
//   engine → its node's poller → (the home's poller) → client's completion ring
// Beside that it wakes the control thread when the engine has told something.
// Owner: the node's reactor; commands() and notes() and told() have their other end at the control thread. noexcept
// after set-up; a full ring is waited for by trying again at the next turn, and nothing more is taken until then.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/session.hpp"
#include "dataplane/base/ring.hpp"
#include "dataplane/loop/reactor.hpp"
#include "dataplane/path/engine.hpp"

namespace lk {

struct SessionCommand {
  enum class Kind : std::uint32_t { kOpen, kAddRank, kEndGroup, kDropGroup, kClose };
  Kind kind{};
  std::uint16_t number = 0;  // kEndGroup, kDropGroup
  std::uint16_t unused = 0;
  Session* session = nullptr;  // kOpen: lent until kDrained
  OpNumber last_op = 0;        // kEndGroup
  SessionRank rank{};          // kAddRank
};

struct SessionNote {
  // kAbandoned answers kClose: no more is taken; the session's ranks can be read. kDrained: it is the receiver's again.
  enum class Kind : std::uint32_t { kBroken, kAbandoned, kDrained };
  Kind kind{};
  std::uint32_t in_flight = 0;
  Session* session = nullptr;
};

// How a poller wakes those who sleep.
struct Wakers {
  void (*node)(void* self, NodeId node) noexcept = nullptr;
  void (*control)(void* self) noexcept = nullptr;
  void* self = nullptr;
};

class SessionPoller final : public Poller, public Sleeper {
 public:
  SessionPoller(NodeId node, Engine& engine, const Wakers& wakers);
  void meet(const std::vector<SessionPoller*>& by_node) { pollers_ = by_node; }  // set-up, before any turn

  Ring<SessionCommand>& commands() noexcept { return commands_; }  // control → poller
  Ring<SessionNote>& notes() noexcept { return notes_; }           // poller → control
  Ring<OpResult>& told() noexcept { return told_; }  // poller → control: every result of this node's ranks

  // The node that a session's id says is its home.
  static NodeId home_of(std::uint32_t session) noexcept { return static_cast<NodeId>(session >> 16); }

  const char* name() const noexcept override { return "sessions"; }
  unsigned poll(Nanos now) noexcept override;
  Nanos next_time(Nanos now) const noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;

 private:
  unsigned take_commands() noexcept;
  unsigned take_ops() noexcept;
  unsigned take_forwarded() noexcept;
  unsigned take_results() noexcept;
  unsigned take_returned() noexcept;
  void retire_sessions() noexcept;
  bool send(const OpRequest& request, NodeId node) noexcept;
  bool give_back(const OpResult& result) noexcept;
  void note(SessionNote::Kind kind, Session* session) noexcept;
  void ring_control() noexcept;

  struct Slot {
    Session* session = nullptr;
    bool holds = false;  // an op that found no room
    bool told_broken = false;
    NodeId held_node = 0;
    OpRequest held{};
  };
  unsigned take_ops_of(Slot& slot) noexcept;
  Slot* slot_of(Session* session) noexcept;

  NodeId node_;
  Engine& engine_;
  Wakers wakers_;
  std::vector<SessionPoller*> pollers_;
  std::vector<Slot> slots_;
  Ring<SessionCommand> commands_{8192};
  Ring<SessionNote> notes_{4096};
  Ring<OpResult> told_{8192};
  Ring<OpRequest> forwarded_{4096, RingProducers::kMulti};  // from other homes, for this node's engine
  Ring<OpResult> returned_{4096, RingProducers::kMulti};    // from other nodes, for sessions that are at home here
  bool holds_forwarded_ = false, holds_result_ = false, result_told_ = false, control_due_ = false;
  OpRequest held_forwarded_{};
  OpResult held_result_{};
};

}  // namespace lk

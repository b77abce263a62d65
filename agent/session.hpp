// Session: one client process as the run loop sees it: its sealed memory, both rings, the groups that its ranks are in.
// The client may write all of that memory at any time and is not trusted: an entry is copied, then checked, and what is
// wrong with it is its completion's status. Ops in flight are counted: the memory stays mapped until the engines have
// given all of them back, whatever the client does.
// Owner: the reactor of its home node, from the poller's kOpen to its kDrained; before and after that the control
// thread. noexcept after construction (SystemError: no memory, no descriptor); offsets in bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/api/op.hpp"
#include "dataplane/base/unique_fd.hpp"
#include "dataplane/memory/region.hpp"
#include "dataplane/memory/shm_layout.hpp"
#include "dataplane/memory/shm_ring.hpp"

namespace lk {

// One rank of the session in one group. A client's numbers and the engine's differ: after a loss the engine counts the
// ranks anew, and the client joins anew under another number.
struct SessionRank {
  std::uint16_t number = 0;  // of the group, for the client
  Rank client_rank = 0;
  GroupId group = 0;
  Rank rank = 0;
  NodeId node = 0;               // whose engine moves the rank's data
  std::uint16_t membership = 0;  // that `rank` is of
  OpNumber next_op = 1;
  OpNumber last_op = ~OpNumber{0};  // ops after this end with `end`
  Status end = Status::kCancelled;
};

class Session {
 public:
  // `sizes` as the client asked; scratch is as large as data.
  Session(std::uint32_t id, const ShmSizes& sizes, std::uint64_t incarnation);

  std::uint32_t id() const noexcept { return id_; }
  void set_id(std::uint32_t id) noexcept { id_ = id; }  // before kOpen
  const Region& region() const noexcept { return region_; }
  int agent_bell() const noexcept { return agent_bell_.get(); }
  // The client's end of its bell, to be handed over, and then to be closed here.
  int client_bell() const noexcept { return client_end_.get(); }
  void close_client_bell() noexcept { client_end_.reset(); }

  bool add_rank(const SessionRank& rank) noexcept;  // false: too many
  void end_group(std::uint16_t number, OpNumber last_op, Status status) noexcept;
  void drop_group(std::uint16_t number) noexcept;

  // The next op that the client asks for, and the node it is for. kBusy: none now. kInvalid: the client broke its
  // rings. `refresh` is called when an entry names a group that is not known: news of it may be on its way.
  template <typename Refresh>
  Status take(OpRequest& out, NodeId& node, Refresh&& refresh) noexcept;
  void complete(const OpResult& result) noexcept;
  void flush() noexcept;  // completions that had no room, and the client's bell if it sleeps

  bool arm() noexcept { return dead_ || broken_ || in_flight_ >= slots_ || submits_.arm(); }
  void disarm() noexcept { submits_.disarm(); }

  void abandon() noexcept { dead_ = true; }  // the client has gone: nothing more is taken
  bool dead() const noexcept { return dead_; }
  const std::vector<SessionRank>& ranks() const noexcept { return ranks_; }
  bool broken() const noexcept { return broken_; }
  std::uint32_t in_flight() const noexcept { return in_flight_; }
  bool has_backlog() const noexcept { return !backlog_.empty(); }

 private:
  static constexpr std::size_t kMostRanks = 1024;

  SessionRank* find(std::uint16_t number, Rank rank) noexcept;
  Status translate(const SubmitEntry& e, SessionRank& rank, OpRequest& out) noexcept;
  void refuse(const SubmitEntry& e, Status status) noexcept;

  std::uint32_t id_;
  ShmLayout layout_;
  Region region_;
  // The first is the client's too, so nothing here may read or write it: with its mode changed that could wait. The
  // second is one end of a socket: what the client does to the other cannot make a send wait that was told not to.
  UniqueFd agent_bell_, client_bell_, client_end_;
  ShmConsumer<SubmitEntry> submits_;
  ShmProducer<CompletionEntry> completions_;
  std::uint32_t slots_;  // of the completion ring: most ops in flight
  std::uint32_t in_flight_ = 0;
  std::vector<SessionRank> ranks_;
  std::vector<CompletionEntry> backlog_;  // never longer than slots_
  bool dead_ = false, broken_ = false;
};

template <typename Refresh>
Status Session::take(OpRequest& out, NodeId& node, Refresh&& refresh) noexcept {
  while (!dead_ && !broken_ && in_flight_ < slots_) {
    SubmitEntry entry;
    const Status popped = submits_.pop(entry);
    if (popped == Status::kInvalid) broken_ = true;
    if (popped != Status::kOk) return popped;
    ++in_flight_;
    SessionRank* rank = find(entry.group, entry.rank);
    if (rank == nullptr) {
      refresh();
      rank = find(entry.group, entry.rank);
    }
    const Status status = rank == nullptr ? Status::kInvalid : translate(entry, *rank, out);
    if (status == Status::kOk) {
      node = rank->node;
      return Status::kOk;
    }
    refuse(entry, status);
  }
  return broken_ ? Status::kInvalid : Status::kBusy;
}

}  // namespace lk

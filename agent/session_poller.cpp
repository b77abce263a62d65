#include "agent/session_poller.hpp"

#include <algorithm>

namespace lk {
namespace {

constexpr unsigned kMostSessions = 1024;
constexpr unsigned kBurst = 32;  // of each kind in one turn

}  // namespace

SessionPoller::SessionPoller(NodeId node, Engine& engine, const Wakers& wakers)
    : node_(node), engine_(engine), wakers_(wakers) {
  slots_.reserve(kMostSessions);
}

unsigned SessionPoller::poll(Nanos) noexcept {
  unsigned work = take_commands();
  work += take_results();
  work += take_returned();
  work += take_forwarded();
  work += take_ops();
  for (Slot& s : slots_) s.session->flush();
  retire_sessions();
  if (!engine_.events().empty() || !engine_.peer_in().empty() || !engine_.signals_out().empty()) control_due_ = true;
  if (control_due_) ring_control();
  return work;
}

// What waits for room in somebody's ring is tried again soon: nobody wakes us for that.
Nanos SessionPoller::next_time(Nanos now) const noexcept {
  const bool waits = holds_forwarded_ || holds_result_ || std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) {
                       return s.holds || (s.session->has_backlog() && !s.session->dead());
                     });
  return waits ? now + 200 * kMicro : kNever;
}

bool SessionPoller::arm() noexcept {
  bool quiet = true;
  for (Slot& s : slots_) {
    if (!s.session->arm()) quiet = false;
  }
  return quiet;
}

void SessionPoller::disarm() noexcept {
  for (Slot& s : slots_) s.session->disarm();
}

SessionPoller::Slot* SessionPoller::slot_of(Session* session) noexcept {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.session == session; });
  return found == slots_.end() ? nullptr : &*found;
}

unsigned SessionPoller::take_commands() noexcept {
  SessionCommand c;
  unsigned work = 0;
  for (; commands_.pop(c); ++work) {
    switch (c.kind) {
      case SessionCommand::Kind::kOpen:
        slots_.push_back({.session = c.session});
        break;
      case SessionCommand::Kind::kAddRank:
        c.session->add_rank(c.rank);
        break;
      case SessionCommand::Kind::kEndGroup:
        c.session->end_group(c.number, c.last_op, c.rank.end);
        break;
      case SessionCommand::Kind::kDropGroup:
        c.session->drop_group(c.number);
        break;
      case SessionCommand::Kind::kClose:
        c.session->abandon();
        note(SessionNote::Kind::kAbandoned, c.session);
        break;
    }
  }
  return work;
}

unsigned SessionPoller::take_ops() noexcept {
  unsigned work = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) work += take_ops_of(slots_[i]);
  return work;
}

unsigned SessionPoller::take_ops_of(Slot& slot) noexcept {
  for (unsigned n = 0; n < kBurst; ++n) {
    if (!slot.holds) {
      const Status s = slot.session->take(slot.held, slot.held_node, [this] { take_commands(); });
      if (s != Status::kOk) return n;
    }
    slot.holds = !send(slot.held, slot.held_node);
    if (slot.holds) return n;
  }
  return kBurst;
}

bool SessionPoller::send(const OpRequest& request, NodeId node) noexcept {
  if (node == node_) return !holds_forwarded_ && engine_.requests().push(request);
  if (!pollers_[node]->forwarded_.push(request)) return false;
  wakers_.node(wakers_.self, node);
  return true;
}

unsigned SessionPoller::take_forwarded() noexcept {
  unsigned work = 0;
  for (; work < kBurst; ++work) {
    if (!holds_forwarded_ && !forwarded_.pop(held_forwarded_)) return work;
    holds_forwarded_ = !engine_.requests().push(held_forwarded_);
    if (holds_forwarded_) return work;
  }
  return work;
}

unsigned SessionPoller::take_results() noexcept {
  unsigned work = 0;
  for (; work < kBurst; ++work) {
    if (!holds_result_ && !engine_.results().pop(held_result_)) return work;
    holds_result_ = !give_back(held_result_);
    if (holds_result_) return work;
  }
  return work;
}

// To the control plane, which counts what is complete everywhere, and to the session's home.
bool SessionPoller::give_back(const OpResult& result) noexcept {
  if (!result_told_ && !told_.push(result)) return false;
  result_told_ = true;
  control_due_ = true;
  const NodeId home = home_of(result.session);
  if (home < pollers_.size() && !pollers_[home]->returned_.push(result)) return false;
  result_told_ = false;
  if (home < pollers_.size() && home != node_) wakers_.node(wakers_.self, home);
  return true;
}

unsigned SessionPoller::take_returned() noexcept {
  OpResult r;
  unsigned work = 0;
  for (; work < kBurst && returned_.pop(r); ++work) {
    const auto found =
        std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.session->id() == r.session; });
    if (found != slots_.end()) found->session->complete(r);
  }
  return work;
}

void SessionPoller::retire_sessions() noexcept {
  for (std::size_t i = 0; i < slots_.size();) {
    Slot& s = slots_[i];
    if (s.session->broken() && !s.told_broken) {
      s.told_broken = true;
      note(SessionNote::Kind::kBroken, s.session);
    }
    if (!s.session->dead() || s.holds || s.session->in_flight() != 0) {
      ++i;
      continue;
    }
    note(SessionNote::Kind::kDrained, s.session);
    s = slots_.back();
    slots_.pop_back();
  }
}

void SessionPoller::note(SessionNote::Kind kind, Session* session) noexcept {
  // Three notes a session at most, and the ring has room for those of all sessions.
  LK_CHECK(notes_.push({kind, session->in_flight(), session}));
  control_due_ = true;
}

void SessionPoller::ring_control() noexcept {
  control_due_ = false;
  wakers_.control(wakers_.self);
}

}  // namespace lk

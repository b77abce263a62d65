#include "agent/session.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

ShmLayout layout_for(const ShmSizes& sizes) {
  ShmSizes whole = sizes;
  whole.scratch_bytes = sizes.data_bytes;
  return plan_layout(whole);
}

UniqueFd bell() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw SystemError(fmt::format("eventfd: {}", std::strerror(errno)));
  return fd;
}

}  // namespace

Session::Session(std::uint32_t id, const ShmSizes& sizes, std::uint64_t incarnation)
    : id_(id),
      layout_(layout_for(sizes)),
      region_(Region::create(fmt::format("lanekeeper-{}", id), layout_.total_bytes)),
      agent_bell_(bell()),
      slots_(layout_.completion_slots) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw SystemError(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  client_bell_ = UniqueFd(ends[0]);
  client_end_ = UniqueFd(ends[1]);
  const ShmHeader header{layout_, incarnation};
  std::memcpy(region_.data(), &header, sizeof header);
  submits_ = {region_.data() + layout_.submit_offset, layout_.submit_slots, ShmRingStart::kFresh};
  completions_ = {region_.data() + layout_.completion_offset, layout_.completion_slots, ShmRingStart::kFresh};
  ranks_.reserve(kMostRanks);
  backlog_.reserve(slots_);
}

bool Session::add_rank(const SessionRank& rank) noexcept {
  if (ranks_.size() == kMostRanks) {  // the oldest that has ended gives up its place
    const auto ended =
        std::find_if(ranks_.begin(), ranks_.end(), [](const SessionRank& r) { return r.last_op != ~OpNumber{0}; });
    if (ended == ranks_.end()) return false;
    ranks_.erase(ended);
  }
  ranks_.push_back(rank);
  return true;
}

void Session::end_group(std::uint16_t number, OpNumber last_op, Status status) noexcept {
  for (SessionRank& r : ranks_) {
    if (r.number != number) continue;
    r.last_op = std::min(r.last_op, last_op);
    r.end = status;
  }
}

void Session::drop_group(std::uint16_t number) noexcept {
  std::erase_if(ranks_, [number](const SessionRank& r) { return r.number == number; });
}

SessionRank* Session::find(std::uint16_t number, Rank rank) noexcept {
  for (SessionRank& r : ranks_) {
    if (r.number == number && r.client_rank == rank) return &r;
  }
  return nullptr;
}

Status Session::translate(const SubmitEntry& e, SessionRank& rank, OpRequest& out) noexcept {
  if (e.op_no > rank.last_op) return rank.end;
  if (e.op_no != rank.next_op) return Status::kInvalid;  // each number once, in order
  ++rank.next_op;
  const Status status = check_submit(e, layout_.data_bytes);
  if (status != Status::kOk) return status;
  std::byte* data = region_.data() + layout_.data_offset;
  out = {};
  out.number = e.op_no;
  out.count = e.count;
  out.cookie = e.cookie;
  out.in = data + e.in_offset;
  out.out = data + e.out_offset;
  out.scratch = region_.data() + layout_.scratch_offset + e.out_offset;
  out.session = id_;
  out.group = rank.group;
  out.rank = rank.rank;
  out.membership = rank.membership;
  out.root = e.root;
  out.kind = static_cast<Collective>(e.kind);
  out.redop = static_cast<RedOp>(e.redop);
  out.dtype = static_cast<DType>(e.dtype);
  return Status::kOk;
}

void Session::refuse(const SubmitEntry& e, Status status) noexcept {
  CompletionEntry c{};
  c.cookie = e.cookie;
  c.op_no = e.op_no;
  c.status = static_cast<std::uint8_t>(status);
  c.rank = kNoId16;
  c.lost_node = kNoId16;
  backlog_.push_back(c);
}

void Session::complete(const OpResult& r) noexcept {
  CompletionEntry c{};
  c.cookie = r.cookie;
  c.op_no = r.number;
  c.status = static_cast<std::uint8_t>(r.status);
  c.rank = r.other_rank;
  c.lost_node = r.lost_node;
  c.progress_done = r.chunks_done;
  c.progress_total = r.chunks_total;
  backlog_.push_back(c);
}

void Session::flush() noexcept {
  if (backlog_.empty()) return;
  std::size_t pushed = 0;
  while (pushed < backlog_.size()) {
    const Status s = dead_ || broken_ ? Status::kOk : completions_.push(backlog_[pushed]);
    if (s == Status::kInvalid) broken_ = true;
    if (s == Status::kBusy) break;
    if (s == Status::kOk) ++pushed;
  }
  in_flight_ -= static_cast<std::uint32_t>(pushed);
  backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(pushed));
  if (pushed != 0 && !dead_ && !broken_ && completions_.push_wakes()) {
    const std::uint64_t one = 1;
    ::send(client_bell_.get(), &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);  // full: it has not read older ones
  }
}

}  // namespace lk

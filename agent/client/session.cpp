#include "agent/client/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace lk::client {
namespace {

constexpr Bytes kDefaultDataBytes = 64 * kMiB;
constexpr std::uint32_t kDefaultOps = 256;
constexpr Nanos kDefaultTimeoutNs = 5 * kSecond;
constexpr Nanos kLookEveryNs = kMilli;  // a caller that only polls finds out about a dead agent this often

// An agent's own status never is one of ours (LK_TIMEOUT and above).
lk_status from_agent(std::uint8_t status) noexcept {
  return status <= static_cast<std::uint8_t>(Status::kUnsupported) ? static_cast<lk_status>(status) : LK_INVALID;
}

lk_result result_of(const CompletionEntry& entry) noexcept {
  lk_result out{};
  out.cookie = entry.cookie;
  out.op_number = entry.op_no;
  out.status = from_agent(entry.status);
  out.rank = entry.rank;
  out.lost_node = entry.lost_node;
  out.progress_done = entry.progress_done;
  out.progress_total = entry.progress_total;
  return out;
}

void fail_of(const lk_result& r) {
  std::string line = fmt::format("op {}: {}", r.op_number, lk_status_name(r.status));
  if (r.status == LK_MISMATCH) line += fmt::format(": rank {} called it differently", r.rank);
  if (r.lost_node != LK_NO_NODE) line += fmt::format(": node {} with rank {}", r.lost_node, r.rank);
  if (r.progress_total != 0) line += fmt::format(", {} of {} chunks complete", r.progress_done, r.progress_total);
  fail(r.status, std::move(line));
}

void ring(int bell) noexcept {
  const std::uint64_t one = 1;
  // EAGAIN: it has been rung 2^64 − 2 times and is loud enough.
  while (::write(bell, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void hush(int bell) noexcept {
  std::uint64_t rung = 0;
  while (::read(bell, &rung, sizeof rung) < 0 && errno == EINTR) {
  }
}

}  // namespace

lk_status Session::attach(const std::string& path, const lk_options& wanted, std::unique_ptr<Session>& out) {
  lk_options options = wanted;
  if (options.data_bytes == 0) options.data_bytes = kDefaultDataBytes;
  if (options.ops_in_flight == 0) options.ops_in_flight = kDefaultOps;
  if (options.timeout_ns <= 0) options.timeout_ns = kDefaultTimeoutNs;
  if (options.ops_in_flight > kMaxShmSlots) {
    return fail(LK_INVALID, fmt::format("ops_in_flight {}: expected 1 to {}", options.ops_in_flight, kMaxShmSlots));
  }

  Connection connection;
  if (const lk_status s = connection.open(path); s != LK_OK) return s;
  session::Hello hello;
  hello.data_bytes = options.data_bytes;
  hello.submit_slots = hello.completion_slots = std::bit_ceil(std::max(options.ops_in_flight, 2U));
  session::set_text(hello.name, options.name != nullptr ? options.name : fmt::format("pid {}", ::getpid()));
  if (const lk_status s = connection.send(hello); s != LK_OK) return s;

  Packet packet;
  if (const lk_status s = connection.receive(packet, deadline_in(options.timeout_ns)); s != LK_OK) return s;
  session::HelloReply reply;
  if (!session::read_packet(packet.bytes.data(), packet.length, reply)) {
    return fail(LK_DISCONNECTED, fmt::format("{}: the agent's answer is not one to an attach", path));
  }
  if (reply.status != 0)
    return fail(from_agent(reply.status), fmt::format("{}: {}", path, session::text_of(reply.text)));
  if (packet.descriptors.size() != session::kDescriptors) {
    return fail(LK_DISCONNECTED,
                fmt::format("{}: {} descriptors, expected {}", path, packet.descriptors.size(), session::kDescriptors));
  }
  Region region = Region::adopt(std::move(packet.descriptors[0]), reply.region_bytes);
  const ShmLayout layout = check_header(region.data(), region.size());
  out.reset(new Session(std::move(connection), std::move(region), layout, std::move(packet.descriptors[1]),
                        std::move(packet.descriptors[2]), options));
  return LK_OK;
}

Session::Session(Connection connection, Region region, const ShmLayout& layout, UniqueFd agent_bell, UniqueFd bell,
                 const lk_options& options)
    : connection_(std::move(connection)),
      region_(std::move(region)),
      layout_(layout),
      agent_bell_(std::move(agent_bell)),
      bell_(std::move(bell)),
      submits_(region_.data() + layout.submit_offset, layout.submit_slots, ShmRingStart::kFresh),
      completions_(region_.data() + layout.completion_offset, layout.completion_slots, ShmRingStart::kFresh),
      area_(layout.data_bytes),
      ops_in_flight_(std::min({options.ops_in_flight, layout.submit_slots, layout.completion_slots})),
      answer_timeout_ns_(options.timeout_ns) {}

lk_status Session::take_memory(Bytes bytes, void** out) {
  const auto offset = area_.take(bytes);
  if (!offset) {
    return fail(LK_BUSY, fmt::format("lk_alloc: {} bytes are not free in one piece of the session's {} bytes", bytes,
                                     layout_.data_bytes));
  }
  *out = data() + *offset;
  return LK_OK;
}

lk_status Session::give_memory_back(void* memory) {
  Bytes offset = 0;
  if (!offset_of(memory, 0, offset) || !area_.give_back(offset)) {
    return fail(LK_INVALID, "lk_free: not memory from lk_alloc of this session");
  }
  return LK_OK;
}

bool Session::offset_of(const void* pointer, Bytes length, Bytes& offset) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer), begin = reinterpret_cast<std::uintptr_t>(data());
  if (at < begin || at - begin > layout_.data_bytes || length > layout_.data_bytes - (at - begin)) return false;
  offset = at - begin;
  return true;
}

lk_status Session::join(const std::string& name, Rank rank, std::uint16_t ranks, EndpointId gpu, lk_group** out) {
  session::Join join;
  if (name.empty() || name.size() >= sizeof join.group) {
    return fail(LK_INVALID,
                fmt::format("group name {:?}: {} bytes, expected 1 to {}", name, name.size(), sizeof join.group - 1));
  }
  if (rank >= ranks) return fail(LK_INVALID, fmt::format("group {}: rank {} of {} ranks", name, rank, ranks));
  if (gone_) return disconnected();
  join.request = next_request_++;
  join.rank = rank;
  join.ranks = ranks;
  join.endpoint = gpu;
  session::set_text(join.group, name);

  groups_.push_back(std::make_unique<lk_group>());  // before the answers: both can come in one go
  lk_group& group = *groups_.back();
  group.session = this;
  group.name = name;
  group.request = join.request;
  group.rank = rank;
  group.ranks = ranks;
  lk_status status = connection_.send(join);
  if (status == LK_DISCONNECTED) lost();
  const Nanos deadline = deadline_in(answer_timeout_ns_);
  while (status == LK_OK && !group.answered) {
    if (gone_) {
      status = disconnected();
    } else if (now_ns() >= deadline) {
      status = fail(LK_TIMEOUT, fmt::format("group {}: the agent has not answered in time", name));
    } else {
      doze(deadline);
    }
  }
  if (status == LK_OK && group.answer != LK_OK)
    status = fail(group.answer, fmt::format("group {}: {}", name, group.reason));
  if (status != LK_OK) {
    groups_.pop_back();
    return status;
  }
  *out = &group;
  return LK_OK;
}

lk_status Session::wait_ready(lk_group& group, Nanos timeout) {
  const Nanos deadline = deadline_in(timeout);
  for (;;) {
    if (group.refusal != LK_OK) return fail(group.refusal, fmt::format("group {}: {}", group.name, group.reason));
    if (group.ready) return LK_OK;
    if (gone_) return disconnected();
    if (timeout <= 0) read_packets();
    if (!group.ready && now_ns() >= deadline) {
      return fail(LK_TIMEOUT,
                  fmt::format("group {}: not all of its {} ranks have joined in time", group.name, group.ranks));
    }
    if (!group.ready) doze(deadline);
  }
}

lk_status Session::submit(lk_group& group, SubmitEntry entry, const void* in, const void* out, std::uint64_t* cookie) {
  if (gone_) return disconnected();
  if (!group.ready) read_packets();
  if (group.refusal != LK_OK) return fail(group.refusal, fmt::format("group {}: {}", group.name, group.reason));
  if (!group.ready)
    return fail(LK_BUSY, fmt::format("group {}: not all of its {} ranks have joined", group.name, group.ranks));
  if (in_flight_.size() + done_.size() >= ops_in_flight_) {
    return fail(LK_BUSY, fmt::format("{} ops are in flight or their results not taken", ops_in_flight_));
  }
  const Bytes element =
      entry.dtype <= static_cast<std::uint8_t>(DType::kBF16) ? size_of(static_cast<DType>(entry.dtype)) : 1;
  const Bytes length = entry.count <= layout_.data_bytes / element ? entry.count * element : ~Bytes{0};
  if (!offset_of(in, length, entry.in_offset) || !offset_of(out, length, entry.out_offset)) {
    return fail(LK_INVALID, fmt::format("{} elements at in or out are not all in memory from lk_alloc", entry.count));
  }
  entry.op_no = group.next_op;
  entry.rank = group.rank;
  entry.group = group.number;
  entry.cookie = next_cookie_;
  const Status known = entry.root < group.ranks ? check_submit(entry, layout_.data_bytes) : Status::kInvalid;
  if (known != Status::kOk) {
    return fail(from_agent(static_cast<std::uint8_t>(known)),
                known == Status::kUnsupported
                    ? fmt::format("type {} or reduction {} is not known", entry.dtype, entry.redop)
                    : fmt::format("in and out must be aligned to the type and be the same or apart, root below {}",
                                  group.ranks));
  }
  in_flight_.emplace(entry.cookie, entry.op_no);  // first: it may throw, and then nothing has happened
  if (const Status s = submits_.push(entry); s != Status::kOk) {
    in_flight_.erase(entry.cookie);
    if (s == Status::kBusy) return fail(LK_BUSY, "the submit ring is full: the agent has not taken the ops yet");
    fail(LK_DISCONNECTED, "the submit ring is damaged");
    lost();
    return disconnected();
  }
  ++group.next_op;
  *cookie = next_cookie_++;
  if (submits_.push_wakes()) ring(agent_bell_.get());
  return LK_OK;
}

void Session::collect() {
  for (;;) {
    CompletionEntry entry;
    const Status s = completions_.pop(entry);
    if (s == Status::kBusy) return;
    const bool known = s == Status::kOk && in_flight_.erase(entry.cookie) == 1;
    if (!known) {
      fail(LK_DISCONNECTED,
           s == Status::kOk ? "the agent completed an op that was not in flight" : "the completion ring is damaged");
      lost();
      return;
    }
    done_.push_back(result_of(entry));
  }
}

lk_status Session::poll(lk_result* results, std::size_t most, std::size_t& taken) {
  collect();
  if (done_.empty() && !gone_) {
    if (const Nanos now = now_ns(); now - looked_at_ >= kLookEveryNs) {
      looked_at_ = now;
      read_packets();
      collect();  // what it completed before it went
    }
  }
  for (taken = 0; taken < most && !done_.empty(); ++taken) {
    results[taken] = done_.front();
    done_.pop_front();
  }
  return gone_ ? disconnected() : LK_OK;
}

lk_status Session::wait(std::uint64_t cookie, Nanos timeout, lk_result* result) {
  const Nanos deadline = deadline_in(timeout);
  for (bool last_look = false;; last_look = gone_) {
    collect();
    const auto found = std::find_if(done_.begin(), done_.end(), [&](const lk_result& r) { return r.cookie == cookie; });
    if (found != done_.end()) {
      const lk_result taken = *found;
      done_.erase(found);
      if (result != nullptr) *result = taken;
      if (taken.status != LK_OK) fail_of(taken);
      return taken.status;
    }
    if (in_flight_.count(cookie) == 0) {
      return fail(LK_INVALID, fmt::format("cookie {}: no op in flight has it, or its result was taken", cookie));
    }
    if (gone_ && last_look) return disconnected();
    if (gone_) continue;
    if (timeout <= 0) read_packets();
    if (!gone_ && now_ns() >= deadline) {
      return fail(LK_TIMEOUT, fmt::format("op {}: not complete in time", in_flight_.at(cookie)));
    }
    if (!gone_) doze(deadline);
  }
}

void Session::doze(Nanos deadline) {
  if (!completions_.arm()) return;
  const bool packets = connection_.sleep(bell_.get(), deadline);
  completions_.disarm();
  hush(bell_.get());
  if (packets) read_packets();
}

void Session::read_packets() {
  Packet packet;
  while (!gone_) {
    const lk_status s = connection_.receive_now(packet);
    if (s == LK_BUSY) return;
    session::JoinReply reply;
    session::GroupReady ready;
    if (s == LK_OK && session::read_packet(packet.bytes.data(), packet.length, reply)) {
      for (auto& g : groups_) {
        if (g->request != reply.request || g->answered) continue;
        g->answered = true;
        g->number = reply.group;
        g->answer = from_agent(reply.status);
        g->reason = session::text_of(reply.text);
      }
    } else if (s == LK_OK && session::read_packet(packet.bytes.data(), packet.length, ready)) {
      for (auto& g : groups_) {
        if (!g->answered || g->ready || g->number != ready.group || g->rank != ready.rank) continue;
        g->ready = ready.status == 0;
        g->next_op = ready.first_op;
        g->refusal = from_agent(ready.status);
        g->reason = session::text_of(ready.text);
      }
    } else {
      if (s == LK_OK) fail(LK_DISCONNECTED, "the agent sent a packet that has no place here");
      lost();
    }
  }
}

void Session::lost() {
  if (gone_) return;
  gone_ = true;
  gone_reason_ = last_error();
}

lk_status Session::disconnected() const { return fail(LK_DISCONNECTED, gone_reason_); }

}  // namespace lk::client

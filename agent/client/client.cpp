// The C face: checks pointers, turns exceptions into a status, and nothing else.
#include <memory>
#include <new>
#include <string>

#include "agent/client/connection.hpp"
#include "agent/client/lanekeeper.h"
#include "agent/client/session.hpp"
#include "dataplane/base/error.hpp"
#include "dataplane/base/status.hpp"

struct lk_session {
  std::unique_ptr<lk::client::Session> session;
};

namespace {

using lk::client::fail;

// LK_* of an op are the numbers of lk::Status.
static_assert(LK_UNSUPPORTED == static_cast<int>(lk::Status::kUnsupported) &&
              LK_MISMATCH == static_cast<int>(lk::Status::kMismatch) &&
              LK_NODE_LOST == static_cast<int>(lk::Status::kNodeLost) &&
              LK_CANCELLED == static_cast<int>(lk::Status::kCancelled));
static_assert(LK_BF16 == static_cast<int>(lk::DType::kBF16) && LK_AVG == static_cast<int>(lk::RedOp::kAvg));

template <typename Call>
lk_status guarded(Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(LK_SYSTEM, "out of memory");  // short enough to need none
  } catch (const std::exception& e) {
    return fail(LK_SYSTEM, e.what());
  }
}

lk_status missing(const char* what) { return fail(LK_INVALID, std::string(what) + " is NULL"); }

lk_status start(lk_group* group, lk::SubmitEntry entry, const void* in, const void* out, std::uint64_t* cookie) {
  if (group == nullptr) return missing("group");
  if (out == nullptr) return missing("out");
  if (cookie == nullptr) return missing("cookie");
  return guarded([&] { return group->session->submit(*group, entry, in, out, cookie); });
}

// What does not fit the entry's byte becomes a value that is refused.
std::uint8_t byte_of(int value) noexcept { return value < 0 || value > 0xff ? 0xff : static_cast<std::uint8_t>(value); }

}  // namespace

extern "C" {

lk_status lk_attach(const char* socket, const lk_options* options, lk_session** session) {
  if (socket == nullptr) return missing("socket");
  if (session == nullptr) return missing("session");
  *session = nullptr;
  return guarded([&] {
    auto made = std::make_unique<lk_session>();
    const lk_options chosen = options != nullptr ? *options : lk_options{};
    const lk_status s = lk::client::Session::attach(socket, chosen, made->session);
    if (s == LK_OK) *session = made.release();
    return s;
  });
}

void lk_detach(lk_session* session) { delete session; }

lk_status lk_alloc(lk_session* session, size_t bytes, void** memory) {
  if (session == nullptr) return missing("session");
  if (memory == nullptr) return missing("memory");
  *memory = nullptr;
  return guarded([&] { return session->session->take_memory(bytes, memory); });
}

lk_status lk_free(lk_session* session, void* memory) {
  if (session == nullptr) return missing("session");
  if (memory == nullptr) return LK_OK;
  return guarded([&] { return session->session->give_memory_back(memory); });
}

lk_status lk_group_join(lk_session* session, const char* group, uint16_t rank, uint16_t ranks, uint16_t gpu,
                        lk_group** joined) {
  if (session == nullptr) return missing("session");
  if (group == nullptr) return missing("group");
  if (joined == nullptr) return missing("joined");
  *joined = nullptr;
  return guarded([&] { return session->session->join(group, rank, ranks, gpu, joined); });
}

lk_status lk_group_wait(lk_group* group, int64_t timeout_ns) {
  if (group == nullptr) return missing("group");
  return guarded([&] { return group->session->wait_ready(*group, timeout_ns); });
}

lk_status lk_all_reduce(lk_group* group, const void* in, void* out, size_t count, lk_dtype dtype, lk_redop op,
                        uint64_t* cookie) {
  if (in == nullptr) return missing("in");
  lk::SubmitEntry entry{};
  entry.kind = static_cast<std::uint8_t>(lk::Collective::kAllReduce);
  entry.dtype = byte_of(dtype);
  entry.redop = byte_of(op);
  entry.count = count;
  return start(group, entry, in, out, cookie);
}

lk_status lk_broadcast(lk_group* group, const void* in, void* out, size_t count, lk_dtype dtype, uint16_t root,
                       uint64_t* cookie) {
  if (group != nullptr && group->rank == root && in == nullptr) return missing("in of the root");
  lk::SubmitEntry entry{};
  entry.kind = static_cast<std::uint8_t>(lk::Collective::kBroadcast);
  entry.dtype = byte_of(dtype);
  entry.root = root;
  entry.count = count;
  return start(group, entry, in != nullptr ? in : out, out, cookie);
}

lk_status lk_poll(lk_session* session, lk_result* results, size_t most, size_t* taken) {
  if (session == nullptr) return missing("session");
  if (results == nullptr && most != 0) return missing("results");
  if (taken == nullptr) return missing("taken");
  *taken = 0;
  return guarded([&] { return session->session->poll(results, most, *taken); });
}

lk_status lk_wait(lk_session* session, uint64_t cookie, int64_t timeout_ns, lk_result* result) {
  if (session == nullptr) return missing("session");
  return guarded([&] { return session->session->wait(cookie, timeout_ns, result); });
}

const char* lk_status_name(lk_status status) {
  switch (status) {
    case LK_TIMEOUT:
      return "timeout";
    case LK_DISCONNECTED:
      return "disconnected";
    case LK_SYSTEM:
      return "system";
    default:
      return status >= 0 && status <= LK_UNSUPPORTED ? lk::name_of(static_cast<lk::Status>(status)) : "unknown";
  }
}

const char* lk_last_error(void) { return lk::client::last_error(); }

}  // extern "C"

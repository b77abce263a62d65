// Status: the result of a data path call. The data path never throws; set-up throws lk::Error (base/error.hpp).
#pragma once

#include <cstdint>

namespace lk {

// Also what a client gets as the result of an op (LK_* in lanekeeper.h has the same numbers).
enum class Status : std::uint8_t {
  kOk = 0,
  kBusy,         // no room now (ring, window, pool, slot): try again later; counted
  kDown,         // the lane or peer cannot be used
  kInvalid,      // the call's words are wrong
  kMismatch,     // ranks disagree on an op's count, type, order or plan
  kNodeLost,     // a node of the group died
  kPartitioned,  // this side of a partition may not go on
  kDeadline,     // an op's deadline passed
  kCancelled,    // the client or agent went away
  kUnsupported,  // a type, redop or collective that this agent does not have
};

constexpr const char* name_of(Status s) noexcept {
  switch (s) {
    case Status::kOk:
      return "ok";
    case Status::kBusy:
      return "busy";
    case Status::kDown:
      return "down";
    case Status::kInvalid:
      return "invalid";
    case Status::kMismatch:
      return "mismatch";
    case Status::kNodeLost:
      return "node_lost";
    case Status::kPartitioned:
      return "partitioned";
    case Status::kDeadline:
      return "deadline";
    case Status::kCancelled:
      return "cancelled";
    case Status::kUnsupported:
      return "unsupported";
  }
  return "unknown";
}

}  // namespace lk

// PeerMessage: what control planes of two nodes say to each other. A value of fixed size, so that it can travel over
// the control channel or, when that is cut, in band over any live lane between the two nodes (it may be lost or come
// twice: senders repeat, receivers are idempotent).
#pragma once

#include <cstdint>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct PeerMessage {
  std::uint16_t kind = 0;  // control's own enum
  NodeId from = 0, to = 0;
  GroupId group = kNoId16;
  Incarnation incarnation = 0;  // of the sender
  std::uint64_t sequence = 0;
  std::uint16_t length = 0;  // bytes of payload in use
  std::uint16_t unused[3] = {};
  std::uint8_t payload[160] = {};
};
static_assert(sizeof(PeerMessage) == 192);

}  // namespace lk

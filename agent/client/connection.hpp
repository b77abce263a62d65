// Connection: the session socket of a client, from connecting to the agent's last packet. It knows packets and
// descriptors; what they mean is agent/client/session's business.
// Never waits but in receive(), and there no longer than it is told. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "agent/client/lanekeeper.h"
#include "agent/client/session_protocol.hpp"
#include "dataplane/base/unique_fd.hpp"
#include "dataplane/base/units.hpp"

namespace lk::client {

// Time of the monotonic clock, and a deadline that is `span` from now; both in ns.
Nanos now_ns() noexcept;
Nanos deadline_in(Nanos span) noexcept;

// Remembers `line` for lk_last_error() and returns `status`.
lk_status fail(lk_status status, std::string line);
const char* last_error() noexcept;

struct Packet {
  alignas(8) std::array<std::byte, session::kMostPacketBytes> bytes;
  std::size_t length = 0;
  std::vector<UniqueFd> descriptors;
};

class Connection {
 public:
  // `path` is the agent's control socket. Says who does not listen where.
  lk_status open(const std::string& path);

  template <typename T>
  lk_status send(const T& message) {
    static_assert(session::kIsMessage<T>);
    return send_bytes(&message, sizeof message);
  }
  // LK_BUSY: nothing there now; LK_DISCONNECTED: the other end has closed or sent what cannot be.
  lk_status receive_now(Packet& packet);
  // Waits for a packet; LK_TIMEOUT.
  lk_status receive(Packet& packet, Nanos deadline);

  // Waits until a packet, a close, `bell` or the deadline. True if something happened at the socket.
  bool sleep(int bell, Nanos deadline) noexcept;

 private:
  lk_status send_bytes(const void* bytes, std::size_t length);

  UniqueFd socket_;
  std::string path_;
};

}  // namespace lk::client

// What an agent and a client process say to each other over the session socket. Ops do not pass here: they go through
// the rings in shared memory (dataplane/memory/shm_layout.hpp).
//
// The agent listens on session_socket_path(PATH) beside its control socket PATH: AF_UNIX, SOCK_SEQPACKET, one message a
// packet, little endian, structs of fixed size. Order:
//   client: Hello            agent: HelloReply, with three descriptors (SCM_RIGHTS) when its status is ok:
//                                   [0] the sealed memory, [1] eventfd that wakes the agent, [2] a socket that wakes
//                                   the client: 8 bytes to read each time
//   client: Join, any number agent: JoinReply to each, at once, with the same `request`
//                            agent: GroupReady for each joined rank, once all ranks of its group have joined (or why
//                            not)
// Either side ends the session by closing; there is no other farewell. The agent may send GroupReady at any time; a
// client that sends a packet of another size, magic, version or kind is disconnected. A packet is copied, then checked.
// Reading and writing the two does not block. Texts are one line, ended by a NUL if shorter than their array.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "dataplane/base/ids.hpp"

namespace lk::session {

inline constexpr std::uint32_t kMagic = 0x53534b4cU;  // "LKSS"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr unsigned kDescriptors = 3;
inline constexpr std::size_t kMostPacketBytes = 512;  // no message is larger

inline std::string session_socket_path(const std::string& control_path) { return control_path + ".session"; }

enum class Kind : std::uint16_t { kHello = 1, kHelloReply = 2, kJoin = 3, kJoinReply = 4, kGroupReady = 5 };

struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  Kind kind{};
};

struct Hello {
  static constexpr Kind kKind = Kind::kHello;
  Header header{.kind = kKind};
  std::uint64_t data_bytes = 0;  // size of the data area that the client wants
  std::uint32_t submit_slots = 0;
  std::uint32_t completion_slots = 0;
  char name[64] = {};  // of the client, for `lanectl show`
};

struct HelloReply {
  static constexpr Kind kKind = Kind::kHelloReply;
  Header header{.kind = kKind};
  std::uint64_t region_bytes = 0;  // exact size of the memory; its first bytes are a ShmHeader
  std::uint64_t incarnation = 0;
  std::uint8_t status = 0;  // lk::Status
  std::uint8_t reserved[7] = {};
  char text[200] = {};  // why not
};

// One rank of a group; a process may join several ranks, each with a Join of its own.
struct Join {
  static constexpr Kind kKind = Kind::kJoin;
  Header header{.kind = kKind};
  std::uint32_t request = 0;  // the client's number of this call
  std::uint16_t rank = 0;
  std::uint16_t ranks = 0;
  std::uint16_t endpoint = kNoId16;  // GPU of the cluster that the rank's data belongs to; kNoId16: the agent chooses
  std::uint16_t reserved[3] = {};
  char group[64] = {};
};

struct JoinReply {
  static constexpr Kind kKind = Kind::kJoinReply;
  Header header{.kind = kKind};
  std::uint32_t request = 0;
  std::uint16_t group = kNoId16;  // for SubmitEntry and GroupReady
  std::uint16_t endpoint = kNoId16;
  std::uint8_t status = 0;  // ok: taken, GroupReady will follow
  std::uint8_t reserved[7] = {};
  char text[200] = {};
};

struct GroupReady {
  static constexpr Kind kKind = Kind::kGroupReady;
  Header header{.kind = kKind};
  std::uint64_t uuid_hi = 0, uuid_lo = 0;
  std::uint64_t first_op = 1;  // number of the rank's first op
  std::uint16_t group = kNoId16;
  std::uint16_t rank = 0;
  std::uint8_t status = 0;  // not ok: the group does not come to be
  std::uint8_t reserved[3] = {};
  char text[200] = {};
};

template <typename T>
inline constexpr bool kIsMessage = std::is_trivially_copyable_v<T>&& std::is_same_v<decltype(T::header), Header> &&
                                   sizeof(T) <= kMostPacketBytes && sizeof(T) % 8 == 0;
static_assert(kIsMessage<Hello> && kIsMessage<HelloReply> && kIsMessage<Join> && kIsMessage<JoinReply> &&
              kIsMessage<GroupReady>);

// Kind of a packet with a good header; nothing (0) else.
inline Kind kind_of(const void* packet, std::size_t bytes) noexcept {
  Header h;
  if (bytes < sizeof h) return Kind{};
  std::memcpy(&h, packet, sizeof h);
  return h.magic == kMagic && h.version == kVersion ? h.kind : Kind{};
}

// Copies a packet into `out` if it is a T, whole.
template <typename T>
bool read_packet(const void* packet, std::size_t bytes, T& out) noexcept {
  static_assert(kIsMessage<T>);
  if (bytes != sizeof(T) || kind_of(packet, bytes) != T::kKind) return false;
  std::memcpy(&out, packet, sizeof out);
  return true;
}

// Text in and out of the fixed arrays: cut to fit, never read past the end.
template <std::size_t N>
void set_text(char (&to)[N], std::string_view text) noexcept {
  const std::size_t length = text.size() < N - 1 ? text.size() : N - 1;
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, N - length);
}
template <std::size_t N>
std::string text_of(const char (&from)[N]) {
  return std::string(from, ::strnlen(from, N));
}

}  // namespace lk::session

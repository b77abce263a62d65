#include "agent/client/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lk::client {
namespace {

thread_local std::string last_error_line;

constexpr unsigned kMostDescriptors = 8;  // more than we expect, so that too many are seen and closed

}  // namespace

Nanos now_ns() noexcept {
  struct timespec t {};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos{t.tv_sec} * kSecond + t.tv_nsec;
}

Nanos deadline_in(Nanos span) noexcept {
  const Nanos now = now_ns();
  return span < 0 ? now : span > kNever - now ? kNever : now + span;
}

lk_status fail(lk_status status, std::string line) {
  last_error_line = std::move(line);
  return status;
}

const char* last_error() noexcept { return last_error_line.c_str(); }

lk_status Connection::open(const std::string& path) {
  path_ = session::session_socket_path(path);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path_.size() >= sizeof address.sun_path) {
    return fail(LK_INVALID, fmt::format("socket {}: {} bytes, expected 1 to {}", path, path.size(),
                                        sizeof address.sun_path - 1 - (path_.size() - path.size())));
  }
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) return fail(LK_SYSTEM, fmt::format("socket: {}", std::strerror(errno)));
  if (::connect(socket_.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EAGAIN) return fail(LK_BUSY, fmt::format("{}: too many are attaching at once", path_));
    return fail(LK_SYSTEM, fmt::format("{}: no agent listens there: {}", path_, std::strerror(errno)));
  }
  return LK_OK;
}

lk_status Connection::send_bytes(const void* bytes, std::size_t length) {
  ssize_t n = 0;
  do {
    n = ::send(socket_.get(), bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(length)) return LK_OK;
  if (n < 0 && errno == EAGAIN) return fail(LK_BUSY, fmt::format("{}: the agent does not read its socket", path_));
  return fail(LK_DISCONNECTED, fmt::format("{}: the agent has gone: {}", path_, std::strerror(errno)));
}

lk_status Connection::receive_now(Packet& packet) {
  packet.descriptors.clear();
  struct iovec part {
    packet.bytes.data(), packet.bytes.size()
  };
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return LK_BUSY;
  if (n <= 0) {
    return fail(LK_DISCONNECTED,
                fmt::format("{}: the agent has gone{}{}", path_, n < 0 ? ": " : "", n < 0 ? std::strerror(errno) : ""));
  }
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      packet.descriptors.emplace_back(fd);
    }
  }
  packet.length = static_cast<std::size_t>(n);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      session::kind_of(packet.bytes.data(), packet.length) == session::Kind{}) {
    return fail(LK_DISCONNECTED,
                fmt::format("{}: a packet that is not of this protocol's version {}", path_, session::kVersion));
  }
  return LK_OK;
}

lk_status Connection::receive(Packet& packet, Nanos deadline) {
  for (;;) {
    const lk_status s = receive_now(packet);
    if (s != LK_BUSY) return s;
    if (now_ns() >= deadline) return fail(LK_TIMEOUT, fmt::format("{}: no answer in time", path_));
    sleep(-1, deadline);
  }
}

bool Connection::sleep(int bell, Nanos deadline) noexcept {
  struct pollfd watched[] = {{socket_.get(), POLLIN, 0}, {bell, POLLIN, 0}};
  const Nanos left = std::max<Nanos>(deadline - now_ns(), 0);
  const struct timespec span { static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond) };
  if (::ppoll(watched, 2, &span, nullptr) <= 0) return false;  // the deadline, or a signal: the caller looks again
  return watched[0].revents != 0;
}

}  // namespace lk::client

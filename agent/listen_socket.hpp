// ListenSocket: a unix socket at a path that belongs to this process as long as the object lives. A lock file beside it
// says so to other agents and ends with its process however that dies: what a killed agent left is replaced at once,
// what a live one holds is refused. Set-up only. Both files are gone after a clean end.
// Fails: InputError, one line: path too long, held by another agent, not a socket, no such folder.
#pragma once

#include <string>

#include "dataplane/base/unique_fd.hpp"

namespace lk {

// The longest path that leaves room for the ".session" of the socket beside it.
inline constexpr std::size_t kLongestSocketPath = 99;

class ListenSocket {
 public:
  // `type` is SOCK_STREAM or SOCK_SEQPACKET; `mode` as chmod has it. The descriptor does not block.
  ListenSocket(std::string path, int type, unsigned mode);
  ~ListenSocket();
  ListenSocket(const ListenSocket&) = delete;
  ListenSocket& operator=(const ListenSocket&) = delete;

  int fd() const noexcept { return socket_.get(); }
  const std::string& path() const noexcept { return path_; }

 private:
  void take_lock();
  void bind_to(int type, unsigned mode);

  std::string path_;
  UniqueFd lock_, socket_;
};

}  // namespace lk

#include "agent/listen_socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

std::string lock_path(const std::string& path) { return path + ".lock"; }

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

[[noreturn]] void refuse(const std::string& path, const char* call) {
  throw InputError(fmt::format("{}: {}: {}, expected a path for a socket in a folder that can be written", path, call,
                               std::strerror(errno)));
}

bool same_file(int fd, const std::string& path) {
  struct stat open_file {};
  struct stat named {};
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

}  // namespace

ListenSocket::ListenSocket(std::string path, int type, unsigned mode) : path_(std::move(path)) {
  const std::size_t most = sizeof(sockaddr_un{}.sun_path) - 1;
  if (path_.empty() || path_.size() > most) {
    throw InputError(fmt::format("socket path \"{}\": {} bytes, expected 1 to {}", path_, path_.size(), most));
  }
  take_lock();
  try {
    bind_to(type, mode);
  } catch (...) {
    ::unlink(lock_path(path_).c_str());
    throw;
  }
}

ListenSocket::~ListenSocket() {
  if (!socket_) return;
  ::unlink(path_.c_str());
  ::unlink(lock_path(path_).c_str());  // still held: who waits for it finds that it is no longer the named one
}

void ListenSocket::take_lock() {
  for (;;) {
    lock_ = UniqueFd(::open(lock_path(path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!lock_) refuse(lock_path(path_), "open");
    struct stat found {};  // a lock of ours is an empty file; another's file must not be removed at our end
    if (::fstat(lock_.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size != 0) {
      throw InputError(
          fmt::format("{}: is there and no lock of an agent, expected a path that is free", lock_path(path_)));
    }
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      throw InputError(fmt::format("{}: in use by another agent, expected a path of its own for each agent", path_));
    }
    if (same_file(lock_.get(), lock_path(path_))) return;  // else its owner ended between our open and our lock
  }
}

void ListenSocket::bind_to(int type, unsigned mode) {
  struct stat found {};
  if (::lstat(path_.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) {
      throw InputError(fmt::format("{}: is there and no socket, expected a path that is free", path_));
    }
    ::unlink(path_.c_str());  // we hold the lock: its agent is dead
  }
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw SystemError(fmt::format("socket: {}", std::strerror(errno)));
  const sockaddr_un address = address_of(path_);
  // Nobody may connect before the mode is right: it is that of the file at bind.
  const mode_t before = ::umask(static_cast<mode_t>(~mode & 0777U));
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(before);
  if (bound != 0) refuse(path_, "bind");
  socket_ = std::move(socket);
  if (::listen(socket_.get(), 128) != 0) throw SystemError(fmt::format("listen {}: {}", path_, std::strerror(errno)));
}

}  // namespace lk

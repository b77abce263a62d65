#include "agent/runtime_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace lk {
namespace {

namespace fs = std::filesystem;

// Held, and still what the path names; else not valid.
UniqueFd hold(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat mine {};
  struct stat named {};
  const bool held = fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::fstat(fd.get(), &mine) == 0 &&
                    ::lstat(path.c_str(), &named) == 0 && mine.st_ino == named.st_ino && mine.st_uid == ::geteuid();
  return held ? std::move(fd) : UniqueFd();
}

bool is_dead_socket(const fs::path& path) {
  std::error_code error;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fs::symlink_status(path, error).type() != fs::file_type::socket) return false;
  if (path.native().size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.native().size() + 1);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

std::vector<fs::path> inside(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path());
  return paths;
}

void remove_if_left(const fs::path& folder) {
  const UniqueFd held = hold(folder.native());
  if (!held) return;
  const std::vector<fs::path> paths = inside(folder);
  for (const fs::path& p : paths) {
    if (!is_dead_socket(p)) return;
  }
  for (const fs::path& p : paths) ::unlink(p.c_str());
  ::rmdir(folder.c_str());
}

}  // namespace

RuntimeFolder::RuntimeFolder(const std::string& base, const std::string& name) : path_(base + "/" + name) {
  ::mkdir(base.c_str(), 0700);
  constexpr int kTries = 10;  // another one that starts may take a new folder for one that was left
  for (int i = 0; i < kTries && !held_; ++i) {
    ::mkdir(path_.c_str(), 0700);
    held_ = hold(path_);
  }
  for (const fs::path& p : inside(base)) {
    if (p.filename().native().starts_with("lk-") && p != fs::path(path_)) remove_if_left(p);
  }
}

RuntimeFolder::~RuntimeFolder() {
  if (!held_) return;
  std::error_code error;
  for (const fs::path& p : inside(path_)) {
    if (fs::symlink_status(p, error).type() == fs::file_type::socket) ::unlink(p.c_str());
  }
  ::rmdir(path_.c_str());
}

}  // namespace lk

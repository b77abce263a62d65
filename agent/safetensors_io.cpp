// The file side of agent/safetensors.hpp: reading whole, writing beside the target and renaming.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "agent/safetensors.hpp"
#include "dataplane/base/error.hpp"
#include "dataplane/base/unique_fd.hpp"

namespace lk {
namespace {

std::string reason() { return std::strerror(errno); }

void write_all(int fd, const std::string& target, const void* bytes, std::size_t length) {
  const char* p = static_cast<const char*>(bytes);
  while (length > 0) {
    const ssize_t n = ::write(fd, p, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw SystemError(fmt::format("{}: cannot be written: {}", target, reason()));
    p += n;
    length -= static_cast<std::size_t>(n);
  }
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes must not wait.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw InputError(fmt::format("{}: cannot be opened: {}", path, reason()));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw SystemError(fmt::format("{}: fstat: {}", path, reason()));
  if (!S_ISREG(info.st_mode)) throw InputError(fmt::format("{}: not a regular file", path));
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = ::read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(fmt::format("{}: cannot be read: {}", path, reason()));
    if (n == 0) break;  // it shrank meanwhile: what is left is checked as it is
    have += static_cast<std::size_t>(n);
  }
  return parse_safetensors(path, std::span(bytes).first(have));
}

NewSafetensors::NewSafetensors(const std::string& path, const SafetensorsFile& like, std::span<const std::byte> data)
    : target_(path) {
  LK_CHECK(data.size() == like.data.size());
  check_replaceable(path);
  std::string name = path + ".XXXXXX";
  UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) throw InputError(fmt::format("{}: cannot be created: {}", path, reason()));
  name_ = name;
  try {
    const std::uint64_t header_bytes = like.header.size();
    write_all(fd.get(), path, &header_bytes, sizeof header_bytes);
    write_all(fd.get(), path, like.header.data(), like.header.size());
    write_all(fd.get(), path, data.data(), data.size());
    const mode_t mask = ::umask(0);  // the only way to read it
    ::umask(mask);
    const bool kept = ::fchmod(fd.get(), 0666 & ~mask) == 0 && ::fsync(fd.get()) == 0 && ::close(fd.release()) == 0;
    if (!kept) throw SystemError(fmt::format("{}: cannot be written: {}", path, reason()));
  } catch (...) {
    ::unlink(name_.c_str());
    throw;
  }
}

NewSafetensors::~NewSafetensors() {
  if (!name_.empty()) ::unlink(name_.c_str());
}

void NewSafetensors::put_in_place() {
  if (::rename(name_.c_str(), target_.c_str()) != 0) {
    throw SystemError(fmt::format("{}: cannot be put in place: {}", target_, reason()));
  }
  name_.clear();
}

void check_replaceable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw InputError(fmt::format("{}: exists and is not a regular file", path));
  }
}

void write_safetensors(const std::string& path, const SafetensorsFile& like, std::span<const std::byte> data) {
  NewSafetensors(path, like, data).put_in_place();
}

}  // namespace lk

#include "dataplane/memory/region.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// F_SEAL_SEAL too: nobody may add a seal against writing later.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Of an adopted descriptor: shrinking must be impossible, writing must not be.
constexpr int kWriteSeals = F_SEAL_WRITE | 0x0010 /* F_SEAL_FUTURE_WRITE, Linux 5.1 */;

Bytes whole_pages(Bytes size) {
  const auto page = static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

}  // namespace

Region Region::create(const std::string& name, Bytes size) {
  if (size == 0 || size > static_cast<Bytes>(INT64_MAX) / 2) {
    throw InputError(fmt::format("region {}: size {} bytes, expected 1 to 2^62", name, size));
  }
  const Bytes rounded = whole_pages(size);
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw SystemError(fmt::format("memfd_create {}: {}", name, std::strerror(errno)));
  if (::ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) {
    throw SystemError(fmt::format("ftruncate {} to {} bytes: {}", name, rounded, std::strerror(errno)));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    throw SystemError(fmt::format("F_ADD_SEALS on {}: {}", name, std::strerror(errno)));
  }
  return {std::move(fd), rounded};
}

Region Region::adopt(UniqueFd fd, Bytes size) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    throw InputError(fmt::format("memory descriptor {}: {}, expected a sealed memfd", fd.get(),
                                 errno == EBADF ? "not open" : "not a memfd"));
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    throw InputError(fmt::format("memory descriptor {}: it can shrink, expected the seal F_SEAL_SHRINK", fd.get()));
  }
  if ((seals & kWriteSeals) != 0) {
    throw InputError(fmt::format("memory descriptor {}: sealed against writing, expected writable memory", fd.get()));
  }
  // After the seals: a size read before them could be from before a last ftruncate.
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    throw SystemError(fmt::format("fstat of memory descriptor {}: {}", fd.get(), std::strerror(errno)));
  }
  if (size == 0 || static_cast<Bytes>(info.st_size) != size) {
    throw InputError(fmt::format("memory descriptor {}: {} bytes, expected {} bytes", fd.get(), info.st_size, size));
  }
  return {std::move(fd), size};
}

Region::Region(UniqueFd fd, Bytes size) : fd_(std::move(fd)), size_(size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) {
    const int reason = errno;
    if (reason == EACCES || reason == EPERM) {
      throw InputError(
          fmt::format("memory descriptor {}: opened for reading only, expected read and write", fd_.get()));
    }
    throw SystemError(fmt::format("mmap of {} bytes: {}", size, std::strerror(reason)));
  }
  data_ = static_cast<std::byte*>(memory);
}

Region::Region(Region&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Region::~Region() { unmap(); }

void Region::unmap() noexcept {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
}

}  // namespace lk

// Region: shared memory that cannot shrink under whoever has mapped it: a memfd sealed against a change of size, so
// that no other process can turn an access of ours into a SIGBUS. The agent makes one for each client (create) or takes
// one that it made before a restart, or that a client hands over (adopt). Set-up only; throws InputError for a
// descriptor that is not what it must be, SystemError when a call is refused. Sizes are in bytes; create rounds up to
// whole pages. The mapping lives as long as the object. One owner.
#pragma once

#include <cstddef>
#include <string>

#include "dataplane/base/unique_fd.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

class Region {
 public:
  // New zeroed memory of at least `size` bytes; `name` is what /proc shows.
  static Region create(const std::string& name, Bytes size);
  // Memory behind `fd`, which must be a memfd of exactly `size` bytes that is sealed against shrinking and writable.
  static Region adopt(UniqueFd fd, Bytes size);

  Region() noexcept = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  std::byte* data() const noexcept { return data_; }
  Bytes size() const noexcept { return size_; }
  int fd() const noexcept { return fd_.get(); }  // to hand to another process; stays ours

 private:
  Region(UniqueFd fd, Bytes size);
  void unmap() noexcept;

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  Bytes size_ = 0;
};

}  // namespace lk

#include "dataplane/memory/reserved.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "dataplane/base/error.hpp"

namespace lk {

ReservedMemory::ReservedMemory(Bytes bytes) : bytes_(std::max<Bytes>(bytes, 4096)) {
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw SystemError("mmap of " + std::to_string(bytes_) + " bytes of address space: refused");
  base_ = static_cast<std::byte*>(p);
}

ReservedMemory::~ReservedMemory() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace lk

// RuntimeFolder: the folder lk-* in which DPDK puts its telemetry socket. DPDK never removes it, so it is made here,
// held by a lock that dies with the process, and removed at the end; and those that killed agents have left are removed
// at the next start: of the same user, not held, with nothing in them but sockets that nobody listens on. Owner: the
// thread that starts DPDK. What cannot be made, held or removed is left as it is: nothing depends on it.
#pragma once

#include <string>

#include "dataplane/base/unique_fd.hpp"

namespace lk {

class RuntimeFolder {
 public:
  // `base` is where DPDK keeps such folders of all its programs.
  RuntimeFolder(const std::string& base, const std::string& name);
  RuntimeFolder(const RuntimeFolder&) = delete;
  RuntimeFolder& operator=(const RuntimeFolder&) = delete;
  ~RuntimeFolder();

 private:
  std::string path_;
  UniqueFd held_;
};

}  // namespace lk

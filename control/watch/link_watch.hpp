// LinkWatch: the monitor of this node's links. Implementations belong to the agent (loopback: the emulated ports; later
// NVML, sysfs and verbs). Called by the control thread every reading interval, for own links only; it must not block and
// does not fail: what it cannot read it says so.
#pragma once

#include "control/health/link_reading.hpp"
#include "dataplane/base/ids.hpp"

namespace lk {

class LinkWatch {
 public:
  virtual ~LinkWatch() = default;
  virtual LinkReading read(LinkId link) = 0;
};

}  // namespace lk

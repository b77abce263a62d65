// LinkWatch: what a monitor knows of one link of this node now: its signalled rate, its state, its error counters.
// Implementations belong to the agent (loopback: the emulated ports; later NVML, sysfs and verbs). Called by the
// control thread every reading interval, for own links only; it must not block and does not fail: what cannot be read
// is kUnknown, and nothing follows from it. Fractions are of LinkSpec::nominal_GBps, by Direction: signalled width ×
// speed, 1 for a whole link.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/ids.hpp"

namespace lk {

enum class LinkSignal : std::uint8_t { kUnknown, kUp, kDown };

struct LinkReading {
  LinkSignal signal = LinkSignal::kUnknown;
  std::array<double, 2> fraction = {1.0, 1.0};
  std::uint64_t errors = 0;  // since start: replays, CRC and symbol errors together; 0 where nothing counts them
};

class LinkWatch {
 public:
  virtual ~LinkWatch() = default;
  virtual LinkReading read(LinkId link) = 0;
};

}  // namespace lk

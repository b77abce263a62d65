// LinkReading: what a monitor says of one link of this node at one moment (control/watch/link_watch.hpp takes it). What
// cannot be read is kUnknown, and nothing follows from it. A value; any thread.
// Fractions are of LinkSpec::nominal_GBps, by Direction: signalled width × speed, 1 for a whole link.
#pragma once

#include <array>
#include <cstdint>

namespace lk {

enum class LinkSignal : std::uint8_t { kUnknown, kUp, kDown };

struct LinkReading {
  LinkSignal signal = LinkSignal::kUnknown;
  std::array<double, 2> fraction = {1.0, 1.0};
  std::uint64_t errors = 0;  // since start: replays, CRC and symbol errors together; 0 where nothing counts them
};

}  // namespace lk

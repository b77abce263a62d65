// RouteTable: a weight for every lane of every trunk, with a version. Immutable; control builds it, an engine adopts it
// by pointer and gives the old one back (Event kRoutesReleased).
//
// Race rule: for each lane and direction the table says the number of the last event it has seen. An engine keeps its
// own verdict on a lane until a table with that number or a later one arrives.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct LaneRoute {
  GBps rate_GBps = 0;     // what balance wants it to carry; 0: stand-by, used only when no lane with a rate is left
  GBps standby_GBps = 0;  // what it can carry: health × nominal; 0: forbidden (drained, off, policy)
  std::uint64_t seen_event = 0;
};

struct RouteTable {
  std::uint64_t version = 0;
  std::vector<LaneRoute> routes;  // index: lane * 2 + direction
  std::vector<GBps> link_GBps;    // index: link * 2 + direction: capacity now; empty: nominal

  const LaneRoute& of(LaneId lane, Direction d) const noexcept {
    return routes[std::size_t{lane} * 2 + static_cast<std::size_t>(d)];
  }
};

}  // namespace lk

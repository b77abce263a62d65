// Which rungs of the ladder carried a run's payload, and whether they were those that its scenario expects. Of the
// trunks whose best lane the faults touch; of all trunks, when there is no fault. For the simulator and the lab. Pure.
#pragma once

#include <span>
#include <string>

#include "agent/scenario.hpp"

namespace lk {

struct RungShare {
  std::string text;  // "neighbour's rail 96 %, tcp 4 %", most first
  std::string why;   // what is not as the scenario expects; empty: all is
};

// `lane_bytes`: payload by lane × 2 + direction, since the faults are there. `stray`: the share that kinds which the
// scenario does not expect may carry together with no fault of anybody's.
RungShare share_of_rungs(const Scenario& scenario, const ClusterSpec& cluster, std::span<const Bytes> lane_bytes,
                         double stray);

}  // namespace lk

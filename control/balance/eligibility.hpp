// Which lanes a trunk direction may use, and what each could carry. DESIGN: a healthy nvlink lane carries its trunk
// alone; else its nvlink, relay, pcie and rdma lanes together; host and tcp only where nothing else is left.
// A lane direction is alive when every link direction on its path has capacity and its health is above 0; a message
// lane is one queue pair, so both its directions must be alive. Pure functions, any thread; nothing fails.
#pragma once

#include <optional>
#include <vector>

#include "control/balance/balance.hpp"

namespace lk {

inline constexpr double kFull = 0.999;   // a link at this fraction of nominal is whole
inline constexpr GBps kDeadGBps = 1e-6;  // a link below this carries nothing

constexpr std::size_t index_of(Direction d) noexcept { return static_cast<std::size_t>(d); }

// The link directions that data crosses on a lane in direction `d` (a → b is forward). The order is of no importance.
std::vector<Hop> hops_of(const LaneSpec& lane, Direction d);

// A lane's own limit, below that of its links (staging through host memory, a lane without links); none: no such limit.
std::optional<GBps> own_limit(const ClusterSpec& cluster, const LaneSpec& lane);

bool lane_alive(const BalanceInput& input, LaneId lane, Direction d);
bool nvlink_healthy(const BalanceInput& input, LaneId lane, Direction d);

// What a lane direction could carry with nothing else on its links, times its health; 0 when it is not alive.
GBps lane_reach(const BalanceInput& input, LaneId lane, Direction d);

// The hop of the least capacity as a fraction of nominal; no value for a lane without links.
std::optional<Hop> weakest_hop(const BalanceInput& input, LaneId lane, Direction d);

// By rung, then by id. Empty: nothing can cross this trunk in this direction.
std::vector<LaneId> eligible_lanes(const BalanceInput& input, TrunkId trunk, Direction d);

}  // namespace lk

// scenario_json: a cluster, its link capacities and a group as JSON, for a model of the bound that is not ours
// (tests/bound/bound.py). Keys: links [{name, nominal_GBps, fwd_GBps, bwd_GBps}], lanes [{name, kind, a, b, trunk,
// addressable, rung, near and far: [[link, direction]] with direction 0 = forward, limit_GBps if the lane has a limit
// below its links'}], gpus [{domain}], members [endpoint]. Capacities in GB/s, one direction. Pure, any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "control/balance/balance.hpp"

namespace lk {

nlohmann::json bound_input(const ClusterSpec& cluster, const LinkCapacities& capacity,
                           std::span<const EndpointId> members);

}  // namespace lk

// Ids: small integers into the tables of one ClusterSpec (dataplane/api/cluster.hpp). No pointers cross threads or
// nodes.
#pragma once

#include <cstdint>

namespace lk {

using NodeId = std::uint16_t;       // index of a node in the cluster
using EndpointId = std::uint16_t;   // index of a GPU in the cluster; all GPUs of node 0 first
using DomainId = std::uint16_t;     // index of an NVLink domain
using LinkId = std::uint32_t;       // index of a physical link
using LaneId = std::uint32_t;       // index of a lane (both directions)
using TrunkId = std::uint32_t;      // index of a trunk (unordered endpoint pair)
using GroupId = std::uint16_t;      // index of a group in this agent
using Rank = std::uint16_t;         // position of an endpoint in its group
using OpNumber = std::uint64_t;     // number of a collective call in its group, from 1
using Incarnation = std::uint64_t;  // random, drawn by an agent at start

inline constexpr std::uint32_t kNoId = 0xffffffffU;
inline constexpr std::uint16_t kNoId16 = 0xffffU;

// Which way over a link or lane: kForward is from the first named end to the second (a → b).
enum class Direction : std::uint8_t { kForward = 0, kBackward = 1 };

constexpr Direction opposite(Direction d) noexcept {
  return d == Direction::kForward ? Direction::kBackward : Direction::kForward;
}

}  // namespace lk

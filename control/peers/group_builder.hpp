// Group builder: how ranks are laid over domains, and which plans follow from it. Pure: the same input gives the same
// output on every node, and every node of a group must build the identical GroupSpec. Any thread.
//
// Domains in the order of their ids, ranks in rank order inside each; a domain without a member is left out. Shares of
// a plan are whole numbers out of kShareUnit (group.hpp); bytes of a chunk a power of two.
// Fails: InputError where a member is unknown, there twice, or the list is empty.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/api/group.hpp"

namespace lk {

struct GroupIdentity {
  GroupId id = 0;
  std::string name;
  std::uint64_t uuid_hi = 0, uuid_lo = 0;
};

struct ChunkLimits {
  Bytes least_bytes = 16 * kKiB;
  Bytes most_bytes = 4 * kMiB;
  Nanos span_ns = kMilli;             // what one chunk may take at the slowest lane's rate
  Bytes usual_bytes = kMiB;           // more only for lanes so fast
  Nanos least_span_ns = 10 * kMicro;  // that latency would count against a chunk that takes less than this
};

GroupSpec make_group_spec(const ClusterSpec& cluster, std::span<const EndpointId> members,
                          const GroupIdentity& identity = {});

// The same group without the ranks of lost nodes: membership and first_op as given, ranks close up in their order.
GroupSpec make_shrunk_spec(const ClusterSpec& cluster, const GroupSpec& group, std::span<const NodeId> lost,
                           std::uint16_t membership, OpNumber first_op);

// Equal shares over columns × homes; a chunk's size from the nominal rates of the best lanes.
PlanSpec default_plan(const ClusterSpec& cluster, const GroupSpec& group, const ChunkLimits& limits = {});

// Fractions [column][home] as whole shares that sum to kShareUnit: each rounded down, then the largest remainders
// (on a tie the earlier part) get what is left.
std::vector<std::uint32_t> whole_shares(const std::vector<std::vector<double>>& fractions);
std::vector<std::vector<double>> fractions_of(const GroupSpec& group, const PlanSpec& plan);

// The largest power of two within the limits that the slowest lane moves in the span; above usual_bytes only as long as
// it moves the half of it in less than least_span.
Bytes chunk_bytes_at(GBps slowest_GBps, const ChunkLimits& limits);

// The nodes that hold ranks of the group, ascending; the ranks that one node holds, ascending.
std::vector<NodeId> nodes_of(const ClusterSpec& cluster, const GroupSpec& group);
std::vector<Rank> ranks_on(const ClusterSpec& cluster, const GroupSpec& group, NodeId node);

}  // namespace lk

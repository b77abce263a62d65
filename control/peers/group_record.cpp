#include "control/peers/group_record.hpp"

#include <algorithm>
#include <numeric>

#include "control/peers/group_builder.hpp"

namespace lk {

void GroupContext::send_all(const GroupRecord& group, RecordKind kind, const Bytestring& body) const {
  for (const NodeId node : group.nodes) {
    if (node != self) peers.send(node, kind, body);
  }
}

RecordWriter about(const GroupSpec& spec) {
  RecordWriter out;
  out.put(spec.id).put(spec.uuid_lo);
  return out;
}

void put_plan(RecordWriter& out, const PlanSpec& plan) {
  out.put(plan.version).put(plan.from_op).put(plan.chunk_bytes).put_list(plan.share);
}

PlanSpec get_plan(RecordReader& in, const GroupSpec& spec, std::uint16_t membership) {
  PlanSpec plan;
  plan.group = spec.id;
  plan.membership = membership;
  plan.version = in.get<std::uint32_t>();
  plan.from_op = in.get<std::uint64_t>();
  plan.chunk_bytes = in.get<std::uint64_t>();
  plan.share = in.get_list<std::uint32_t>();
  return plan;
}

bool plan_fits(const GroupSpec& spec, const PlanSpec& plan) noexcept {
  const std::uint64_t sum = std::accumulate(plan.share.begin(), plan.share.end(), std::uint64_t{0});
  const bool power = plan.chunk_bytes != 0 && (plan.chunk_bytes & (plan.chunk_bytes - 1)) == 0;
  return plan.share.size() == std::size_t{spec.columns} * spec.domains.size() && sum == kShareUnit && power;
}

OpNumber least_done(const GroupRecord& group) noexcept {
  OpNumber least = ~OpNumber{0};
  for (const auto& [rank, progress] : group.progress) least = std::min(least, progress.done);
  return least;
}

void restart_progress(const ClusterSpec& cluster, NodeId self, GroupRecord& group) {
  group.progress.clear();
  for (const Rank rank : ranks_on(cluster, group.spec, self)) {
    group.progress[rank] = {group.spec.first_op - 1, {}};
  }
}

bool contains(const std::vector<NodeId>& set, NodeId node) noexcept {
  return std::binary_search(set.begin(), set.end(), node);
}

void insert(std::vector<NodeId>& set, NodeId node) {
  const auto it = std::lower_bound(set.begin(), set.end(), node);
  if (it == set.end() || *it != node) set.insert(it, node);
}

void erase(std::vector<NodeId>& set, NodeId node) {
  const auto it = std::lower_bound(set.begin(), set.end(), node);
  if (it != set.end() && *it == node) set.erase(it);
}

}  // namespace lk

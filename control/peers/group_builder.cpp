#include "control/peers/group_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "control/topology/columns.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

void check_members(const ClusterSpec& cluster, std::span<const EndpointId> members, const std::string& name) {
  if (members.empty()) throw InputError(fmt::format("group {}: no members, expected one GPU at least", name));
  std::vector<bool> seen(cluster.gpus.size(), false);
  for (const EndpointId gpu : members) {
    if (gpu >= seen.size()) {
      throw InputError(fmt::format("group {}: GPU {} is unknown, expected below {}", name, gpu, seen.size()));
    }
    if (seen[gpu]) throw InputError(fmt::format("group {}: GPU {} is there twice", name, gpu));
    seen[gpu] = true;
  }
}

void lay_over_domains(const ClusterSpec& cluster, GroupSpec& group) {
  std::map<DomainId, std::vector<Rank>> by_domain;
  for (std::size_t r = 0; r < group.members.size(); ++r) {
    by_domain[cluster.gpus[group.members[r]].domain].push_back(static_cast<Rank>(r));
  }
  group.domain_of.assign(group.members.size(), 0);
  group.place_of.assign(group.members.size(), 0);
  for (auto& [id, ranks] : by_domain) {
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      group.domain_of[ranks[place]] = static_cast<std::uint16_t>(group.domains.size());
      group.place_of[ranks[place]] = static_cast<std::uint16_t>(place);
    }
    group.domains.push_back({.ranks = std::move(ranks), .owners = {}});
  }
}

void choose_owners(const ClusterSpec& cluster, GroupSpec& group) {
  DomainMembers domains;
  std::map<EndpointId, Rank> rank_of;
  for (const GroupDomain& domain : group.domains) {
    domains.emplace_back();
    for (const Rank r : domain.ranks) {
      domains.back().push_back(group.members[r]);
      rank_of[group.members[r]] = r;
    }
  }
  const auto columns = choose_columns(cluster, domains);
  if (columns.empty()) {
    throw InputError(
        fmt::format("group {}: this cluster joins no GPU that it has in each of {} NVLink domains with the "
                    "others, expected GPUs of the same index",
                    group.name, domains.size()));
  }
  group.columns = static_cast<std::uint16_t>(columns.size());
  for (const auto& owners : columns) {
    for (std::size_t d = 0; d < owners.size(); ++d) group.domains[d].owners.push_back(rank_of.at(owners[d]));
  }
}

// The slowest of the best lanes that the group's plan can use: member to owner inside, owner to owner between.
GBps slowest_best_lane(const ClusterSpec& cluster, const GroupSpec& group) {
  GBps slowest = std::numeric_limits<GBps>::infinity();
  const auto take = [&](Rank x, Rank y) {
    if (x == y) return;
    const TrunkId trunk = cluster.trunk_between(group.members[x], group.members[y]);
    if (trunk == kNoId || cluster.trunks[trunk].lane_count == 0) return;
    const GBps rate = cluster.lanes[cluster.trunks[trunk].first_lane].nominal_GBps;
    if (rate > 0) slowest = std::min(slowest, rate);
  };
  const auto domains = static_cast<std::uint16_t>(group.domains.size());
  for (std::uint16_t d = 0; d < domains; ++d) {
    for (const Rank x : group.domains[d].ranks) {
      for (const Rank y : group.domains[d].ranks) take(x, y);
    }
    for (std::uint16_t column = 0; column < group.columns; ++column)
      take(group.owner(0, column), group.owner(d, column));
  }
  return slowest;
}

}  // namespace

GroupSpec make_group_spec(const ClusterSpec& cluster, std::span<const EndpointId> members,
                          const GroupIdentity& identity) {
  check_members(cluster, members, identity.name);
  GroupSpec group;
  group.id = identity.id;
  group.name = identity.name;
  group.uuid_hi = identity.uuid_hi;
  group.uuid_lo = identity.uuid_lo;
  group.members.assign(members.begin(), members.end());
  lay_over_domains(cluster, group);
  choose_owners(cluster, group);
  return group;
}

GroupSpec make_shrunk_spec(const ClusterSpec& cluster, const GroupSpec& group, std::span<const NodeId> lost,
                           std::uint16_t membership, OpNumber first_op) {
  std::vector<EndpointId> left;
  for (const EndpointId gpu : group.members) {
    if (std::find(lost.begin(), lost.end(), cluster.gpus[gpu].node) == lost.end()) left.push_back(gpu);
  }
  GroupSpec shrunk = make_group_spec(cluster, left, {group.id, group.name, group.uuid_hi, group.uuid_lo});
  shrunk.membership = membership;
  shrunk.first_op = first_op;
  return shrunk;
}

PlanSpec default_plan(const ClusterSpec& cluster, const GroupSpec& group, const ChunkLimits& limits) {
  PlanSpec plan;
  plan.group = group.id;
  plan.membership = group.membership;
  plan.from_op = group.first_op;
  const std::size_t homes = group.domains.size();
  const double even = 1.0 / static_cast<double>(group.columns * homes);
  plan.share = whole_shares(std::vector<std::vector<double>>(group.columns, std::vector<double>(homes, even)));
  plan.chunk_bytes = chunk_bytes_at(slowest_best_lane(cluster, group), limits);
  return plan;
}

std::vector<std::uint32_t> whole_shares(const std::vector<std::vector<double>>& fractions) {
  std::vector<double> exact;
  for (const auto& homes : fractions) exact.insert(exact.end(), homes.begin(), homes.end());
  double sum = 0;
  for (double& x : exact) sum += (x = std::max(x, 0.0));
  LK_CHECK(sum > 0);
  std::vector<std::uint32_t> share(exact.size());
  std::vector<std::size_t> order(exact.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::uint32_t left = kShareUnit;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    exact[i] = exact[i] / sum * kShareUnit;
    share[i] = std::min(left, static_cast<std::uint32_t>(exact[i]));
    exact[i] -= share[i];
    left -= share[i];
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return exact[x] > exact[y]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++share[order[i]];
  return share;
}

std::vector<std::vector<double>> fractions_of(const GroupSpec& group, const PlanSpec& plan) {
  const std::size_t homes = group.domains.size();
  LK_CHECK(plan.share.size() == group.columns * homes);
  std::vector<std::vector<double>> fractions(group.columns, std::vector<double>(homes));
  for (std::size_t i = 0; i < plan.share.size(); ++i) {
    fractions[i / homes][i % homes] = static_cast<double>(plan.share[i]) / kShareUnit;
  }
  return fractions;
}

Bytes chunk_bytes_at(GBps slowest_GBps, const ChunkLimits& limits) {
  Bytes bytes = limits.least_bytes;
  const auto moves_in = [&](Nanos span) { return slowest_GBps * static_cast<double>(span); };
  while (bytes * 2 <= limits.most_bytes && static_cast<double>(bytes * 2) <= moves_in(limits.span_ns) &&
         (bytes * 2 <= limits.usual_bytes || static_cast<double>(bytes) < moves_in(limits.least_span_ns))) {
    bytes *= 2;
  }
  return bytes;
}

std::vector<NodeId> nodes_of(const ClusterSpec& cluster, const GroupSpec& group) {
  std::vector<NodeId> nodes;
  for (const EndpointId gpu : group.members) nodes.push_back(cluster.gpus[gpu].node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

std::vector<Rank> ranks_on(const ClusterSpec& cluster, const GroupSpec& group, NodeId node) {
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < group.members.size(); ++r) {
    if (cluster.gpus[group.members[r]].node == node) ranks.push_back(static_cast<Rank>(r));
  }
  return ranks;
}

}  // namespace lk

#include "control/topology/columns.hpp"

#include <algorithm>

namespace lk {
namespace {

using Owners = std::vector<EndpointId>;  // one of each domain

bool can_meet(const ClusterSpec& cluster, const Owners& owners) {
  for (std::size_t a = 0; a < owners.size(); ++a) {
    for (std::size_t b = a + 1; b < owners.size(); ++b) {
      if (cluster.trunk_between(owners[a], owners[b]) == kNoId) return false;
    }
  }
  return true;
}

std::size_t longest(const DomainMembers& domains) {
  std::size_t most = 0;
  for (const auto& d : domains) most = std::max(most, d.size());
  return most;
}

Columns by_turns(const DomainMembers& domains) {
  Columns columns(longest(domains));
  for (std::size_t j = 0; j < columns.size(); ++j) {
    for (const auto& d : domains) columns[j].push_back(d[j % d.size()]);
  }
  return columns;
}

}  // namespace

Columns choose_columns(const ClusterSpec& cluster, const DomainMembers& domains) {
  Columns columns = by_turns(domains);
  const auto meets = [&cluster](const Owners& owners) { return can_meet(cluster, owners); };
  if (std::all_of(columns.begin(), columns.end(), meets)) return columns;
  DomainMembers built;
  for (const auto& d : domains) built.push_back(cluster.domains[cluster.gpus[d.front()].domain].gpus);
  columns = by_turns(built);
  std::erase_if(columns, [&](const Owners& owners) {
    for (std::size_t d = 0; d < owners.size(); ++d) {
      if (std::find(domains[d].begin(), domains[d].end(), owners[d]) == domains[d].end()) return true;
    }
    return !meets(owners);
  });
  return columns;
}

}  // namespace lk

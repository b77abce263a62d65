// Columns: which member of each NVLink domain reduces one part of a group's data. The owners of a column exchange their
// values, so the cluster must have a trunk between each two of them. Members in rank order take turns where all those
// trunks are there. Where they are not (a large cluster joins only GPUs of the same index, and a domain has lost a
// node, or somebody chose other GPUs), a column is an index of the domains as they were built, for those that all still
// have. A pure function of its arguments, so that every node finds the same. Set-up and control thread.
#pragma once

#include <vector>

#include "dataplane/api/cluster.hpp"

namespace lk {

using DomainMembers = std::vector<std::vector<EndpointId>>;  // of each domain, in rank order; none is empty
using Columns = std::vector<std::vector<EndpointId>>;        // by column and domain: who reduces it there

// None: no part could be brought from every domain to every other.
Columns choose_columns(const ClusterSpec& cluster, const DomainMembers& domains);

}  // namespace lk

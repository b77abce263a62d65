#include "agent/core_plan.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::size_t kAutoCores = 2;

struct TopologyEnd {
  void operator()(hwloc_topology* t) const noexcept { hwloc_topology_destroy(t); }
};

CoreList affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    throw SystemError(fmt::format("sched_getaffinity: {}", std::strerror(errno)));
  }
  CoreList cores;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// One core a socket, first cores first; then the rest in order.
CoreList preferred_order(const MachineCores& machine) {
  CoreList first, rest;
  std::set<unsigned> sockets;
  for (const auto& c : machine.allowed) (sockets.insert(c.socket).second ? first : rest).push_back(c.core);
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

}  // namespace

MachineCores read_machine_cores() {
  MachineCores machine;
  for (const unsigned core : affinity()) machine.allowed.push_back({core, 0});
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return machine;
  const std::unique_ptr<hwloc_topology, TopologyEnd> topology(raw);
  if (hwloc_topology_load(raw) != 0) return machine;
  for (auto& c : machine.allowed) {
    hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(raw, c.core);
    hwloc_obj_t socket = unit == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(raw, HWLOC_OBJ_PACKAGE, unit);
    if (socket != nullptr) c.socket = socket->logical_index;
  }
  return machine;
}

CorePlan plan_cores(const MachineCores& machine, unsigned nodes, unsigned reactors, const CoreList& wanted) {
  CorePlan plan;
  for (const auto& c : machine.allowed) plan.control_cores.push_back(c.core);
  for (const unsigned core : wanted) {
    if (!std::binary_search(plan.control_cores.begin(), plan.control_cores.end(), core)) {
      throw InputError(fmt::format("reactor.cores = \"{}\": core {} may not be used, expected some of {}",
                                   cores_text(wanted), core, cores_text(plan.control_cores)));
    }
  }
  const unsigned count = reactors == 0 ? nodes : std::min(reactors, nodes);
  CoreList cores = wanted;
  if (cores.empty()) {
    cores = preferred_order(machine);
    cores.resize(std::min({cores.size(), kAutoCores, std::size_t{count}}));
  }
  for (unsigned r = 0; r < count; ++r) {
    ReactorPlace place{.lcore = r + 1, .core = cores[r % cores.size()], .shared = count > cores.size(), .nodes = {}};
    for (unsigned node = r; node < nodes; node += count) place.nodes.push_back(static_cast<NodeId>(node));
    plan.reactors.push_back(std::move(place));
  }
  return plan;
}

std::vector<std::string> core_plan_lines(const CorePlan& plan) {
  std::vector<std::string> lines = {fmt::format("control thread: cores {}", cores_text(plan.control_cores))};
  for (const ReactorPlace& r : plan.reactors) {
    CoreList nodes(r.nodes.begin(), r.nodes.end());
    lines.push_back(fmt::format("reactor {}: core {}{}, node{} {}", r.lcore, r.core, r.shared ? " (shared)" : "",
                                nodes.size() == 1 ? "" : "s", cores_text(nodes)));
  }
  return lines;
}

}  // namespace lk

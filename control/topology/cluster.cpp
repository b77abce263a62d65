#include "control/topology/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "control/topology/ladder.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::size_t kMostGpus = 32768;  // EndpointId has 16 bits
constexpr std::size_t kSmallCluster = 32;

class ClusterBuilder {
 public:
  ClusterBuilder(const std::string& profile, const std::vector<NodeGroup>& groups) {
    spec_.profile = profile;
    for (const NodeGroup& group : groups) {
      check(group);
      for (unsigned i = 0; i < group.nodes; ++i) {
        if (i % group.domain_nodes == 0) spec_.domains.push_back({{}, group.plan.switch_planes});
        add_node(group.plan);
      }
    }
    if (spec_.nodes.empty()) throw InputError("a cluster of no nodes; expected at least one");
    note_assumptions(groups);
  }

  ClusterSpec build(const Machines& machines, Pairs pairs) {
    const bool all = pairs == Pairs::kAll || (pairs == Pairs::kAuto && spec_.gpus.size() <= kSmallCluster);
    const Ladder ladder(spec_, links_, machines);
    for (const auto& [a, b] : trunk_pairs(all)) {
      TrunkSpec trunk{a, b, static_cast<LaneId>(spec_.lanes.size()), 0};
      const auto id = static_cast<TrunkId>(spec_.trunks.size());
      for (LaneSpec& lane : ladder.lanes(a, b)) {
        lane.trunk = id;
        spec_.lanes.push_back(std::move(lane));
        ++trunk.lane_count;
      }
      spec_.trunk_of_pair.emplace(std::uint32_t{a} << 16 | b, id);
      spec_.trunks.push_back(trunk);
    }
    return std::move(spec_);
  }

 private:
  void check(const NodeGroup& group) const {
    if (group.nodes == 0 || group.domain_nodes == 0) throw InputError("nodes, domain_nodes: 0; expected at least 1");
    if (group.domain_nodes > 1 && group.plan.fabric != Fabric::kNvswitch) {
      throw InputError(fmt::format("domain_nodes: {}; NVLink joins several nodes only over NVSwitch, here it is {}",
                                   group.domain_nodes, name_of(group.plan.fabric)));
    }
    if (spec_.gpus.size() + group.plan.gpus * group.nodes > kMostGpus) {
      throw InputError(fmt::format("{} nodes of {} GPUs: more than {} GPUs", group.nodes, group.plan.gpus, kMostGpus));
    }
  }

  LinkId add_link(LinkKind kind, std::string name, std::uint16_t width, GBps rate) {
    LinkSpec link;
    link.name = fmt::format("{}.{}", spec_.nodes.back().name, name);
    link.kind = kind;
    link.node = static_cast<NodeId>(spec_.nodes.size() - 1);
    link.width = width;
    link.nominal_GBps = rate;
    spec_.links.push_back(std::move(link));
    return static_cast<LinkId>(spec_.links.size() - 1);
  }

  EndpointId endpoint(std::size_t gpu) const { return static_cast<EndpointId>(spec_.nodes.back().first_gpu + gpu); }

  void add_node(const NodePlan& plan) {
    NodeSpec node;
    node.name = fmt::format("n{}", spec_.nodes.size());
    node.first_gpu = static_cast<EndpointId>(spec_.gpus.size());
    node.gpu_count = static_cast<std::uint16_t>(plan.gpus);
    node.rail_count = static_cast<std::uint16_t>(plan.rails.size());
    spec_.nodes.push_back(node);
    DomainSpec& domain = spec_.domains.back();
    for (std::size_t i = 0; i < plan.gpus; ++i) {
      GpuSpec gpu;
      gpu.node = static_cast<NodeId>(spec_.nodes.size() - 1);
      gpu.index = static_cast<std::uint16_t>(i);
      gpu.domain = static_cast<DomainId>(spec_.domains.size() - 1);
      gpu.column = static_cast<std::uint16_t>(domain.gpus.size());
      domain.gpus.push_back(static_cast<EndpointId>(spec_.gpus.size()));
      spec_.gpus.push_back(gpu);
    }
    NodeLinks links;
    links.plan = &plan;
    add_nvlinks(plan, links);
    add_slots(plan, links);
    links_.push_back(std::move(links));
  }

  void add_nvlinks(const NodePlan& plan, NodeLinks& links) {
    links.to_switch.assign(plan.gpus, kNoId);
    links.bundle.assign(plan.gpus * plan.gpus, kNoId);
    for (std::size_t a = 0; a < plan.gpus; ++a) {
      if (const std::uint16_t width = plan.switch_links[a]; width > 0) {
        links.to_switch[a] =
            add_link(LinkKind::kNvlink, fmt::format("gpu{}.nvlink", a), width, width * plan.nvlink_GBps);
        spec_.links.back().gpu = endpoint(a);
      }
      for (std::size_t b = a + 1; b < plan.gpus; ++b) {
        const std::uint16_t width = plan.bundle(a, b);
        if (width == 0) continue;
        const LinkId id =
            add_link(LinkKind::kNvlink, fmt::format("gpu{}-gpu{}.nvlink", a, b), width, width * plan.nvlink_GBps);
        spec_.links.back().gpu = endpoint(a);
        spec_.links.back().peer_gpu = endpoint(b);
        links.bundle[a * plan.gpus + b] = links.bundle[b * plan.gpus + a] = id;
      }
    }
  }

  void add_slots(const NodePlan& plan, NodeLinks& links) {
    for (std::size_t gpu = 0; gpu < plan.gpus; ++gpu) {
      links.gpu_slot.push_back(
          add_link(LinkKind::kPcie, fmt::format("gpu{}.pcie", gpu), plan.slot_lanes[gpu], plan.slot_GBps[gpu]));
      spec_.links.back().gpu = endpoint(gpu);
    }
    for (const NicPlan& nic : plan.nics) {
      links.nic_slot.push_back(add_link(LinkKind::kPcie, nic.device + ".pcie", nic.slot_lanes, nic.slot_GBps));
      spec_.links.back().device = nic.device;
    }
    for (std::size_t rail = 0; rail < plan.rails.size(); ++rail) {
      const RailPlan& r = plan.rails[rail];
      links.port.push_back(
          add_link(LinkKind::kPort, fmt::format("{}.port{}", plan.nics[r.nic].device, r.port), 1, r.port_GBps));
      spec_.links.back().device = plan.nics[r.nic].device;
      spec_.links.back().rail = static_cast<std::uint16_t>(rail);
    }
    links.netdev = add_link(LinkKind::kTcp, plan.netdev, 1, plan.tcp_GBps);
    spec_.links.back().device = plan.netdev;
  }

  // One line for each thing assumed, with the nodes it is about where there are several kinds of node.
  void note_assumptions(const std::vector<NodeGroup>& groups) {
    std::size_t first = 0;
    for (const NodeGroup& group : groups) {
      const std::size_t last = first + group.nodes - 1;
      const std::string nodes = first == last ? fmt::format("n{}", first) : fmt::format("n{}-n{}", first, last);
      for (const std::string& line : group.plan.assumed) {
        spec_.assumed.push_back(groups.size() == 1 ? line : fmt::format("{}: {}", nodes, line));
      }
      first = last + 1;
    }
  }

  std::vector<std::pair<EndpointId, EndpointId>> trunk_pairs(bool all) const {
    std::vector<std::pair<EndpointId, EndpointId>> out;
    const auto add = [&](EndpointId x, EndpointId y) { out.emplace_back(std::min(x, y), std::max(x, y)); };
    for (std::size_t d = 0; d < spec_.domains.size(); ++d) {
      const std::vector<EndpointId>& mine = spec_.domains[d].gpus;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        for (std::size_t j = i + 1; j < mine.size(); ++j) add(mine[i], mine[j]);
      }
      for (std::size_t e = d + 1; e < spec_.domains.size(); ++e) {
        const std::vector<EndpointId>& theirs = spec_.domains[e].gpus;
        for (std::size_t i = 0; all && i < mine.size(); ++i) {
          for (const EndpointId other : theirs) add(mine[i], other);
        }
        for (std::size_t i = 0; !all && i < std::max(mine.size(), theirs.size()); ++i) {
          add(mine[i % mine.size()], theirs[i % theirs.size()]);
        }
      }
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  ClusterSpec spec_;
  std::vector<NodeLinks> links_;
};

}  // namespace

ClusterSpec build_cluster(const std::string& profile, const std::vector<NodeGroup>& groups, const Machines& machines,
                          Pairs pairs) {
  return ClusterBuilder(profile, groups).build(machines, pairs);
}

}  // namespace lk

#include "control/topology/node_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "control/topology/rails.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

unsigned most_links(const NodeTopology& t) {
  unsigned most = 0;
  for (std::size_t a = 0; a < t.gpus.size(); ++a) {
    unsigned own = 0;
    for (const NvlinkFact& link : t.gpus[a].nvlinks) own += link.count;
    most = std::max(most, own);
    for (std::size_t b = 0; b < t.gpus.size(); ++b) {
      if (a != b && t.cell(a, b).relation == Relation::kNvlink) most = std::max<unsigned>(most, t.cell(a, b).links);
    }
  }
  return most;
}

// The board that has such links, where only one kind does.
std::string board_of_links(const NodeTopology& t, unsigned links) {
  const bool grace =
      std::any_of(t.gpus.begin(), t.gpus.end(), [](const GpuFact& g) { return g.gpu_numa_id.has_value(); });
  switch (t.fabric) {
    case Fabric::kNvswitch:
      return grace         ? "gb200"
             : links == 6  ? "v100-sxm3"
             : links == 8  ? "a800-sxm"
             : links <= 12 ? "a100-sxm"
                           : "h100-sxm";
    case Fabric::kHybridCubeMesh:
      return "v100-sxm2";
    case Fabric::kDirectMesh:
      return links <= 2 ? "v100-sxm2" : links <= 4 ? "a100-sxm" : "h100-sxm";
    case Fabric::kBridgePair:
    case Fabric::kBridgePairs:
      return links <= 4 ? "a40" : "a100-pcie";
    case Fabric::kNone:
    case Fabric::kUnknown:
      break;
  }
  return "l40s";
}

std::string board_of_sm(int sm) {
  switch (sm) {
    case 60:
      return "p100-sxm2";
    case 61:
      return "titanx-pascal";
    case 70:
      return "v100-sxm2";
    case 80:
      return "a100-sxm";
    case 86:
      return "a10g";
    case 89:
      return "l40s";
    case 90:
      return "h100-sxm";
    case 100:
      return "b200-sxm";
    default:
      return {};
  }
}

const GpuRow& board(const NodeTopology& t, const Machines& machines, const NodeOptions& options, NodePlan& plan) {
  if (!options.gpu.empty()) return machines.gpu(options.gpu);
  const GpuFact& first = t.gpus.front();
  if (const GpuRow* row = machines.gpu_of_pci_device(first.pcie.device)) return *row;
  const std::string name = first.sm ? board_of_sm(*first.sm) : std::string();
  const GpuRow& row = machines.gpu(name.empty() ? board_of_links(t, most_links(t)) : name);
  plan.assumed.push_back(fmt::format("GPU: {} (the capture does not name it; say which with gpu)", row.name));
  return row;
}

double gtps_of(const std::string& speed) {
  double value = 0;
  const auto [end, error] = std::from_chars(speed.data(), speed.data() + speed.size(), value);
  return error == std::errc{} ? value : 0;
}

// A slot as the capture gives it; as the board has it where a capture has none or a VM makes it up.
void plan_slot(const PcieFact& fact, bool believe, const GpuRow& row, const Machines& machines, GBps& rate,
               std::uint16_t& lanes) {
  const PcieRow* pcie = &machines.pcie(row.pcie);
  lanes = static_cast<std::uint16_t>(row.pcie_width);
  if (believe && fact.speed && fact.width.value_or(0) > 0 && *fact.width <= 32) {
    const PcieRow* shown = machines.pcie_of_rate(gtps_of(*fact.speed));
    if (shown != nullptr) {
      pcie = shown;
      lanes = static_cast<std::uint16_t>(*fact.width);
    }
  }
  rate = pcie->slot_GBps(lanes);
}

void plan_nvlink(const NodeTopology& t, const GpuRow& row, const Machines& machines, NodePlan& plan) {
  plan.switch_links.assign(plan.gpus, 0);
  plan.bundles.assign(plan.gpus * plan.gpus, 0);
  plan.fabric = t.fabric;
  if (t.fabric == Fabric::kUnknown) {
    plan.fabric = row.switch_planes > 0 && plan.gpus > 2 ? Fabric::kNvswitch : Fabric::kNone;
    plan.assumed.push_back(
        fmt::format("NVLink: {} (the capture does not say)",
                    plan.fabric == Fabric::kNone ? "none" : fmt::format("{} links a GPU to a switch", row.nvlinks)));
  }
  if (plan.fabric == Fabric::kNone) return;
  // A board whose NVLink the table does not have, but the capture does: rates of the usual board for such links.
  const GpuRow& rated = row.nvlink.empty() ? machines.gpu(board_of_links(t, most_links(t))) : row;
  if (&rated != &row) plan.assumed.push_back(fmt::format("NVLink: rate of {} ({} has none)", rated.name, row.name));
  const NvlinkRow& nvlink = machines.nvlink(rated.nvlink);
  plan.nvlink_GBps = nvlink.nominal_GBps * nvlink.payload;
  if (plan.fabric == Fabric::kNvswitch) {
    const auto planes = t.nvswitches.empty() ? rated.switch_planes : static_cast<unsigned>(t.nvswitches.size());
    plan.switch_planes = static_cast<std::uint16_t>(std::max(1U, planes));
    if (t.nvswitches.empty())
      plan.assumed.push_back(fmt::format("NVSwitch planes: {} ({})", plan.switch_planes, rated.name));
  }
  for (std::size_t a = 0; a < plan.gpus; ++a) {
    unsigned own = 0;
    for (const NvlinkFact& link : t.gpus[a].nvlinks) own += link.count;
    if (t.fabric == Fabric::kUnknown) own = row.nvlinks;
    for (std::size_t b = 0; b < plan.gpus; ++b) {
      const Cell cell = t.cell(a, b);
      if (a == b || cell.relation != Relation::kNvlink) continue;
      if (plan.fabric != Fabric::kNvswitch)
        plan.bundles[a * plan.gpus + b] = cell.links;
      else
        own = std::max<unsigned>(own, cell.links);
    }
    if (plan.fabric == Fabric::kNvswitch) plan.switch_links[a] = static_cast<std::uint16_t>(own);
  }
}

// The PCIe distance that a matrix hides behind NV#: GPUs near the same NIC share a switch, GPUs of one NUMA node a
// socket.
Relation pcie_relation(const NodeTopology& t, std::size_t a, std::size_t b, bool& guessed) {
  const Relation shown = t.cell(a, b).relation;
  if (shown >= Relation::kPix) return shown;
  const auto& x = t.gpus[a].pcie;
  const auto& y = t.gpus[b].pcie;
  if (!x.bus_id.empty() && !y.bus_id.empty()) {
    if (!x.path.empty() && !y.path.empty() && x.path.front() == y.path.front()) return Relation::kPxb;
    return t.gpus[a].numa == t.gpus[b].numa ? Relation::kPhb : Relation::kSys;
  }
  guessed = true;
  for (std::size_t nic = 0; nic < t.nics.size(); ++nic) {
    const auto near = [&](std::size_t gpu) {
      const Relation r = t.gpu_nic(gpu, nic).relation;
      return r == Relation::kPix || r == Relation::kPxb;
    };
    if (near(a) && near(b)) return Relation::kPxb;
  }
  const auto& numa = t.gpus[a].numa_affinity ? t.gpus[a].numa_affinity : t.gpus[a].cpu_affinity;
  const auto& peer = t.gpus[b].numa_affinity ? t.gpus[b].numa_affinity : t.gpus[b].cpu_affinity;
  return numa && numa == peer ? Relation::kNode : Relation::kSys;
}

void plan_pcie(const NodeTopology& t, const GpuRow& row, const Machines& machines, bool believe, NodePlan& plan) {
  plan.slot_GBps.resize(plan.gpus);
  plan.slot_lanes.resize(plan.gpus);
  plan.pcie_share.assign(plan.gpus * plan.gpus, 1);
  bool guessed = false;
  for (std::size_t a = 0; a < plan.gpus; ++a) {
    plan_slot(t.gpus[a].pcie, believe, row, machines, plan.slot_GBps[a], plan.slot_lanes[a]);
    for (std::size_t b = 0; b < plan.gpus; ++b) {
      if (a != b)
        plan.pcie_share[a * plan.gpus + b] = machines.distance_share(text_of({pcie_relation(t, a, b, guessed), 0}));
    }
  }
  if (guessed)
    plan.assumed.push_back("PCIe distance of GPU pairs with NVLink: from the NICs and NUMA nodes that they share");
  if (!believe || !t.gpus.front().pcie.speed) {
    plan.assumed.push_back(fmt::format("PCIe slots: {} x{} ({})", row.pcie, row.pcie_width, row.name));
  }
}

GBps port_rate(const NicFact& nic, const PortRow* asked, const GpuRow& row, const Machines& machines, NodePlan& plan) {
  if (asked != nullptr) return asked->port_GBps();
  if (nic.speed_mbps.value_or(0) > 0) {
    const double gbps = *nic.speed_mbps / 1000.0;
    const PortRow* known = machines.port_of_rate(gbps, "infiniband");
    if (known == nullptr) known = machines.port_of_rate(gbps, "ethernet");
    return known != nullptr ? known->port_GBps() : gbps / 8;
  }
  const PortRow& usual = machines.port(row.usual_nic);
  const std::string line = fmt::format("NIC ports: {} (usual with {}; say which with nic)", usual.name, row.name);
  if (plan.assumed.empty() || plan.assumed.back() != line) plan.assumed.push_back(line);
  return usual.port_GBps();
}

void plan_rails(const NodeTopology& t, const GpuRow& row, const Machines& machines, const NodeOptions& options,
                bool believe, NodePlan& plan) {
  const PortRow* asked = options.nic.empty() ? nullptr : &machines.port(options.nic);
  for (const RailChoice& rail : choose_rails(t, machines, options.rails, row.coherent)) {
    const NicFact& fact = t.nics[rail.nic];
    NicPlan nic;
    nic.device = fact.device.empty() ? fact.name : fact.device;
    plan_slot(fact.pcie, believe, row, machines, nic.slot_GBps, nic.slot_lanes);
    const GBps rate = port_rate(fact, asked, row, machines, plan);
    for (unsigned port = 1; port <= options.ports_per_nic; ++port) {
      plan.rails.push_back({plan.nics.size(), port, rate, rail.home, rail.view});
    }
    plan.nics.push_back(std::move(nic));
  }
  if (!plan.rails.empty()) return;
  std::string far;
  for (const NicFact& nic : t.nics) far += (far.empty() ? "" : ", ") + (nic.device.empty() ? nic.name : nic.device);
  plan.assumed.push_back(
      far.empty() ? "rails: none (no NIC in the capture)"
                  : fmt::format("rails: none (not at PIX or PXB from a GPU: {}; name them with rails)", far));
}

}  // namespace

NodePlan plan_node(const NodeTopology& t, const Machines& machines, const NodeOptions& options) {
  if (t.gpus.empty()) throw InputError(fmt::format("{}: no GPU in this capture; expected at least one", t.source));
  if (options.ports_per_nic < 1 || options.ports_per_nic > 4) {
    throw InputError(fmt::format("ports_per_nic: {}; expected 1 to 4", options.ports_per_nic));
  }
  if (options.tcp_GBps < 0) throw InputError(fmt::format("tcp_GBps: {}; expected a rate above 0", options.tcp_GBps));
  NodePlan plan;
  plan.gpus = t.gpus.size();
  const GpuRow& row = board(t, machines, options, plan);
  plan.gpu_name = row.name;
  // A file without <gpu>, or a guest without NUMA, is a VM's: its link speeds are the hypervisor's.
  const bool believe = t.kind == CaptureKind::kNcclXml && t.gpus.front().dev && t.gpus.front().numa.value_or(-1) >= 0;
  plan_nvlink(t, row, machines, plan);
  plan_pcie(t, row, machines, believe, plan);
  plan_rails(t, row, machines, options, believe, plan);
  plan.tcp_GBps = options.tcp_GBps;
  for (const NicFact& nic : t.nics) {
    if (!nic.pcie.bus_id.empty() || nic.speed_mbps.value_or(0) <= 0 || t.kind != CaptureKind::kNcclXml) continue;
    plan.netdev = nic.name;
    if (plan.tcp_GBps <= 0) plan.tcp_GBps = port_rate(nic, nullptr, row, machines, plan);
  }
  if (plan.tcp_GBps <= 0) {
    plan.tcp_GBps = machines.port("25gbe").port_GBps();
    plan.assumed.push_back(fmt::format("tcp: one 25gbe netdev, {}", plan.netdev));
  }
  return plan;
}

}  // namespace lk

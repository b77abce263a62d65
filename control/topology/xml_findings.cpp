#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "control/topology/findings.hpp"

namespace lk {
namespace {

unsigned links_of(const GpuFact& gpu) {
  unsigned total = 0;
  for (const NvlinkFact& link : gpu.nvlinks) total += link.kind == LinkTarget::kSelf ? 0U : link.count;
  return total;
}

// The last GPU of a file that was cut may have lost NVLinks to the cut.
bool is_whole(const NodeTopology& t, std::size_t gpu) { return t.well_formed || gpu + 1 < t.gpus.size(); }

bool has_switch(const NodeTopology& t) {
  return std::any_of(t.gpus.begin(), t.gpus.end(), [](const GpuFact& gpu) {
    return std::any_of(gpu.nvlinks.begin(), gpu.nvlinks.end(), [](const NvlinkFact& link) {
      return link.kind == LinkTarget::kSwitch || link.kind == LinkTarget::kHiddenSwitch;
    });
  });
}

// On a switch every GPU has the same number of links, and the same number to each switch over all GPUs' sum is not due:
// boards spread them unevenly. So only the sums are compared.
void check_switch_totals(NodeTopology& t) {
  unsigned most = 0;
  for (const GpuFact& gpu : t.gpus) most = std::max(most, links_of(gpu));
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    const unsigned own = links_of(t.gpus[gpu]);
    if (own == most || !is_whole(t, gpu)) continue;
    t.note("nvlink-degraded-gpu", Severity::kFault, places_of(t, gpu),
           fmt::format("{} has {} NVLinks where other GPUs have {}", t.gpus[gpu].name, own, most));
  }
  const std::set<unsigned> whole = {6, 8, 12, 18};
  if (!whole.contains(most) && is_whole(t, 0)) {
    std::vector<std::string> all;
    for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
      for (std::string& place : places_of(t, gpu)) all.push_back(std::move(place));
    }
    t.note("nvlink-degraded-fabric", Severity::kFault, all,
           fmt::format("every GPU has {} NVLinks; no GPU on an NVSwitch has that number", most));
  }
}

// True when some GPUs, not most, have a lesser slot than the others.
bool check_pcie(NodeTopology& t) {
  std::map<std::pair<std::string, int>, std::size_t> kinds;
  bool zero = false;
  for (const GpuFact& gpu : t.gpus) {
    zero = zero || gpu.pcie.width == 0;
    if (gpu.pcie.speed && gpu.pcie.width.value_or(0) > 0) ++kinds[{*gpu.pcie.speed, *gpu.pcie.width}];
  }
  if (zero)
    t.note("pcie-width-zero", Severity::kWarn, {}, "link_width 0: passed through to a VM, the width is not known");
  if (kinds.size() < 2) return false;
  const auto usual = std::max_element(kinds.begin(), kinds.end(), [](auto& a, auto& b) { return a.second < b.second; });
  const bool most = usual->second * 2 > t.gpus.size();
  bool lesser = false;
  for (std::size_t i = 0; i < t.gpus.size(); ++i) {
    const GpuFact& gpu = t.gpus[i];
    if (!gpu.pcie.speed || gpu.pcie.width.value_or(0) <= 0) continue;
    if (*gpu.pcie.speed == usual->first.first && *gpu.pcie.width >= usual->first.second) continue;
    lesser = true;
    t.note("pcie-slot-differs", Severity::kWarn, places_of(t, i),
           fmt::format("{} is on {} x{}, most GPUs on {} x{}", gpu.name, *gpu.pcie.speed, *gpu.pcie.width,
                       usual->first.first, usual->first.second));
  }
  return lesser && most;
}

// True when a VM hides where things are: no NUMA, or many GPUs and NICs straight under one CPU. On Arm nodes each
// device has a root of its own by design.
bool check_locality(NodeTopology& t) {
  const bool no_numa = std::any_of(t.cpus.begin(), t.cpus.end(), [](const CpuFact& c) { return c.numa < 0; });
  if (no_numa) t.note("numa-unknown", Severity::kWarn, {}, "a CPU without NUMA id: the hypervisor does not say");
  if (!t.pcie_switches.empty() || t.gpus.empty()) return false;
  const bool arm = std::any_of(t.cpus.begin(), t.cpus.end(), [](const CpuFact& c) { return c.arch == "arm64"; });
  bool flat = false;
  for (const CpuFact& cpu : t.cpus) {
    const auto here = [&](const auto& device) { return device.numa == cpu.numa && !device.pcie.bus_id.empty(); };
    flat = flat || (t.gpus.front().dev && std::count_if(t.gpus.begin(), t.gpus.end(), here) >= 4 &&
                    std::count_if(t.nics.begin(), t.nics.end(), here) >= 2);
  }
  if (flat && !arm) {
    t.note("virtual-pcie", Severity::kWarn, {}, "GPUs and NICs stand straight under one CPU: a VM hides the PCIe tree");
  }
  return no_numa || (flat && !arm);
}

bool check_nics(NodeTopology& t) {
  std::vector<std::string> plain;
  bool rdma = t.gpus.empty();
  std::set<int> numas;
  for (const NicFact& nic : t.nics) {
    if (nic.pcie.bus_id.empty())
      plain.push_back(nic.name);
    else
      rdma = true;
    if (nic.numa) numas.insert(*nic.numa);
    if (nic.listed_under_numa.size() > 1) {
      t.note("nic-listed-twice", Severity::kInfo, {nic.name}, "under several <cpu> elements: one NIC, not several");
    }
  }
  std::set<int> gpu_numas;
  for (const GpuFact& gpu : t.gpus) {
    if (gpu.numa) gpu_numas.insert(*gpu.numa);
  }
  if (numas.size() == 1 && gpu_numas.size() > 1) {
    std::vector<std::string> where;
    for (const NicFact& nic : t.nics) where.push_back(nic.name);
    t.note("nic-on-one-socket", Severity::kWarn, where, "all NICs are on one socket, GPUs on several");
  }
  if (t.nics.empty()) {
    t.note("no-nics", Severity::kInfo, {}, "no NIC in this file");
    return false;
  }
  if (!rdma) t.note("no-rdma-nic", Severity::kWarn, plain, "no NIC has a PCI device: the only network is sockets");
  return !rdma;
}

void note_what_is_there(NodeTopology& t) {
  const auto note = [&](bool there, const char* code, const char* words) {
    if (there) t.note(code, Severity::kInfo, {}, words);
  };
  const bool classes_only =
      !t.gpus.empty() && std::all_of(t.gpus.begin(), t.gpus.end(), [](const GpuFact& g) { return !g.dev; });
  note(classes_only, "no-gpu-elements", "GPUs and NICs only as class codes; NVLink is not in the file");
  note(!t.unclassified.empty(), "attributes-missing", "devices without a class: the file does not say what they are");
  bool hidden = false;
  for (const GpuFact& gpu : t.gpus) {
    for (const NvlinkFact& link : gpu.nvlinks) hidden = hidden || link.kind == LinkTarget::kHiddenSwitch;
  }
  note(hidden, "hidden-nvswitch", "NVLinks go to a stand-in: the switch is not visible to the guest");
  note(!t.well_formed, "file-cut", "the XML is not whole; what could be read is here");
}

}  // namespace

void find_xml_anomalies(NodeTopology& t) {
  if (t.root != "system") {
    t.note("not-a-topology", Severity::kWarn, {}, fmt::format("the root element is <{}>, expected <system>", t.root));
    t.verdict = Verdict::kUnrecognised;
    return;
  }
  const bool elements =
      std::any_of(t.gpus.begin(), t.gpus.end(), [](const GpuFact& g) { return g.dev || !g.nvlinks.empty(); });
  if (has_switch(t)) {
    t.fabric = Fabric::kNvswitch;
    check_switch_totals(t);
  } else if (elements) {
    find_fabric(t);
  }
  const bool slots = check_pcie(t);
  note_what_is_there(t);
  const bool hidden = check_locality(t);
  const bool sockets_only = check_nics(t);
  if (t.gpus.empty()) t.cut = true;
  settle_verdict(t, hidden || sockets_only || slots);
}

}  // namespace lk

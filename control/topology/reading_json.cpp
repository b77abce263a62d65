#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "control/topology/model.hpp"

namespace lk {
namespace {

using nlohmann::json;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json text_or_null(const std::string& value) { return value.empty() ? json(nullptr) : json(value); }

json anomalies_of(const NodeTopology& t) {
  json out = json::array();
  for (const Anomaly& a : t.anomalies) {
    out.push_back({{"code", a.code}, {"severity", name_of(a.severity)}, {"where", a.where}, {"text", a.text}});
  }
  return out;
}

json nic_affinity_of(const NodeTopology& t) {
  json out = json::object();
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    Relation best = Relation::kUnknown;
    std::vector<std::string> nics;
    for (std::size_t nic = 0; nic < t.nics.size(); ++nic) {
      const Relation r = t.gpu_nic(gpu, nic).relation;
      if (r < Relation::kPix || (best != Relation::kUnknown && r > best)) continue;
      if (r != best) nics.clear();
      best = r;
      nics.push_back(t.nics[nic].name);
    }
    if (best != Relation::kUnknown) out[t.gpus[gpu].name] = {{"best", text_of({best, 0})}, {"nics", nics}};
  }
  return out;
}

// GPU12 → 12; the name is known to be GPU and digits.
int number_of(const std::string& gpu) { return static_cast<int>(std::strtol(gpu.c_str() + 3, nullptr, 10)); }

json matrix_json(const NodeTopology& t) {
  json out = {{"kind", "topo-matrix"}, {"fabric", name_of(t.fabric)}, {"gpus", t.gpus.size()},
              {"nics", t.nics.size()}, {"columns", t.columns},        {"nic_affinity", nic_affinity_of(t)}};
  out["nic_names"] = json::object();
  for (const NicFact& nic : t.nics) {
    if (!nic.device.empty()) out["nic_names"][nic.name] = nic.device;
  }
  out["relations"] = json::array();
  out["nvlink"] = json::array();
  for (std::size_t a = 0; a < t.columns.size(); ++a) {
    for (std::size_t b = a + 1; b < t.columns.size(); ++b) {
      const Cell cell = t.cell(t.column_device[a], t.column_device[b]);
      if (cell.relation == Relation::kUnknown) continue;
      out["relations"].push_back({t.columns[a], t.columns[b], text_of(cell)});
      if (cell.relation == Relation::kNvlink)
        out["nvlink"].push_back({number_of(t.columns[a]), number_of(t.columns[b]), cell.links});
    }
  }
  for (const GpuFact& gpu : t.gpus) {
    if (t.has_cpu_column) out["cpu_affinity"][gpu.name] = or_null(gpu.cpu_affinity);
    if (t.has_numa_column) out["numa_affinity"][gpu.name] = or_null(gpu.numa_affinity);
    if (t.has_gpu_numa_column) out["gpu_numa_id"][gpu.name] = or_null(gpu.gpu_numa_id);
  }
  return out;
}

json pcie_json(json out, const PcieFact& pcie) {
  out["busid"] = text_or_null(pcie.bus_id);
  out["pci_path"] = pcie.path;
  out["pcie_speed"] = or_null(pcie.speed);
  out["pcie_width"] = or_null(pcie.width);
  return out;
}

json xml_gpu_json(const GpuFact& gpu) {
  json links = json::array();
  int total = 0;
  for (const NvlinkFact& link : gpu.nvlinks) {
    links.push_back({{"target", link.target},
                     {"count", link.count},
                     {"tclass", text_or_null(link.target_class)},
                     {"target_kind", name_of(link.kind)}});
    total += link.count;
  }
  return pcie_json({{"dev", or_null(gpu.dev)},
                    {"rank", or_null(gpu.rank)},
                    {"sm", or_null(gpu.sm)},
                    {"numa", or_null(gpu.numa)},
                    {"nvlinks", links},
                    {"nvlink_total", total}},
                   gpu.pcie);
}

json xml_nic_json(const NicFact& nic) {
  json out = {{"name", text_or_null(nic.device)},      {"dev", or_null(nic.dev)}, {"port", or_null(nic.port)},
              {"speed_mbps", or_null(nic.speed_mbps)}, {"gdr", or_null(nic.gdr)}, {"numa", or_null(nic.numa)}};
  if (!nic.listed_under_numa.empty()) out["listed_under_numa"] = nic.listed_under_numa;
  return pcie_json(std::move(out), nic.pcie);
}

std::string gpu_key(const GpuFact& gpu) { return gpu.dev ? std::to_string(*gpu.dev) : gpu.pcie.bus_id; }

// Bridges that two devices share, counted from the CPU down.
std::size_t shared_bridges(const PcieFact& a, const PcieFact& b) {
  std::size_t n = 0;
  while (n < a.path.size() && n < b.path.size() && a.path[n] == b.path[n]) ++n;
  return n;
}

json nearest_nics_of(const NodeTopology& t) {
  json out = json::object();
  for (const GpuFact& gpu : t.gpus) {
    std::vector<std::string> nics;
    const char* share = "none";
    std::size_t best = 0;  // 0: none, 1: one CPU, 2 and more: bridges
    for (const NicFact& nic : t.nics) {
      if (nic.pcie.bus_id.empty()) continue;
      const std::size_t bridges = shared_bridges(gpu.pcie, nic.pcie);
      const std::size_t near = bridges > 0 ? bridges + 1 : gpu.numa && gpu.numa == nic.numa ? 1 : 0;
      if (near < best) continue;
      if (near > best) nics.clear();
      best = near;
      share = best > 1 ? "pcie-switch" : best == 1 ? "cpu" : "none";
      nics.push_back(nic.device.empty() ? nic.pcie.bus_id : nic.device);
    }
    if (!nics.empty()) out[gpu_key(gpu)] = {{"share", share}, {"nics", nics}};
  }
  return out;
}

json pairs_of(const NodeTopology& t) {
  std::vector<std::array<int, 3>> pairs;
  for (std::size_t a = 0; a < t.gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < t.gpus.size(); ++b) {
      const Cell cell = t.cell(a, b);
      if (cell.relation != Relation::kNvlink || !t.gpus[a].dev || !t.gpus[b].dev) continue;
      pairs.push_back({std::min(*t.gpus[a].dev, *t.gpus[b].dev), std::max(*t.gpus[a].dev, *t.gpus[b].dev), cell.links});
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

json xml_json(const NodeTopology& t) {
  json cpus = json::array();
  for (const CpuFact& cpu : t.cpus) {
    cpus.push_back({{"numaid", cpu.numa},
                    {"arch", or_null(cpu.arch)},
                    {"vendor", or_null(cpu.vendor)},
                    {"cpus", or_null(cpu.cpus)}});
    if (cpu.host_hash) cpus.back()["host_hash"] = *cpu.host_hash;
  }
  json gpus = json::array();
  for (const GpuFact& gpu : t.gpus) gpus.push_back(xml_gpu_json(gpu));
  json nics = json::array();
  for (const NicFact& nic : t.nics) nics.push_back(xml_nic_json(nic));
  const bool direct = t.fabric != Fabric::kNvswitch;
  json out = {{"kind", "nccl-xml"},
              {"root", t.root},
              {"xml_version", text_or_null(t.xml_version)},
              {"well_formed", t.well_formed},
              {"cpus", cpus},
              {"pcie_switches", t.pcie_switches},
              {"gpus", gpus},
              {"nics", nics},
              {"nvlink_pairs", direct ? pairs_of(t) : json::array()},
              {"nvswitches", t.nvswitches},
              {"nearest_nics", nearest_nics_of(t)},
              {"nic_count", t.nics.size()}};
  out["gpu_count"] = t.gpus.empty() && !t.unclassified.empty() ? json(nullptr) : json(t.gpus.size());
  if (!t.unclassified.empty()) out["unclassified_devices"] = t.unclassified;
  return out;
}

}  // namespace

nlohmann::json reading_to_json(const NodeTopology& t) {
  json out = t.kind == CaptureKind::kTopoMatrix ? matrix_json(t) : xml_json(t);
  out["capture"] = std::filesystem::path(t.source).filename().string();
  out["verdict"] = name_of(t.verdict);
  out["anomalies"] = anomalies_of(t);
  return out;
}

}  // namespace lk

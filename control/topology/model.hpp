// NodeTopology: what one capture (nvidia-smi topo -m text, NCCL topology XML) says about one node, and what an expert
// sees wrong in it. Pure data, no owner thread. An empty optional or an unknown relation means "the capture does not
// say"; it is never replaced by 0, "down" or a guess. Guesses belong to node_plan.hpp, where they are written down.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lk {

enum class CaptureKind : std::uint8_t { kTopoMatrix, kNcclXml };
enum class Severity : std::uint8_t { kInfo, kWarn, kFault };
enum class Verdict : std::uint8_t { kOk, kUnknown, kIncomplete, kSuspect, kDegraded, kDown, kUnrecognised };
// How far two devices are apart, nearest first. kNvlink is what a matrix prints in place of the PCIe distance.
enum class Relation : std::uint8_t { kUnknown, kSelf, kNvlink, kPix, kPxb, kPhb, kNode, kSys };
enum class Fabric : std::uint8_t {
  kUnknown,
  kNvswitch,
  kHybridCubeMesh,
  kDirectMesh,
  kBridgePair,
  kBridgePairs,
  kNone
};
enum class LinkTarget : std::uint8_t { kUnknown, kGpu, kSwitch, kHiddenSwitch, kSelf };

struct Anomaly {
  std::string code;
  Severity severity = Severity::kInfo;
  std::vector<std::string> where;  // GPU, NIC, bus id; empty is the whole capture
  std::string text;
};

struct Cell {
  Relation relation = Relation::kUnknown;
  std::uint16_t links = 0;  // of kNvlink
  bool operator==(const Cell&) const = default;
};

// NVLinks of a GPU to one target, as an XML lists them.
struct NvlinkFact {
  std::string target;  // bus id
  std::uint16_t count = 0;
  std::string target_class;
  LinkTarget kind = LinkTarget::kUnknown;
};

struct PcieFact {
  std::string bus_id;             // empty: the capture has none
  std::vector<std::string> path;  // bridges from the CPU down
  std::string device;             // PCI device id, "0x2330"
  std::optional<std::string> speed;
  std::optional<int> width;
};

struct GpuFact {
  std::string name;  // GPU3; in an XML without <gpu> the bus id
  std::optional<int> dev, rank, sm;
  PcieFact pcie;
  std::optional<int> numa;  // of the <cpu> above it, -1 as printed
  std::vector<NvlinkFact> nvlinks;
  std::optional<std::string> cpu_affinity, numa_affinity, gpu_numa_id;  // a matrix' columns, as printed
};

struct NicFact {
  std::string name;    // matrix column (NIC3, mlx5_3, NIC?3) or XML net name, else bus id
  std::string device;  // mlx5_3; empty: not named by the capture
  std::optional<int> dev, port, speed_mbps, gdr;
  PcieFact pcie;
  std::optional<int> numa;
  std::vector<int> listed_under_numa;  // only for a NIC without a PCI device
};

struct CpuFact {
  int numa = 0;
  std::optional<std::string> arch, vendor, cpus, host_hash;
};

struct NodeTopology {
  CaptureKind kind{};
  std::string source;  // the file it was read from
  std::vector<GpuFact> gpus;
  std::vector<NicFact> nics;
  std::vector<std::string> columns;        // a matrix' device columns in their order
  std::vector<std::size_t> column_device;  // device index (GPUs first, then NICs) of each column
  bool has_cpu_column = false, has_numa_column = false, has_gpu_numa_column = false;
  bool cut = false;  // text is missing that the capture once had
  Fabric fabric = Fabric::kUnknown;

  // NCCL XML only
  std::string root, xml_version;
  bool well_formed = true;
  std::vector<CpuFact> cpus;
  std::vector<std::string> pcie_switches, nvswitches, unclassified;

  std::vector<Anomaly> anomalies;
  Verdict verdict = Verdict::kOk;

  // Relations between devices, numbered GPUs first, then NICs. Symmetric.
  std::size_t device_count() const noexcept { return gpus.size() + nics.size(); }
  void size_relations() { cells_.assign(device_count() * device_count(), Cell{}); }
  const Cell& cell(std::size_t a, std::size_t b) const noexcept { return cells_[a * device_count() + b]; }
  void set_cell(std::size_t a, std::size_t b, Cell c) noexcept {
    cells_[a * device_count() + b] = c;
    cells_[b * device_count() + a] = c;
  }
  const Cell& gpu_nic(std::size_t gpu, std::size_t nic) const noexcept { return cell(gpu, gpus.size() + nic); }
  const std::string& device_name(std::size_t d) const noexcept {
    return d < gpus.size() ? gpus[d].name : nics[d - gpus.size()].name;
  }
  void note(std::string code, Severity severity, std::vector<std::string> where, std::string text) {
    anomalies.push_back({std::move(code), severity, std::move(where), std::move(text)});
  }

 private:
  std::vector<Cell> cells_;
};

const char* name_of(Severity s) noexcept;
const char* name_of(Verdict v) noexcept;
const char* name_of(Fabric f) noexcept;
const char* name_of(LinkTarget t) noexcept;
// "NV12", "PIX", …; "X" for a device itself, "?" when not known.
std::string text_of(Cell c);

// The reading as one JSON object: facts of the capture's kind, verdict, anomalies. Facts it lacks are null.
nlohmann::json reading_to_json(const NodeTopology& topology);

}  // namespace lk

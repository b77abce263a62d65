// Machines: the table of rates and boards (configs/machines.toml). Read once at set-up, immutable afterwards, any
// thread. Fails with InputError "file:line: key: what was expected" on an unknown key, unit or name and on a value out
// of range. Rates are one direction; _GBps is 10^9 byte/s, _gbps 10^9 bit/s; payload and share are fractions, 0 < x
// <= 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dataplane/api/cluster.hpp"

namespace lk {

struct NvlinkRow {
  std::string name;
  double nominal_GBps = 0, signalled_GBps = 0, payload = 0;
  std::string source;
};

struct PcieRow {
  std::string name;  // "4.0"
  double rate_GTps = 0, encoding = 0, payload = 0;
  std::string source;
  GBps slot_GBps(unsigned lanes) const noexcept { return rate_GTps * encoding * payload * lanes / 8; }
};

struct PortRow {
  std::string name;
  std::vector<std::string> aliases;
  std::string fabric;  // infiniband, ethernet
  double nominal_gbps = 0, signalled_gbps = 0, payload = 0;
  std::string source;
  GBps port_GBps() const noexcept { return nominal_gbps * payload / 8; }
};

struct GpuRow {
  std::string name;
  std::vector<std::string> aliases, pci_devices;
  std::string nvlink;  // empty: none
  unsigned nvlinks = 0, nvlinks_on_chip = 0, switch_planes = 0, pcie_width = 0, sm = 0;
  std::string pcie, usual_nic;
  bool coherent = false;  // GPU and CPU share one coherent link: PCIe distances cost nothing
  std::string source;
};

struct DistanceRow {
  std::string name;
  double share = 0;
  std::string source;
};

struct LaneRow {
  std::string kind;
  Nanos latency_ns = 0;
  double share = 0;
  std::string source;
};

class Machines {
 public:
  static Machines load(const std::string& path);
  static Machines parse(std::string_view toml, const std::string& path);

  // By name or alias, without regard to case. The last three throw InputError with the names that are known.
  const GpuRow* find_gpu(std::string_view name) const noexcept;
  const PortRow* find_port(std::string_view name) const noexcept;
  const GpuRow& gpu(std::string_view name) const;
  const PortRow& port(std::string_view name) const;
  const NvlinkRow& nvlink(std::string_view name) const;
  const PcieRow& pcie(std::string_view name) const;

  const GpuRow* gpu_of_pci_device(std::string_view device) const noexcept;
  const PcieRow* pcie_of_rate(double rate_GTps) const noexcept;
  const PortRow* port_of_rate(double gbps, std::string_view fabric) const noexcept;
  double distance_share(std::string_view relation) const noexcept;  // 1 for a name without a row
  const LaneRow& lane(std::string_view kind) const noexcept;        // every kind has a row: parse() sees to it

  const std::vector<GpuRow>& gpus() const noexcept { return gpus_; }
  const std::vector<PortRow>& ports() const noexcept { return ports_; }
  const std::vector<NvlinkRow>& nvlinks() const noexcept { return nvlinks_; }
  const std::vector<PcieRow>& pcies() const noexcept { return pcies_; }

 private:
  std::vector<NvlinkRow> nvlinks_;
  std::vector<PcieRow> pcies_;
  std::vector<PortRow> ports_;
  std::vector<GpuRow> gpus_;
  std::vector<DistanceRow> distances_;
  std::vector<LaneRow> lanes_;
};

// The folder of machines.toml and profiles/: $LANEKEEPER_CONFIGS, else configs/ or share/lanekeeper/ beside or above
// the running program, else the one it was built from. Throws InputError with the places it looked in.
std::string config_folder();

}  // namespace lk

#include "control/topology/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lk {
namespace {

Relation best_nic(const NodeTopology& t, std::size_t gpu) {
  Relation best = Relation::kUnknown;
  for (std::size_t nic = 0; nic < t.nics.size(); ++nic) {
    const Relation r = t.gpu_nic(gpu, nic).relation;
    if (r >= Relation::kPix && (best == Relation::kUnknown || r < best)) best = r;
  }
  return best;
}

// NICs that sit behind one PCIe switch are ports or functions of one card.
std::size_t cards_of(const NodeTopology& t) {
  std::size_t cards = 0;
  for (std::size_t a = 0; a < t.nics.size(); ++a) {
    bool first = true;
    for (std::size_t b = 0; b < a; ++b) {
      first = first && t.cell(t.gpus.size() + a, t.gpus.size() + b).relation != Relation::kPix;
    }
    cards += first ? 1 : 0;
  }
  return cards;
}

// GPU memory that is a NUMA node of its own: Grace and its GPUs, where every NIC is SYS by design.
bool is_coherent(const NodeTopology& t) {
  return std::any_of(t.gpus.begin(), t.gpus.end(), [](const GpuFact& g) { return g.gpu_numa_id.has_value(); });
}

// GPUs of one socket may well be far from every NIC; GPUs of all sockets cannot be, and eight GPUs are on all.
bool on_one_socket(const NodeTopology& t) {
  const auto place = [](const GpuFact& g) { return g.numa_affinity ? g.numa_affinity : g.cpu_affinity; };
  return t.gpus.size() < 8 && place(t.gpus[0]) &&
         std::all_of(t.gpus.begin(), t.gpus.end(), [&](const GpuFact& g) { return place(g) == place(t.gpus[0]); });
}

// True when the placement of the NICs is odd enough that a VM may hide the true one.
bool check_nics(NodeTopology& t) {
  if (t.nics.empty()) {
    t.note("no-nics", Severity::kInfo, {}, "no RDMA device in this capture");
    return false;
  }
  std::vector<std::string> far_nics, far_gpus, cross_gpus;
  for (std::size_t nic = 0; nic < t.nics.size(); ++nic) {
    bool far = true;
    for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) far = far && t.gpu_nic(gpu, nic).relation == Relation::kSys;
    if (far) far_nics.push_back(t.nics[nic].name);
  }
  std::set<Relation> kinds;
  bool any_near = false;
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    const Relation best = best_nic(t, gpu);
    any_near = any_near || best == Relation::kPix || best == Relation::kPxb;
    if (best == Relation::kSys) cross_gpus.push_back(t.gpus[gpu].name);
    if (best > Relation::kPxb) far_gpus.push_back(t.gpus[gpu].name);
    for (std::size_t nic = 0; nic < t.nics.size(); ++nic) kinds.insert(t.gpu_nic(gpu, nic).relation);
  }
  if (cross_gpus.size() == t.gpus.size() && !is_coherent(t)) {
    t.note("gpu-without-near-nic", Severity::kWarn, cross_gpus,
           "every NIC is SYS for every GPU: GPUDirect would cross the sockets, or a VM hides the PCIe tree");
    return !on_one_socket(t);
  }
  if (!far_nics.empty()) t.note("nic-far-from-all-gpus", Severity::kInfo, far_nics, "SYS to every GPU: no rail");
  if (!cross_gpus.empty() && cross_gpus.size() < t.gpus.size()) {
    t.note("nic-on-one-socket", Severity::kWarn, cross_gpus, "these GPUs reach every NIC over the socket link only");
  } else if (any_near && !far_gpus.empty()) {
    t.note("gpu-without-near-nic", Severity::kWarn, far_gpus, "no NIC behind a PCIe switch of these GPUs");
  }
  const bool flat = kinds.size() == 1 && *kinds.begin() > Relation::kPxb && *kinds.begin() != Relation::kSys;
  if (flat && t.gpus.size() >= 4 && cards_of(t) * 2 >= t.gpus.size()) {
    t.note("virtual-pcie", Severity::kWarn, {}, "every GPU is as far from every NIC: a VM hides the PCIe tree");
    return true;
  }
  return false;
}

int number_in(const std::string& name) {
  const std::size_t at = name.find_last_not_of("0123456789");
  const std::string digits = at == std::string::npos ? name : name.substr(at + 1);
  return digits.empty() || digits.size() > 6 ? -1 : std::stoi(digits);
}

void check_order(NodeTopology& t) {
  std::vector<int> order;
  for (const NicFact& nic : t.nics) order.push_back(number_in(nic.name));
  if (!std::is_sorted(order.begin(), order.end())) {
    t.note("nic-order-not-numeric", Severity::kInfo, {}, "NIC columns are not in numeric order");
  }
  std::vector<int> nearest;
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    const Relation best = best_nic(t, gpu);
    for (std::size_t nic = 0; nic < t.nics.size() && best <= Relation::kPxb && best != Relation::kUnknown; ++nic) {
      if (t.gpu_nic(gpu, nic).relation == best) {
        nearest.push_back(number_in(t.nics[nic].name));
        break;
      }
    }
  }
  const bool falls =
      nearest.size() > 2 && std::is_sorted(nearest.rbegin(), nearest.rend()) && nearest.front() != nearest.back();
  if (falls) t.note("nic-order-reversed", Severity::kInfo, {}, "the nearest NIC's number falls where the GPU's rises");
}

void check_affinity(NodeTopology& t) {
  if (t.cut) return;  // what is missing was cut, not blank
  std::vector<std::string> blank;
  std::set<std::string> lists;
  for (const GpuFact& gpu : t.gpus) {
    if (!gpu.cpu_affinity)
      blank.push_back(gpu.name);
    else
      lists.insert(*gpu.cpu_affinity);
  }
  if (t.has_cpu_column && !blank.empty()) {
    t.note("affinity-blank", Severity::kInfo, blank, "CPU Affinity is empty: no CPU of that node in this cpuset");
  }
  if (t.gpus.size() >= 8 && lists.size() == 1 && blank.empty()) {
    t.note("affinity-flat", Severity::kInfo, {}, "every GPU has the same CPUs: no locality can be read from them");
  }
  if (!t.has_numa_column) return;
  std::vector<std::string> unknown;
  for (const GpuFact& gpu : t.gpus) {
    if (!gpu.numa_affinity) unknown.push_back(gpu.name);
  }
  if (!unknown.empty()) t.note("numa-unknown", Severity::kInfo, unknown, "NUMA Affinity is not given");
}

}  // namespace

void settle_verdict(NodeTopology& t, bool suspect) {
  const bool fault = std::any_of(t.anomalies.begin(), t.anomalies.end(),
                                 [](const Anomaly& a) { return a.severity == Severity::kFault; });
  if (fault)
    t.verdict = Verdict::kDegraded;
  else if (suspect)
    t.verdict = Verdict::kSuspect;
  else if (t.cut)
    t.verdict = Verdict::kIncomplete;
  else
    t.verdict = Verdict::kOk;
}

void find_anomalies(NodeTopology& t) {
  find_fabric(t);
  const auto has = [&](const char* code) {
    return std::any_of(t.anomalies.begin(), t.anomalies.end(), [&](const Anomaly& a) { return a.code == code; });
  };
  if (t.fabric == Fabric::kNone) t.note("no-nvlink", Severity::kInfo, {}, "no NVLink: all traffic is on PCIe");
  const bool hidden = check_nics(t);
  check_order(t);
  check_affinity(t);
  settle_verdict(t, hidden || has("rows-disagree") || has("nvlink-mesh-unknown"));
}

}  // namespace lk

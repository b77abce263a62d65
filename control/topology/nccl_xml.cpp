#include "control/topology/nccl_xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <pugixml.hpp>

#include "control/topology/capture.hpp"
#include "control/topology/capture_text.hpp"
#include "control/topology/findings.hpp"
#include "control/topology/topo_matrix.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::string_view kHiddenSwitch = "fffffff:ff:ff.0";
constexpr std::size_t kMostDevices = 1024;
constexpr unsigned kDeepest = 32;  // bridges above each other

std::optional<int> number(const pugi::xml_node& node, const char* name) {
  const char* text = node.attribute(name).value();
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || stop != end || text == end) return {};
  return value;
}

std::optional<std::string> text(const pugi::xml_node& node, const char* name) {
  const std::string value = node.attribute(name).value();
  if (value.empty()) return {};
  return value;
}

bool has_class(const pugi::xml_node& pci, std::string_view prefix) {
  return std::string_view(pci.attribute("class").value()).substr(0, prefix.size()) == prefix;
}

// "000000ff,ffff0000,00ffffff": 32-bit words, most significant first. Empty when it is no mask.
std::optional<std::string> cpu_list(std::string_view mask) {
  std::vector<unsigned> words;
  while (!mask.empty()) {
    const std::string_view word = mask.substr(0, mask.find(','));
    mask.remove_prefix(std::min(word.size() + 1, mask.size()));
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (error != std::errc{} || stop != word.data() + word.size() || words.size() >= 1024) return {};
    words.insert(words.begin(), value);
  }
  std::string out;
  const std::size_t bits = words.size() * 32;
  const auto bit = [&](std::size_t i) { return i < bits && (words[i / 32] >> (i % 32) & 1U) != 0; };
  for (std::size_t i = 0; i < bits; ++i) {
    if (!bit(i)) continue;
    const std::size_t first = i;
    while (bit(i + 1)) ++i;
    out += out.empty() ? "" : ",";
    out += first == i ? fmt::format("{}", first) : fmt::format("{}-{}", first, i);
  }
  if (out.empty()) return {};
  return out;
}

class XmlBuilder {
 public:
  explicit XmlBuilder(NodeTopology& out) : out_(out) {}

  void read(const pugi::xml_node& root) {
    gpu_elements_ = root.find_node([](const pugi::xml_node& n) { return std::strcmp(n.name(), "gpu") == 0; });
    for (const pugi::xml_node& child : root.children()) {
      if (std::strcmp(child.name(), "cpu") == 0)
        read_cpu(child);
      else
        read_child(child, {}, {});
    }
    name_gpus();
    classify_targets();
    relate();
  }

 private:
  using Numa = std::optional<int>;  // none: the device stands under no <cpu>

  void read_cpu(const pugi::xml_node& cpu) {
    CpuFact fact;
    fact.numa = number(cpu, "numaid").value_or(-1);
    fact.arch = text(cpu, "arch");
    fact.vendor = text(cpu, "vendor");
    fact.host_hash = text(cpu, "host_hash");
    if (const auto mask = text(cpu, "affinity")) fact.cpus = cpu_list(*mask);
    out_.cpus.push_back(fact);
    for (const pugi::xml_node& child : cpu.children()) read_child(child, fact.numa, {});
  }

  void read_child(const pugi::xml_node& node, Numa numa, const std::vector<std::string>& path) {
    if (std::strcmp(node.name(), "pci") == 0) read_pci(node, numa, path);
    if (std::strcmp(node.name(), "nic") == 0) {
      for (const pugi::xml_node& net : node.children("net")) add_net(net, PcieFact{}, numa);
    }
  }

  void read_pci(const pugi::xml_node& pci, Numa numa, std::vector<std::string> path) {
    if (out_.gpus.size() + out_.nics.size() >= kMostDevices || path.size() >= kDeepest) return;
    PcieFact fact;
    fact.bus_id = pci.attribute("busid").value();
    fact.path = path;
    fact.device = pci.attribute("device").value();
    fact.speed = text(pci, "link_speed");
    fact.width = number(pci, "link_width");
    const pugi::xml_node gpu = pci.child("gpu");
    const pugi::xml_node nic = pci.child("nic");
    if (pci.child("pci") || (has_class(pci, "0x0604") && !gpu && !nic)) {
      out_.pcie_switches.push_back(fact.bus_id);
      path.push_back(fact.bus_id);
    } else if (!gpu && !nic) {
      add_leaf(pci, fact, numa);
    }
    if (gpu) add_gpu(gpu, fact, numa);
    for (const pugi::xml_node& net : nic.children("net")) add_net(net, fact, numa);
    if (nic && !nic.child("net")) add_net({}, fact, numa);  // its ports were cut away
    for (const pugi::xml_node& child : pci.children()) {
      if (std::strcmp(child.name(), "pci") == 0) read_pci(child, numa, path);
    }
  }

  // A device without <gpu> or <nic>: its class alone tells what it is.
  void add_leaf(const pugi::xml_node& pci, const PcieFact& fact, Numa numa) {
    if (pci.attribute("class").empty()) {
      out_.unclassified.push_back(fact.bus_id);
    } else if (!gpu_elements_ && has_class(pci, "0x03")) {
      GpuFact& gpu = out_.gpus.emplace_back();
      gpu.pcie = fact;
      gpu.numa = numa;
    } else if (!gpu_elements_ && has_class(pci, "0x02")) {
      NicFact& nic = out_.nics.emplace_back();
      nic.name = fact.bus_id;
      nic.pcie = fact;
      nic.numa = numa;
    }
  }

  void add_gpu(const pugi::xml_node& node, const PcieFact& fact, Numa numa) {
    GpuFact& gpu = out_.gpus.emplace_back();
    gpu.dev = number(node, "dev");
    gpu.rank = number(node, "rank");
    gpu.sm = number(node, "sm");
    gpu.pcie = fact;
    gpu.numa = numa;
    for (const pugi::xml_node& link : node.children("nvlink")) {
      NvlinkFact nvlink;
      nvlink.target = link.attribute("target").value();
      nvlink.count = static_cast<std::uint16_t>(std::clamp(number(link, "count").value_or(0), 0, 1000));
      nvlink.target_class = link.attribute("tclass").value();
      gpu.nvlinks.push_back(std::move(nvlink));
    }
  }

  void add_net(const pugi::xml_node& net, const PcieFact& fact, Numa numa) {
    const std::string device = net.attribute("name").value();
    const auto dev = number(net, "dev");
    for (NicFact& known : out_.nics) {
      if (known.device != device || known.dev != dev || known.pcie.bus_id != fact.bus_id) continue;
      if (number(net, "port") != known.port) continue;
      if (fact.bus_id.empty()) known.listed_under_numa.push_back(numa.value_or(-1));
      twice_.push_back(device);
      return;
    }
    if (out_.nics.size() >= kMostDevices) return;
    NicFact& nic = out_.nics.emplace_back();
    nic.device = device;
    nic.name = device.empty() ? fact.bus_id : device;
    nic.dev = dev;
    nic.port = number(net, "port");
    nic.speed_mbps = number(net, "speed");
    nic.gdr = number(net, "gdr");
    nic.pcie = fact;
    if (fact.bus_id.empty()) {
      nic.listed_under_numa = {numa.value_or(-1)};
    } else {
      nic.numa = numa;
    }
  }

  void name_gpus() {
    for (GpuFact& gpu : out_.gpus) gpu.name = gpu.dev ? fmt::format("GPU{}", *gpu.dev) : gpu.pcie.bus_id;
  }

  void classify_targets() {
    std::map<std::string, const GpuFact*> by_bus;
    for (const GpuFact& gpu : out_.gpus) by_bus[gpu.pcie.bus_id] = &gpu;
    for (GpuFact& gpu : out_.gpus) {
      for (NvlinkFact& link : gpu.nvlinks) {
        const std::string_view kind = link.target_class;
        if (link.target == gpu.pcie.bus_id)
          link.kind = LinkTarget::kSelf;
        else if (link.target == kHiddenSwitch)
          link.kind = LinkTarget::kHiddenSwitch;
        else if (kind.substr(0, 4) == "0x03" || by_bus.contains(link.target))
          link.kind = LinkTarget::kGpu;
        else if (kind == "0x068000")
          link.kind = LinkTarget::kSwitch;
        if (link.kind == LinkTarget::kSwitch) out_.nvswitches.push_back(link.target);
      }
    }
    std::sort(out_.nvswitches.begin(), out_.nvswitches.end());
    out_.nvswitches.erase(std::unique(out_.nvswitches.begin(), out_.nvswitches.end()), out_.nvswitches.end());
  }

  // The matrix that nvidia-smi would print, as far as the tree tells it.
  void relate() {
    out_.size_relations();
    const auto pcie = [&](std::size_t d) -> const PcieFact& {
      return d < out_.gpus.size() ? out_.gpus[d].pcie : out_.nics[d - out_.gpus.size()].pcie;
    };
    const auto numa = [&](std::size_t d) {
      return d < out_.gpus.size() ? out_.gpus[d].numa : out_.nics[d - out_.gpus.size()].numa;
    };
    for (std::size_t a = 0; a < out_.device_count(); ++a) {
      for (std::size_t b = a + 1; b < out_.device_count(); ++b) {
        if (pcie(a).bus_id.empty() || pcie(b).bus_id.empty()) continue;
        const auto& x = pcie(a).path;
        const auto& y = pcie(b).path;
        Relation r = numa(a) == numa(b) ? Relation::kPhb : Relation::kSys;
        if (!x.empty() && !y.empty() && x.front() == y.front()) r = x == y ? Relation::kPix : Relation::kPxb;
        out_.set_cell(a, b, {r, 0});
      }
    }
    relate_nvlinks();
  }

  void relate_nvlinks() {
    for (std::size_t a = 0; a < out_.gpus.size(); ++a) {
      for (std::size_t b = a + 1; b < out_.gpus.size(); ++b) {
        const unsigned there = links_to(out_.gpus[a], out_.gpus[b].pcie.bus_id);
        const unsigned back = links_to(out_.gpus[b], out_.gpus[a].pcie.bus_id);
        if (there == 0 && back == 0) continue;
        const bool lost_to_cut = !out_.well_formed && b + 1 == out_.gpus.size();
        const unsigned links = lost_to_cut ? std::max(there, back) : std::min(there, back);
        out_.set_cell(a, b, {Relation::kNvlink, static_cast<std::uint16_t>(links)});
        if (there == back || lost_to_cut) continue;
        std::vector<std::string> where = places_of(out_, a);
        for (std::string& place : places_of(out_, b)) where.push_back(std::move(place));
        out_.note("nvlink-degraded-pair", Severity::kFault, std::move(where),
                  fmt::format("{} counts {} links to {}, which counts {} back", out_.gpus[a].name, there,
                              out_.gpus[b].name, back));
      }
    }
  }

  static unsigned links_to(const GpuFact& gpu, const std::string& bus) {
    unsigned links = 0;
    for (const NvlinkFact& link : gpu.nvlinks) links += link.target == bus ? link.count : 0U;
    return links;
  }

  NodeTopology& out_;
  pugi::xml_node gpu_elements_;
  std::vector<std::string> twice_;
};

// Text copied out of a web page's source.
std::string unescaped(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}};
  for (const auto& [name, sign] : kNames) {
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
      text.replace(at, name.size(), sign);
  }
  return text;
}

// Drops what stands in front of the first '<' of a line where it is a line number or a sign, and what stands around
// the document.
std::string bare_xml(std::string_view bytes) {
  CaptureText plain = plain_text(bytes);
  const std::string whole = joined(plain);
  if (whole.find('<') == std::string::npos && whole.find("&lt;") != std::string::npos) {
    for (CaptureLine& line : plain.lines) line.text = unescaped(line.text);
  }
  bool started = false;
  std::string out;
  for (CaptureLine& line : plain.lines) {
    const std::size_t open = line.text.find('<');
    const std::size_t front = line.text.find_first_not_of(" \t0123456789:.)|#>*+-/;");
    if (open != std::string::npos && front == open) line.text.erase(0, open);
    if (!started && open != std::string::npos) {
      started = true;
      line.text.erase(0, line.text.find('<'));
    }
    if (!started) continue;
    out += line.text + '\n';
    if (line.text.find("</system>") != std::string::npos) {
      out.resize(out.rfind("</system>") + 9);
      break;
    }
  }
  return out;
}

}  // namespace

bool looks_like_xml(std::string_view bytes) noexcept {
  for (const std::string_view mark : {"<system", "<?xml", "<cpu ", "<pci ", "&lt;system", "<graphs"}) {
    if (bytes.find(mark) != std::string_view::npos) return true;
  }
  return false;
}

NodeTopology read_nccl_xml(std::string_view bytes, const std::string& source) {
  NodeTopology out;
  out.kind = CaptureKind::kNcclXml;
  out.source = source;
  const std::string xml = bare_xml(bytes);
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(xml.data(), xml.size());
  out.well_formed = static_cast<bool>(result);
  const pugi::xml_node root = document.document_element();
  if (!root) {
    throw InputError(fmt::format("{}: no XML element can be read ({}); expected <system> of an NCCL topology", source,
                                 result.description()));
  }
  out.root = root.name();
  out.xml_version = root.attribute("version").value();
  out.cut = !out.well_formed;
  XmlBuilder(out).read(root);
  find_xml_anomalies(out);
  return out;
}

NodeTopology parse_capture(std::string_view bytes, const std::string& source) {
  return looks_like_xml(bytes) ? read_nccl_xml(bytes, source) : read_topo_matrix(bytes, source);
}

NodeTopology read_capture(const std::string& path) { return parse_capture(read_capture_file(path), path); }

}  // namespace lk

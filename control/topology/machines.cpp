#include "control/topology/machines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <unordered_set>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// One [[table]] row, read key by key; what is left over at the end is an unknown key. "expected" lists the keys asked
// for, so the error text cannot go out of date.
class Row {
 public:
  Row(const toml::table& table, std::string kind, const std::string& file)
      : table_(table), kind_(std::move(kind)), file_(file) {}

  [[noreturn]] void fail(std::string_view key, const toml::source_region& at, const std::string& expected) const {
    throw InputError(fmt::format("{}:{}: {}.{}: {}", file_, at.begin.line, kind_, key, expected));
  }

  std::string text(std::string_view key, bool required = true) {
    const toml::node* node = take(key, required, "a text");
    if (node == nullptr) return {};
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty()) fail(key, node->source(), "expected a text, not empty");
    return *value;
  }

  double number(std::string_view key, double above, double most) {
    const toml::node* node = take(key, true, "a number");
    const auto value = node->value<double>();
    if (!value || node->is_boolean() || !(*value > above && *value <= most)) {
      fail(key, node->source(), fmt::format("expected a number above {} and at most {}", above, most));
    }
    return *value;
  }

  unsigned count(std::string_view key, unsigned least, unsigned most, bool required = true, unsigned otherwise = 0) {
    const toml::node* node = take(key, required, "a whole number");
    if (node == nullptr) return otherwise;
    const auto value = node->value_exact<std::int64_t>();
    if (!value || *value < std::int64_t{least} || *value > std::int64_t{most}) {
      fail(key, node->source(), fmt::format("expected a whole number from {} to {}", least, most));
    }
    return static_cast<unsigned>(*value);
  }

  bool flag(std::string_view key) {
    const toml::node* node = take(key, false, "true or false");
    if (node == nullptr) return false;
    const auto value = node->value_exact<bool>();
    if (!value) fail(key, node->source(), "expected true or false");
    return *value;
  }

  std::vector<std::string> texts(std::string_view key) {
    const toml::node* node = take(key, false, "a list of texts");
    std::vector<std::string> out;
    if (node == nullptr) return out;
    const toml::array* list = node->as_array();
    if (list == nullptr) fail(key, node->source(), "expected a list of texts");
    for (const toml::node& item : *list) {
      const auto value = item.value_exact<std::string>();
      if (!value || value->empty()) fail(key, item.source(), "expected a list of texts");
      out.push_back(*value);
    }
    return out;
  }

  std::string one_of(std::string_view key, const std::vector<std::string>& allowed) {
    std::string value = text(key);
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      fail(key, table_.get(key)->source(),
           fmt::format("expected one of {}, got \"{}\"", fmt::join(allowed, ", "), value));
    }
    return value;
  }

  void done() const {
    for (const auto& [key, value] : table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) == known_.end()) {
        fail(key.str(), key.source(), fmt::format("unknown key; expected one of {}", fmt::join(known_, ", ")));
      }
    }
  }

 private:
  const toml::node* take(std::string_view key, bool required, const char* what) {
    known_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr && required) {
      done_if_unknown();
      fail(key, table_.source(), fmt::format("missing; expected {}", what));
    }
    return node;
  }

  // A key with the wrong unit (nominal_gbps for nominal_GBps) is a missing and an unknown key; the unknown one is the
  // better line to show.
  void done_if_unknown() const {
    const auto lower = [](std::string_view s) {
      std::string out(s.substr(0, s.find('_')));
      std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
      return out;
    };
    for (const auto& [key, value] : table_) {
      const bool asked = std::find(known_.begin(), known_.end(), key.str()) != known_.end();
      if (!asked && lower(key.str()) == lower(known_.back())) {
        fail(key.str(), key.source(), fmt::format("unknown key or unit; expected {}", known_.back()));
      }
    }
  }

  const toml::table& table_;
  std::string kind_;
  const std::string& file_;
  std::vector<std::string> known_;
};

bool same_name(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
           return std::tolower(x) == std::tolower(y);
         });
}

template <typename T>
const T* find_row(const std::vector<T>& rows, std::string_view name) noexcept {
  for (const T& row : rows) {
    if (same_name(row.name, name)) return &row;
    if constexpr (requires { row.aliases; }) {
      for (const std::string& alias : row.aliases) {
        if (same_name(alias, name)) return &row;
      }
    }
  }
  return nullptr;
}

template <typename T>
const T& need_row(const std::vector<T>& rows, std::string_view name, const char* what) {
  if (const T* row = find_row(rows, name)) return *row;
  std::vector<std::string> names;
  names.reserve(rows.size());
  for (const T& row : rows) names.push_back(row.name);
  throw InputError(fmt::format("unknown {} \"{}\"; expected one of {}", what, name, fmt::join(names, ", ")));
}

NvlinkRow read_nvlink(Row& row) {
  NvlinkRow out;
  out.name = row.text("name");
  out.nominal_GBps = row.number("nominal_GBps", 0, 1000);
  out.signalled_GBps = row.number("signalled_GBps", 0, 1000);
  out.payload = row.number("payload", 0, 1);
  out.source = row.text("source");
  return out;
}

PcieRow read_pcie(Row& row) {
  PcieRow out;
  out.name = row.text("name");
  out.rate_GTps = row.number("rate_GTps", 0, 1000);
  out.encoding = row.number("encoding", 0, 1);
  out.payload = row.number("payload", 0, 1);
  out.source = row.text("source");
  return out;
}

PortRow read_port(Row& row) {
  PortRow out;
  out.name = row.text("name");
  out.aliases = row.texts("aliases");
  out.fabric = row.one_of("fabric", {"infiniband", "ethernet"});
  out.nominal_gbps = row.number("nominal_gbps", 0, 10000);
  out.signalled_gbps = row.number("signalled_gbps", 0, 10000);
  out.payload = row.number("payload", 0, 1);
  out.source = row.text("source");
  return out;
}

GpuRow read_gpu(Row& row) {
  GpuRow out;
  out.name = row.text("name");
  out.aliases = row.texts("aliases");
  out.nvlinks = row.count("nvlinks", 0, 64);
  out.nvlink = row.text("nvlink", out.nvlinks > 0);
  out.nvlinks_on_chip = row.count("nvlinks_on_chip", out.nvlinks, 64, false, out.nvlinks);
  out.switch_planes = row.count("switch_planes", 1, 64, false);
  out.pcie = row.text("pcie");
  out.pcie_width = row.count("pcie_width", 1, 32);
  out.sm = row.count("sm", 30, 999);
  out.pci_devices = row.texts("pci_devices");
  out.usual_nic = row.text("usual_nic");
  out.coherent = row.flag("coherent");
  out.source = row.text("source");
  return out;
}

DistanceRow read_distance(Row& row) {
  DistanceRow out;
  out.name = row.one_of("name", {"PIX", "PXB", "PHB", "NODE", "SYS"});
  out.share = row.number("share", 0, 1);
  out.source = row.text("source");
  return out;
}

const std::vector<std::string> kLaneKinds = {"nvlink", "relay", "pcie", "host", "rdma", "neighbour", "tcp"};

LaneRow read_lane(Row& row) {
  LaneRow out;
  out.kind = row.one_of("kind", kLaneKinds);
  out.latency_ns = row.count("latency_ns", 1, 1'000'000'000);
  out.share = row.number("share", 0, 1);
  out.source = row.text("source");
  return out;
}

template <typename T>
std::vector<T> read_rows(const toml::table& file, const char* kind, const std::string& path, T (*read)(Row&)) {
  const toml::node* node = file.get(kind);
  const toml::array* rows = node == nullptr ? nullptr : node->as_array();
  if (rows == nullptr || rows->empty()) throw InputError(fmt::format("{}: expected at least one [[{}]]", path, kind));
  std::vector<T> out;
  std::unordered_set<std::string> seen;
  for (const toml::node& item : *rows) {
    const toml::table* table = item.as_table();
    if (table == nullptr) {
      throw InputError(fmt::format("{}:{}: {}: expected a [[{}]] table", path, item.source().begin.line, kind, kind));
    }
    Row row(*table, kind, path);
    out.push_back(read(row));
    row.done();
    std::vector<std::string> names;
    if constexpr (requires { out.back().kind; }) {
      names.push_back(out.back().kind);
    } else {
      names.push_back(out.back().name);
    }
    if constexpr (requires { out.back().aliases; }) {
      names.insert(names.end(), out.back().aliases.begin(), out.back().aliases.end());
    }
    for (const std::string& name : names) {
      if (!seen.insert(name).second) row.fail("name", table->source(), fmt::format("\"{}\" has a row already", name));
    }
  }
  return out;
}

}  // namespace

Machines Machines::load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError(fmt::format("{}: cannot be read; expected the table of rates and boards", path));
  std::stringstream text;
  text << in.rdbuf();
  return parse(text.str(), path);
}

Machines Machines::parse(std::string_view text, const std::string& path) {
  toml::table file;
  try {
    file = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format("{}:{}: not TOML: {}", path, error.source().begin.line, error.description()));
  }
  for (const auto& [key, value] : file) {
    const std::vector<std::string> kinds = {"nvlink", "pcie", "port", "gpu", "distance", "lane"};
    if (std::find(kinds.begin(), kinds.end(), key.str()) == kinds.end()) {
      throw InputError(fmt::format("{}:{}: {}: unknown table; expected one of {}", path, key.source().begin.line,
                                   key.str(), fmt::join(kinds, ", ")));
    }
  }
  Machines out;
  out.nvlinks_ = read_rows<NvlinkRow>(file, "nvlink", path, read_nvlink);
  out.pcies_ = read_rows<PcieRow>(file, "pcie", path, read_pcie);
  out.ports_ = read_rows<PortRow>(file, "port", path, read_port);
  out.gpus_ = read_rows<GpuRow>(file, "gpu", path, read_gpu);
  out.distances_ = read_rows<DistanceRow>(file, "distance", path, read_distance);
  out.lanes_ = read_rows<LaneRow>(file, "lane", path, read_lane);
  for (const std::string& kind : kLaneKinds) {
    const bool there =
        std::any_of(out.lanes_.begin(), out.lanes_.end(), [&](const LaneRow& l) { return l.kind == kind; });
    if (!there) throw InputError(fmt::format("{}: expected a [[lane]] of kind \"{}\"", path, kind));
  }
  try {
    for (const GpuRow& gpu : out.gpus_) {
      if (!gpu.nvlink.empty()) out.nvlink(gpu.nvlink);
      out.pcie(gpu.pcie);
      out.port(gpu.usual_nic);
    }
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: gpu: {}", path, error.what()));
  }
  return out;
}

const GpuRow* Machines::find_gpu(std::string_view name) const noexcept { return find_row(gpus_, name); }
const PortRow* Machines::find_port(std::string_view name) const noexcept { return find_row(ports_, name); }
const GpuRow& Machines::gpu(std::string_view name) const { return need_row(gpus_, name, "GPU"); }
const PortRow& Machines::port(std::string_view name) const { return need_row(ports_, name, "NIC port"); }
const NvlinkRow& Machines::nvlink(std::string_view name) const { return need_row(nvlinks_, name, "NVLink"); }
const PcieRow& Machines::pcie(std::string_view name) const { return need_row(pcies_, name, "PCIe version"); }

const GpuRow* Machines::gpu_of_pci_device(std::string_view device) const noexcept {
  for (const GpuRow& row : gpus_) {
    for (const std::string& id : row.pci_devices) {
      if (same_name(id, device)) return &row;
    }
  }
  return nullptr;
}

const PcieRow* Machines::pcie_of_rate(double rate_GTps) const noexcept {
  for (const PcieRow& row : pcies_) {
    if (std::abs(row.rate_GTps - rate_GTps) < 0.01) return &row;
  }
  return nullptr;
}

const PortRow* Machines::port_of_rate(double gbps, std::string_view fabric) const noexcept {
  for (const PortRow& row : ports_) {
    if (row.fabric == fabric && std::abs(row.nominal_gbps - gbps) < 0.05 * row.nominal_gbps) return &row;
  }
  return nullptr;
}

double Machines::distance_share(std::string_view relation) const noexcept {
  const DistanceRow* row = find_row(distances_, relation);
  return row == nullptr ? 1.0 : row->share;
}

const LaneRow& Machines::lane(std::string_view kind) const noexcept {
  const auto it = std::find_if(lanes_.begin(), lanes_.end(), [&](const LaneRow& l) { return l.kind == kind; });
  LK_CHECK(it != lanes_.end());
  return *it;
}

}  // namespace lk

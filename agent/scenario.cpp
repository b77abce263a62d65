#include "agent/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "agent/config_value.hpp"
#include "agent/fault_toml.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr LaneKind kLaneKinds[] = {LaneKind::kNvlink, LaneKind::kPcie, LaneKind::kRelay,
                                   LaneKind::kHost,   LaneKind::kRdma, LaneKind::kTcp};
constexpr Measure kMeasures[] = {Measure::kBound, Measure::kFailover, Measure::kCorrect};

// One table of a scenario file: every key is read by one of its rows, and no other key may be there.
class Table {
 public:
  Table(const toml::table& table, const std::string& path) : table_(table), path_(path) {}

  void text(const char* key, std::string& out) {
    row(key, "a text", [&out](const toml::node& n) {
      const auto v = n.value<std::string>();
      if (v) out = *v;
      return v && !v->empty();
    });
  }
  template <typename T>
  void whole(const char* key, T& out, std::int64_t least, std::int64_t most) {
    row(key, fmt::format("a whole number from {} to {}", least, most), [&out, least, most](const toml::node& n) {
      const auto v = n.is_integer() ? n.value<std::int64_t>() : std::nullopt;
      if (v) out = static_cast<T>(*v);
      return v && *v >= least && *v <= most;
    });
  }
  template <typename T>
  void number(const char* key, T& out, double least, double most) {
    row(key, fmt::format("a number from {} to {}", least, most), [&out, least, most](const toml::node& n) {
      const auto v = n.is_number() ? n.value<double>() : std::nullopt;
      if (v) out = *v;
      return v && *v >= least && *v <= most;
    });
  }
  template <typename T>
  void span(const char* key, T& out) {
    row(key, "a time with its unit, as \"50ms\"", [&out](const toml::node& n) {
      const auto v = parse_span(n.value<std::string>().value_or(""));
      if (v) out = *v;
      return v.has_value();
    });
  }
  void size(const char* key, Bytes& out) {
    row(key, "a size with its unit, as \"512MiB\"", [&out](const toml::node& n) {
      const auto v = parse_size(n.value<std::string>().value_or(""));
      if (v) out = *v;
      return v.has_value();
    });
  }
  void texts(const char* key, std::vector<std::string>& out) {
    row(key, "a list of texts", [&out](const toml::node& n) {
      const toml::array* list = n.as_array();
      for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
        out.push_back((*list)[i].value<std::string>().value_or(""));
        if (out.back().empty()) return false;
      }
      return list != nullptr;
    });
  }
  template <typename T, std::size_t N>
  void word(const char* key, T& out, const T (&known)[N]) {
    std::vector<std::string> names;
    for (const T k : known) names.emplace_back(name_of(k));
    row(key, fmt::format("{}", fmt::join(names, ", ")), [&](const toml::node& n) {
      const auto at = std::find(names.begin(), names.end(), n.value<std::string>().value_or(""));
      if (at != names.end()) out = known[at - names.begin()];
      return at != names.end();
    });
  }
  // A key that somebody else reads.
  void other(const char* key) { known_.emplace_back(key); }

  void need(const char* key) const {
    if (table_.contains(key)) return;
    throw InputError(fmt::format("{}:{}: {}: missing; expected {}", path_, std::max(1U, table_.source().begin.line),
                                 key, expected_.at(key)));
  }
  void no_others() const {
    for (const auto& [key, node] : table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      const std::string close = nearest_word(key.str(), known_);
      throw InputError(toml_place(path_, node, key.str()) +
                       fmt::format(": unknown key; expected {}",
                                   close.empty() ? fmt::format("{}", fmt::join(known_, ", ")) : close));
    }
  }

 private:
  template <typename Read>
  void row(const char* key, const std::string& expected, Read read) {
    known_.emplace_back(key);
    expected_[key] = expected;
    const toml::node* node = table_.get(key);
    if (node != nullptr && !read(*node)) throw InputError(toml_place(path_, *node, key) + ": expected " + expected);
  }

  const toml::table& table_;
  const std::string& path_;
  std::vector<std::string> known_;
  std::map<std::string, std::string> expected_;
};

void read_use(Table& t, ProfileUse& use, const char* profile_key, const char* count_key) {
  t.text(profile_key, use.profile);
  t.whole(count_key, use.nodes, 1, 4096);
  t.texts("rails", use.rails);
  t.whole("ports_per_nic", use.ports_per_nic, 1, 8);
  t.need(profile_key);
}

// Either profile = and nodes = at the top, or [[node]] rows of several kinds.
void read_nodes(const toml::table& file, Table& top, Scenario& s) {
  top.other("node");
  const toml::node* node = file.get("node");
  if (node == nullptr) {
    read_use(top, s.nodes.emplace_back(), "profile", "nodes");
  } else {
    for (const char* key : {"profile", "nodes", "rails", "ports_per_nic"}) {
      top.other(key);
      if (const toml::node* both = file.get(key)) {
        throw InputError(toml_place(s.path, *both, key) + ": expected either this or [[node]] rows, not both");
      }
    }
    const toml::array* rows = node->as_array();
    if (rows == nullptr || rows->empty() || !rows->is_homogeneous<toml::table>()) {
      throw InputError(toml_place(s.path, *node, "node") + ": expected rows that begin with [[node]]");
    }
    for (const toml::node& item : *rows) {
      Table row(*item.as_table(), s.path);
      read_use(row, s.nodes.emplace_back(), "profile", "count");
      row.no_others();
    }
  }
  for (const ProfileUse& use : s.nodes) {
    if (s.profile.find(use.profile) == std::string::npos) s.profile += (s.profile.empty() ? "" : "+") + use.profile;
  }
}

void read_expect(const toml::table& file, Table& top, Scenario& s) {
  top.other("expect");
  const toml::node* node = file.get("expect");
  if (node == nullptr) return;
  if (!node->is_table()) throw InputError(toml_place(s.path, *node, "expect") + ": expected a table [expect]");
  Table t(*node->as_table(), s.path);
  std::vector<std::string> rungs;
  t.texts("rungs", rungs);
  for (const std::string& rung : rungs) {
    const auto at =
        std::find_if(std::begin(kLaneKinds), std::end(kLaneKinds), [&rung](LaneKind k) { return rung == name_of(k); });
    if (at == std::end(kLaneKinds)) {
      throw InputError(toml_place(s.path, *node->as_table()->get("rungs"), "rungs") +
                       fmt::format(" '{}': expected nvlink, relay, pcie, host, rdma or tcp", rung));
    }
    s.expect.rungs.push_back(*at);
  }
  t.number("bound_least", s.expect.bound_least, 0, 1);
  t.span("failover_most", s.expect.failover_most_ns);
  t.span("recover_most", s.expect.recover_most_ns);
  constexpr Status kEnds[] = {Status::kOk, Status::kNodeLost};
  t.word("lost", s.expect.lost, kEnds);
  t.no_others();
}

void check_whole(const Scenario& s, const toml::table& file) {
  const auto place = [&](const char* key) {
    const toml::node* node = file.get(key);
    return node != nullptr ? toml_place(s.path, *node, key) : fmt::format("{}:1: {}", s.path, key);
  };
  if (s.fault_op > s.ops) {
    throw InputError(fmt::format("{}: {}; expected an op of 1 to {}", place("fault_op"), s.fault_op, s.ops));
  }
  if (s.measure == Measure::kFailover && s.faults.empty()) {
    throw InputError(place("measure") + ": failover of nothing; expected [[fault]] rows");
  }
  if (s.expect.failover_most_ns && s.measure != Measure::kFailover) {
    throw InputError(place("measure") + ": failover_most is given; expected failover");
  }
  if (s.expect.bound_least && s.measure != Measure::kBound) {
    throw InputError(place("measure") + ": bound_least is given; expected bound");
  }
}

}  // namespace

const char* name_of(Measure m) noexcept {
  constexpr const char* kNames[] = {"bound", "failover", "correct"};
  return kNames[static_cast<unsigned>(m)];
}

Scenario read_scenario(const std::string& path) {
  const toml::table file = read_toml(path);
  Scenario s;
  s.path = path;
  Table top(file, s.path);
  top.text("name", s.name);
  top.text("broke", s.broke);
  top.word("measure", s.measure, kMeasures);
  top.whole("ops", s.ops, 1, 100000);
  top.size("bytes", s.bytes);
  top.span("every", s.every_ns);
  top.whole("fault_op", s.fault_op, 1, 100000);
  top.number("lab_speedup", s.lab_speedup, 1, 1000);
  for (const char* key : {"name", "broke", "measure"}) top.need(key);
  read_nodes(file, top, s);
  read_expect(file, top, s);
  top.other("fault");
  top.no_others();
  s.faults = faults_of(file, path);
  check_whole(s, file);
  return s;
}

std::vector<Scenario> read_scenarios(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".toml") paths.push_back(entry.path().string());
  }
  if (error) throw InputError(fmt::format("{}: {}; expected a folder of scenario files", folder, error.message()));
  std::sort(paths.begin(), paths.end());
  std::vector<Scenario> all;
  for (const std::string& path : paths) {
    all.push_back(read_scenario(path));
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      if (all[i].name != all.back().name || all[i].profile != all.back().profile) continue;
      throw InputError(fmt::format("{}:1: name '{}': expected one that {} has not", path, all[i].name, all[i].path));
    }
  }
  return all;
}

FaultRows scenario_rows(const Scenario& scenario, const ClusterSpec& cluster, Nanos from, double speedup) {
  const auto shorter = [speedup](Nanos t) { return static_cast<Nanos>(static_cast<double>(t) / speedup); };
  FaultRows all;
  std::uint32_t id = 0;
  for (const FaultSpec& spec : scenario.faults) {
    FaultSpec f = spec;
    f.at = shorter(f.at);
    if (f.lasts) f.lasts = shorter(*f.lasts);
    if (f.period) f.period = std::max<Nanos>(shorter(*f.period), kMilli);
    const FaultRows rows = expand_fault(f, cluster, ++id, from);
    all.wire.insert(all.wire.end(), rows.wire.begin(), rows.wire.end());
    all.control.insert(all.control.end(), rows.control.begin(), rows.control.end());
  }
  return all;
}

}  // namespace lk

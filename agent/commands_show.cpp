// The commands that show. Keys have their units; null where a figure has no meaning.
#include <fmt/format.h>

#include <algorithm>

#include "agent/commands.hpp"
#include "dataplane/base/error.hpp"

namespace lk {

using nlohmann::json;

namespace {

constexpr Nanos kSnapshotLimit = 200 * kMilli;

json with_node(json rows, const std::string& node) {
  for (json& row : rows) row["node"] = node;
  return rows;
}

std::string gpu_name(const ClusterSpec& cluster, EndpointId gpu) {
  return fmt::format("{}.gpu{}", cluster.nodes[cluster.gpus[gpu].node].name, cluster.gpus[gpu].index);
}

std::string age_text(Nanos span) { return fmt::format("{:.1f} s", static_cast<double>(span) / 1e9); }

double percent(double part, double whole) { return whole <= 0 ? 0 : 100 * part / whole; }

}  // namespace

// What is not as it should be, a line each.
json Commands::problems() const {
  json lines = json::array();
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    const ControlPlane& plane = lab_.node(n).plane();
    const std::string& name = lab_.cluster().nodes[n].name;
    for (const json& l : plane.links()) {
      if (l["state"] != "up") {
        lines.push_back(fmt::format("link {} is {} for {}: {}", l["name"].get<std::string>(),
                                    l["state"].get<std::string>(), age_text(lab_.now() - l["since_ns"].get<Nanos>()),
                                    l["reason"].get<std::string>()));
      }
    }
    for (const std::string& l : plane.sick_lanes(lab_.now())) lines.push_back(l);
    for (const json& p : plane.peers()) {
      if (p["state"] != "alive") {
        lines.push_back(
            fmt::format("{} takes {} for {}", name, p["node"].get<std::string>(), p["state"].get<std::string>()));
      } else if (p["control_channel"] != "up") {
        lines.push_back(fmt::format("{} hears {} over lanes alone, its control channel is silent", name,
                                    p["node"].get<std::string>()));
      }
    }
  }
  return lines;
}

json Commands::status(const json&) {
  json nodes = json::array();
  for (NodeId n = 0; n < lab_.nodes(); ++n) nodes.push_back(lab_.node(n).plane().status(lab_.now()));
  const json bad = problems();
  return {{"version", LK_VERSION},
          {"mode", "loopback"},
          {"profile", lab_.cluster().profile},
          {"rate_scale", lab_.rate_scale()},
          {"uptime_ns", lab_.now()},
          {"clients", sessions_.clients()},
          {"faults", lab_.faults().entries().size()},
          {"healthy", bad.empty()},
          {"problems", bad},
          {"nodes", nodes}};
}

json Commands::topology(const json&) {
  const ClusterSpec& c = lab_.cluster();
  json nodes = json::array(), gpus = json::array(), domains = json::array();
  for (const NodeSpec& n : c.nodes) {
    nodes.push_back({{"name", n.name}, {"gpus", n.gpu_count}, {"rails", n.rail_count}});
  }
  for (std::size_t g = 0; g < c.gpus.size(); ++g) {
    gpus.push_back({{"number", g},
                    {"name", gpu_name(c, static_cast<EndpointId>(g))},
                    {"domain", c.gpus[g].domain},
                    {"column", c.gpus[g].column}});
  }
  for (const DomainSpec& d : c.domains) {
    json members = json::array();
    for (const EndpointId g : d.gpus) members.push_back(gpu_name(c, g));
    domains.push_back({{"gpus", members}, {"switch_planes", d.switch_planes}});
  }
  return {
      {"profile", c.profile}, {"rate_scale", lab_.rate_scale()}, {"nodes", nodes},          {"gpus", gpus},
      {"domains", domains},   {"links", c.links.size()},         {"lanes", c.lanes.size()}, {"trunks", c.trunks.size()},
      {"assumed", c.assumed}};
}

json Commands::links(const json& args) {
  json out = json::array();
  for (const NodeId n : nodes_of(args)) {
    for (json& row : with_node(lab_.node(n).plane().links(), lab_.cluster().nodes[n].name))
      out.push_back(std::move(row));
  }
  return out;
}

json Commands::lanes(const json& args) {
  lab_.refresh_snapshots(kSnapshotLimit);
  const json kind = args.value("kind", json(nullptr));
  constexpr LaneKind kLast = LaneKind::kTcp;
  bool known = kind.is_null();
  for (unsigned k = 0; k <= static_cast<unsigned>(kLast); ++k)
    known = known || kind == name_of(static_cast<LaneKind>(k));
  if (!known) {
    throw InputError(fmt::format("kind {}: unknown, expected nvlink, pcie, relay, host, rdma or tcp", kind.dump()));
  }
  json out = json::array();
  for (const NodeId n : nodes_of(args)) {
    for (json& row : lab_.node(n).plane().lanes()) {
      if (kind.is_null() || row["kind"] == kind) out.push_back(std::move(row));
    }
  }
  return out;
}

json Commands::trunks(const json& args) {
  lab_.refresh_snapshots(kSnapshotLimit);
  json out = json::array();
  for (const NodeId n : nodes_of(args)) {
    for (json& row : lab_.node(n).plane().trunks()) out.push_back(std::move(row));
  }
  return out;
}

json Commands::cores(const json&) {
  json out = json::array();
  for (std::size_t i = 0; i < lab_.cores().reactors.size(); ++i) {
    const ReactorPlace& place = lab_.cores().reactors[i];
    const ReactorReport report = lab_.reactor(i).report();
    json nodes = json::array();
    for (const NodeId n : place.nodes) nodes.push_back(lab_.cluster().nodes[n].name);
    double busy = 0, idle = 0;
    for (const PollerReport& p : report.pollers) {
      busy += static_cast<double>(p.busy_cycles);
      idle += static_cast<double>(p.idle_cycles);
    }
    out.push_back({{"reactor", place.lcore},
                   {"core", place.core},
                   {"core_shared", place.shared},
                   {"mode", name_of(lab_.reactor(i).options().mode)},
                   {"nodes", nodes},
                   {"turns", report.turns},
                   {"busy_percent", percent(busy, busy + idle)},
                   {"yields", report.yields},
                   {"sleeps", report.sleeps},
                   {"wakes_written", report.wakes_written},
                   {"slept_percent", percent(static_cast<double>(report.slept_ns), static_cast<double>(lab_.now()))}});
  }
  return {{"control_cores", lab_.cores().control_cores}, {"reactors", out}};
}

json Commands::pollers(const json&) {
  json rows = json::array(), long_turns = json::array();
  for (std::size_t i = 0; i < lab_.cores().reactors.size(); ++i) {
    const ReactorPlace& place = lab_.cores().reactors[i];
    const ReactorReport report = lab_.reactor(i).report();
    for (std::size_t p = 0; p < report.pollers.size(); ++p) {
      const PollerReport& r = report.pollers[p];
      rows.push_back({{"reactor", place.lcore},
                      {"node", lab_.cluster().nodes[place.nodes[p / 2]].name},
                      {"name", r.name},
                      {"calls", r.calls},
                      {"work", r.work},
                      {"busy_cycles", r.busy_cycles},
                      {"idle_cycles", r.idle_cycles},
                      {"longest_turn_ns", r.longest_turn_ns},
                      {"long_turns", r.long_turns}});
    }
    for (const LongTurnReport& l : report.long_turns) {
      long_turns.push_back({{"reactor", place.lcore},
                            {"at_ns", l.at_ns},
                            {"name", l.poller},
                            {"turn_ns", l.turn_ns},
                            {"before_ns", l.before_ns},
                            {"after_ns", l.after_ns}});
    }
  }
  return {{"pollers", rows}, {"long_turn_ns", kLongTurn}, {"long_turns", long_turns}};
}

json Commands::ops(const json&) {
  lab_.refresh_snapshots(kSnapshotLimit);
  json out = json::array();
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    const Snapshot* s = lab_.node(n).plane().snapshot();
    if (s == nullptr) continue;
    for (const OpSnapshot& o : s->ops) {
      const GroupRecord* group = lab_.node(n).plane().group(o.group);
      out.push_back({{"node", lab_.cluster().nodes[n].name},
                     {"group", group == nullptr ? json(nullptr) : json(group->spec.name)},
                     {"op", o.number},
                     {"size_bytes", o.bytes},
                     {"chunks", o.chunks},
                     {"chunks_placed", o.placed_least},
                     {"age_ns", o.age_ns},
                     {"status", name_of(o.status)}});
    }
  }
  return out;
}

json Commands::groups(const json&) {
  json out = json::array();
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    for (json& row : with_node(lab_.node(n).plane().groups(lab_.now()), lab_.cluster().nodes[n].name)) {
      out.push_back(std::move(row));
    }
  }
  return out;
}

json Commands::counters(const json& args) {
  lab_.refresh_snapshots(kSnapshotLimit);
  json out = json::array();
  for (const NodeId n : nodes_of(args)) {
    const Snapshot* s = lab_.node(n).plane().snapshot();
    if (s == nullptr) continue;
    for (std::size_t i = 0; i < kCounterCount; ++i) {
      out.push_back({{"node", lab_.cluster().nodes[n].name},
                     {"name", kCounterTable[i].name},
                     {"value", s->counters.value[i]},
                     {"help", kCounterTable[i].help}});
    }
  }
  return out;
}

json Commands::faults(const json&) {
  json out = json::array();
  for (const FaultPlan::Entry& e : lab_.faults().entries()) {
    out.push_back({{"fault", e.id}, {"text", fault_to_text(e.fault)}, {"injected_at_ns", e.from}});
  }
  return out;
}

json Commands::events(const json& args) {
  json out = json::array();
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    for (json& row : with_node(lab_.node(n).plane().events(), lab_.cluster().nodes[n].name))
      out.push_back(std::move(row));
  }
  std::stable_sort(out.begin(), out.end(), [](const json& a, const json& b) { return a["at_ns"] < b["at_ns"]; });
  if (args.contains("last")) {
    const std::string text = args["last"].is_string() ? args["last"].get<std::string>() : args["last"].dump();
    const bool digits = !text.empty() && text.size() < 8 &&
                        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) throw InputError(fmt::format("last: {}: expected a whole number", text));
    const auto last = static_cast<std::size_t>(std::stoul(text));
    if (out.size() > last) out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(last));
  }
  return out;
}

json Commands::config(const json&) {
  json out = json::array();
  for (const ConfigEntry& e : config_.entries()) {
    out.push_back({{"key", e.key}, {"value", e.value}, {"source", e.source}, {"help", e.help}});
  }
  return out;
}

}  // namespace lk

#include "agent/cli/print.hpp"

#include <fmt/format.h>

#include <vector>

#include "agent/cli/text_table.hpp"

namespace lk {
namespace {

using nlohmann::json;
constexpr double kMs = 1e6, kS = 1e9, kMiBd = 1024.0 * 1024;

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string joined(const json& list) {
  std::string text;
  for (const json& v : list) text += (text.empty() ? "" : " ") + text_of(v);
  return text;
}

TextColumn list_column(std::string heading, std::string key) {
  return {std::move(heading), [key = std::move(key)](const json& row) { return joined(row.at(key)); }};
}

std::string print_status(const json& r) {
  std::string out = fmt::format("lanekeeperd {}, {}, {}, up for {:.1f} s, rates × {:.3g}, {} client{}\n",
                                r["version"].get<std::string>(), r["mode"].get<std::string>(),
                                r["profile"].get<std::string>(), r["uptime_ns"].get<double>() / kS,
                                r["rate_scale"].get<double>(), r["clients"].get<int>(), r["clients"] == 1 ? "" : "s");
  out += text_table(r["nodes"], {word_column("node", "node"),
                                 count_column("GPUs", "gpus"),
                                 {"links",
                                  [](const json& n) {
                                    std::string text;
                                    for (const auto& [state, count] : n["links"].items()) {
                                      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.get<int>(), state);
                                    }
                                    return text;
                                  }},
                                 count_column("lane directions", "lane_directions"),
                                 count_column("not up", "lane_directions_not_up"),
                                 count_column("groups", "groups"),
                                 count_column("resent", "chunks_resent"),
                                 number_column("longest failover ms", "longest_failover_ns", kMs)});
  if (r["problems"].empty()) return out + "all is well\n";
  for (const json& line : r["problems"]) out += fmt::format("! {}\n", line.get<std::string>());
  return out;
}

std::string print_topology(const json& r) {
  std::string out = fmt::format("{}: {} GPUs, {} links, {} lanes in {} trunks; rates × {:.3g}\n",
                                r["profile"].get<std::string>(), r["gpus"].size(), r["links"].get<int>(),
                                r["lanes"].get<int>(), r["trunks"].get<int>(), r["rate_scale"].get<double>());
  out += text_table(r["nodes"],
                    {word_column("node", "name"), count_column("GPUs", "gpus"), count_column("rails", "rails")});
  out += text_table(r["domains"],
                    {count_column("NVSwitch planes", "switch_planes"), list_column("NVLink domain", "gpus")});
  for (const json& line : r["assumed"]) out += fmt::format("assumed: {}\n", line.get<std::string>());
  return out;
}

std::string print_links(const json& r) {
  return text_table(
      r, {word_column("link", "name"), word_column("kind", "kind"), word_column("state", "state"),
          number_column("weight →", "weight_forward", 1, 3), number_column("weight ←", "weight_backward", 1, 3),
          number_column("nominal GB/s", "nominal_GBps"), count_column("failures", "failures"),
          word_column("reason", "reason")});
}

std::string arrow(const json& row) { return row.value("direction", "") == "forward" ? "→" : "←"; }

std::string print_lanes(const json& r) {
  return text_table(r, {word_column("lane", "name"),
                        {"", arrow},
                        count_column("rung", "rung"),
                        word_column("state", "state"),
                        number_column("weight", "weight", 1, 3),
                        number_column("rate GB/s", "rate_GBps", 1, 3),
                        number_column("seen GB/s", "measured_GBps", 1, 3),
                        number_column("sent MiB", "sent_bytes", kMiBd),
                        count_column("resent", "resent"),
                        count_column("failed", "failures")});
}

std::string print_trunks(const json& r) {
  return text_table(r, {word_column("from", "from"), word_column("to", "to"), count_column("lanes", "lanes"),
                        count_column("up", "lanes_up"), count_column("used", "lanes_used"),
                        number_column("rate GB/s", "rate_GBps"), number_column("sent MiB", "sent_bytes", kMiBd),
                        count_column("rung", "rung"), word_column("most over", "most_over")});
}

std::string print_cores(const json& r) {
  std::string out = fmt::format("control thread: cores {}\n", joined(r["control_cores"]));
  return out +
         text_table(r["reactors"],
                    {count_column("reactor", "reactor"), count_column("core", "core"),
                     word_column("shared", "core_shared"), word_column("idle mode", "mode"),
                     number_column("busy %", "busy_percent", 1, 3), number_column("slept %", "slept_percent", 1, 3),
                     count_column("turns", "turns"), count_column("sleeps", "sleeps"), list_column("nodes", "nodes")});
}

std::string print_pollers(const json& r) {
  std::string out =
      text_table(r["pollers"],
                 {count_column("reactor", "reactor"), word_column("node", "node"), word_column("poller", "name"),
                  count_column("calls", "calls"), count_column("work", "work"),
                  number_column("busy Mcycles", "busy_cycles", 1e6), number_column("idle Mcycles", "idle_cycles", 1e6),
                  number_column("longest turn µs", "longest_turn_ns", 1e3), count_column("long turns", "long_turns")});
  if (r["long_turns"].empty()) return out;
  out += fmt::format("\nlast turns over {} µs:\n", r["long_turn_ns"].get<int>() / 1000);
  return out + text_table(r["long_turns"],
                          {number_column("at s", "at_ns", kS, 6), count_column("reactor", "reactor"),
                           word_column("poller", "name"), number_column("turn µs", "turn_ns", 1e3),
                           number_column("before µs", "before_ns", 1e3), number_column("after µs", "after_ns", 1e3)});
}

std::string print_ops(const json& r) {
  if (r.empty()) return "no ops under way\n";
  return text_table(r, {word_column("node", "node"), word_column("group", "group"), count_column("op", "op"),
                        number_column("size MiB", "size_bytes", kMiBd), count_column("chunks", "chunks"),
                        count_column("placed", "chunks_placed"), number_column("age ms", "age_ns", kMs),
                        word_column("status", "status")});
}

std::string print_groups(const json& r) {
  if (r.empty()) return "no groups\n";
  return text_table(r, {word_column("node", "node"),
                        word_column("group", "name"),
                        word_column("state", "state"),
                        {"ranks", [](const json& g) { return std::to_string(g["members"].size()); }, true},
                        count_column("plan", "plan_version"),
                        number_column("chunk KiB", "chunk_bytes", 1024),
                        number_column("age s", "age_ns", kS),
                        word_column("owner", "owner"),
                        word_column("error", "error")});
}

std::string print_counters(const json& r) {
  return text_table(r, {word_column("node", "node"), word_column("counter", "name"), count_column("value", "value"),
                        word_column("meaning", "help")});
}

std::string print_faults(const json& r) {
  if (r.empty()) return "no faults are injected\n";
  return text_table(r, {count_column("fault", "fault"), number_column("injected at s", "injected_at_ns", kS, 6),
                        word_column("what", "text")});
}

std::string print_events(const json& r) {
  std::string out;
  for (const json& e : r) {
    out += fmt::format("{:>12.6f} s  {:<4} {:<7} {}\n", e["at_ns"].get<double>() / kS, e["node"].get<std::string>(),
                       e.value("level", ""), e["text"].get<std::string>());
  }
  return out.empty() ? "no events\n" : out;
}

std::string print_config(const json& r) {
  return text_table(r, {word_column("key", "key"), word_column("value", "value"), word_column("source", "source")});
}

std::string print_explain(const json& r) {
  std::string out;
  for (const json& line : r["lines"]) out += line.get<std::string>() + "\n";
  return out;
}

std::string print_rebalance(const json& r) {
  if (r["changes"].empty()) return "nothing to change\n";
  std::string out = r["applied"].get<bool>() ? "changed:\n" : "would change:\n";
  return out + text_table(r["changes"], {word_column("lane", "lane"),
                                         {"", arrow},
                                         number_column("from %", "from_fraction", 0.01, 3),
                                         number_column("to %", "to_fraction", 0.01, 3),
                                         word_column("reason", "reason")});
}

std::string print_files(const json& r) {
  std::string out = fmt::format("{} ranks, {} tensors, {} ops, {} bytes a rank, {:.3f} s, results {}\n",
                                r["ranks"].get<int>(), r["tensors"].get<int>(), r["ops"].get<int>(),
                                r["payload_bytes"].get<std::uint64_t>(), r["elapsed_ns"].get<double>() / kS,
                                r["identical"].get<bool>() ? "identical on all ranks" : "DIFFER BETWEEN RANKS");
  for (const json& path : r["outputs"]) out += fmt::format("wrote {}\n", path.get<std::string>());
  return out;
}

// "link: n0.eth0, drained: true" for commands that only say what they did.
std::string print_plain(const json& r) {
  std::string out;
  for (const auto& [key, value] : r.items())
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", key, text_of(value));
  return out + "\n";
}

struct Printer {
  std::string_view command;
  std::string (*print)(const json&);
};
constexpr Printer kPrinters[] = {
    {"status", print_status},          {"show topology", print_topology}, {"show links", print_links},
    {"show lanes", print_lanes},       {"show trunks", print_trunks},     {"show cores", print_cores},
    {"show pollers", print_pollers},   {"show ops", print_ops},           {"show groups", print_groups},
    {"show counters", print_counters}, {"show faults", print_faults},     {"show events", print_events},
    {"show config", print_config},     {"explain", print_explain},        {"rebalance", print_rebalance},
    {"allreduce", print_files},        {"broadcast", print_files},
};

}  // namespace

std::string print_result(std::string_view command, const json& result) {
  for (const Printer& p : kPrinters) {
    if (p.command == command) return p.print(result);
  }
  return print_plain(result);
}

bool is_bad_news(std::string_view command, const json& result) {
  if (command == "status") return !result.value("healthy", true);
  if (command == "allreduce" || command == "broadcast") return !result.value("identical", false);
  return false;
}

}  // namespace lk

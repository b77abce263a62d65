// The table of keys, and what its columns say about a value in words.
#include <fmt/format.h>

#include "agent/config.hpp"

namespace lk {

#define LK_AT(path)                                              \
  ConfigPlace {                                                  \
    +[](AgentConfig& c) -> decltype((c.path)) { return c.path; } \
  }

namespace {
constexpr double kUs = 1e3, kMs = 1e6, kS = 1e9;
constexpr double kK = 1024, kM = 1024 * 1024, kG = 1024.0 * 1024 * 1024;
constexpr const char* kRung = "auto|never";
}  // namespace

const std::vector<ConfigRow>& config_table() {
  static const std::vector<ConfigRow> kTable = {
      // clang-format off
      {"agent.socket", LK_AT(socket), 0, 0, {}, "auto", "path of the control socket; client sessions use the same with .session after it"},
      {"agent.socket_mode", LK_AT(socket_mode), 0, 0, "0600|0660|0666", {}, "who may open the sockets: owner, group, all"},
      {"agent.log_level", LK_AT(log_level), 0, 0, "debug|info|warning|error", {}, "least severity of a log line"},

      {"loopback.profile", LK_AT(loopback.profile), 0, 0, {}, {}, "emulated node: a profile's name or the path of a capture (.txt, .xml)"},
      {"loopback.nodes", LK_AT(loopback.nodes), 1, 64, {}, {}, "emulated nodes"},
      {"loopback.gpu", LK_AT(loopback.gpu), 0, 0, {}, "auto", "GPU board, a row of machines.toml"},
      {"loopback.nic", LK_AT(loopback.nic), 0, 0, {}, "auto", "NIC generation, a row of machines.toml"},
      {"loopback.rails", LK_AT(loopback.rails), 0, 0, {}, "auto", "NICs that are rails, in order, with commas between"},
      {"loopback.ports_per_nic", LK_AT(loopback.ports_per_nic), 1, 2, {}, {}, "ports of each NIC"},
      {"loopback.domain_nodes", LK_AT(loopback.domain_nodes), 1, 64, {}, "auto", "nodes that one NVLink domain spans"},
      {"loopback.rate_scale", LK_AT(loopback.rate_scale), 1e-6, 1, {}, "auto", "every link's rate times this; auto keeps the sum under a quarter of this machine's memory rate"},
      {"loopback.reactors", LK_AT(loopback.reactors), 1, 64, {}, "auto", "run loops that share the nodes; auto is one a node"},

      {"reactor.mode", LK_AT(reactor.mode), 0, 0, "poll|adaptive|interrupt", {}, "what an idle run loop does: spin, rest and then sleep, sleep at once"},
      {"reactor.pause", LK_AT(reactor.pause_ns), 0, 10 * kMs, {}, {}, "idle for so long: keep the core"},
      {"reactor.yield", LK_AT(reactor.yield_ns), 0, 1 * kS, {}, {}, "idle for so long: give the core away between turns, then sleep"},
      {"reactor.cores", LK_AT(reactor.cores), 0, 0, {}, "auto", "cores of the run loops; auto is one a socket, two at most"},
      {"reactor.memory", LK_AT(reactor.memory_bytes), 16 * kM, 64 * kG, {}, {}, "memory that DPDK takes at start"},

      {"control.suspect", LK_AT(control.suspect_ns), 10 * kMs, 60 * kS, {}, {}, "silence after which a node is suspected"},
      {"control.dead", LK_AT(control.dead_ns), 100 * kMs, 600 * kS, {}, {}, "silence after which a node is dead"},
      {"control.min_gain", LK_AT(control.min_gain), 0, 1, {}, {}, "fraction of time that a rebalance must gain"},
      {"control.min_interval", LK_AT(control.min_interval_ns), 1 * kMs, 60 * kS, {}, {}, "least time between two rebalances"},

      {"engine.stall_least", LK_AT(engine.stall_least_ns), 100 * kUs, 10 * kS, {}, {}, "a chunk is late at the earliest after this"},
      {"engine.stall_factor", LK_AT(engine.stall_factor), 2, 1000, {}, {}, "a chunk is late after its expected time times this"},
      {"engine.heartbeat", LK_AT(engine.heartbeat_ns), 1 * kMs, 10 * kS, {}, {}, "interval of heartbeats to each node"},
      {"engine.op_deadline", LK_AT(engine.op_deadline_ns), 100 * kMs, 3600 * kS, {}, {}, "an op that takes longer ends with an error"},
      {"engine.fence_retry", LK_AT(engine.fence_retry_ns), 1 * kMs, 10 * kS, {}, {}, "interval at which an unanswered fence is asked again"},
      {"engine.probe_first", LK_AT(engine.probe_first_ns), 1 * kMs, 200 * kMs, {}, {}, "first probe of a failed lane"},
      {"engine.probe_most", LK_AT(engine.probe_most_ns), 1 * kMs, 60 * kS, {}, {}, "longest time between two probes"},
      {"engine.flap_window", LK_AT(engine.flap_window_ns), 100 * kMs, 3600 * kS, {}, {}, "failures within this count as flapping"},
      {"engine.flap_limit", LK_AT(engine.flap_limit), 2, 100, {}, {}, "failures in the window from which a lane is flapping"},
      {"engine.flap_hold", LK_AT(engine.flap_hold_ns), 10 * kMs, 600 * kS, {}, {}, "first time for which a flapping lane is held down; doubles"},
      {"engine.flap_hold_most", LK_AT(engine.flap_hold_most_ns), 10 * kMs, 3600 * kS, {}, {}, "longest time for which it is held down"},
      {"engine.slots_per_flow", LK_AT(engine.slots_per_flow), 1, 64, {}, {}, "landing slots that a receiving rank grants to one sending rank"},
      {"engine.active_ops", LK_AT(engine.active_ops), 1, 64, {}, {}, "ops of one group that move data at once"},
      {"engine.active_chunks", LK_AT(engine.active_chunks), 1, 1024, {}, {}, "chunks that one rank has under way in one op"},
      {"engine.transfers", LK_AT(engine.transfers), 256, 1 << 20, {}, {}, "chunk transfers of one node under way at once"},
      {"engine.relay_buffers", LK_AT(engine.relay_buffers), 1, 4096, {}, {}, "relay buffers of one GPU"},
      {"engine.chunk_most", LK_AT(engine.chunk_most_bytes), 16 * kK, 16 * kM, {}, {}, "largest chunk"},

      {"checksum.nvlink", LK_AT(engine.checksum[0]), 0, 0, {}, {}, "CRC32C of each chunk; NVLink has its own"},
      {"checksum.pcie", LK_AT(engine.checksum[1]), 0, 0, {}, {}, "CRC32C of each chunk; PCIe has its own"},
      {"checksum.relay", LK_AT(engine.checksum[2]), 0, 0, {}, {}, "CRC32C of each chunk"},
      {"checksum.host", LK_AT(engine.checksum[3]), 0, 0, {}, {}, "CRC32C of each chunk"},
      {"checksum.rdma", LK_AT(engine.checksum[4]), 0, 0, {}, {}, "CRC32C of each chunk; RDMA has its ICRC"},
      {"checksum.tcp", LK_AT(engine.checksum[5]), 0, 0, {}, {}, "CRC32C of each chunk"},

      {"rung.nvlink", LK_AT(rung[0]), 0, 0, kRung, {}, "whether the control plane may use this rung"},
      {"rung.pcie", LK_AT(rung[1]), 0, 0, kRung, {}, "whether the control plane may use this rung"},
      {"rung.relay", LK_AT(rung[2]), 0, 0, kRung, {}, "whether the control plane may use this rung"},
      {"rung.host", LK_AT(rung[3]), 0, 0, kRung, {}, "whether the control plane may use this rung"},
      {"rung.rdma", LK_AT(rung[4]), 0, 0, kRung, {}, "whether the control plane may use this rung"},
      {"rung.tcp", LK_AT(rung[5]), 0, 0, kRung, {}, "whether the control plane may use this rung, the last resort"},
      // clang-format on
  };
  return kTable;
}

namespace {

struct TextOf {
  AgentConfig& values;
  const ConfigRow& row;

  std::string zero_or(bool zero, std::string text) const {
    return zero && !row.zero.empty() ? fmt::format("\"{}\"", row.zero) : std::move(text);
  }
  std::string operator()(bool& (*at)(AgentConfig&)) const { return at(values) ? "true" : "false"; }
  std::string operator()(unsigned& (*at)(AgentConfig&)) const {
    return zero_or(at(values) == 0, std::to_string(at(values)));
  }
  std::string operator()(double& (*at)(AgentConfig&)) const {
    return zero_or(at(values) == 0, fmt::format("{}", at(values)));
  }
  std::string operator()(std::string& (*at)(AgentConfig&)) const {
    return zero_or(at(values).empty(), fmt::format("\"{}\"", at(values)));
  }
  std::string operator()(Nanos& (*at)(AgentConfig&)) const { return fmt::format("\"{}\"", span_text(at(values))); }
  std::string operator()(Bytes& (*at)(AgentConfig&)) const { return fmt::format("\"{}\"", size_text(at(values))); }
  std::string operator()(CoreList& (*at)(AgentConfig&)) const {
    return zero_or(at(values).empty(), fmt::format("\"{}\"", cores_text(at(values))));
  }
};

struct ExpectationOf {
  const ConfigRow& row;

  std::string operator()(bool& (*)(AgentConfig&)) const { return "true or false"; }
  std::string operator()(unsigned& (*)(AgentConfig&)) const {
    return fmt::format("a whole number from {} to {}", row.least, row.most);
  }
  std::string operator()(double& (*)(AgentConfig&)) const {
    return fmt::format("a number from {} to {}", row.least, row.most);
  }
  std::string operator()(std::string& (*)(AgentConfig&)) const {
    if (row.choices.empty()) return "a text in quotes";
    std::string words = "\"";
    for (const char c : row.choices) words += c == '|' ? std::string("\" or \"") : std::string(1, c);
    return words + "\"";
  }
  std::string operator()(Nanos& (*)(AgentConfig&)) const {
    return fmt::format("a duration from \"{}\" to \"{}\", with ns, us, ms, s or min",
                       span_text(static_cast<Nanos>(row.least)), span_text(static_cast<Nanos>(row.most)));
  }
  std::string operator()(Bytes& (*)(AgentConfig&)) const {
    return fmt::format("a size from \"{}\" to \"{}\", with B, KiB, MiB or GiB",
                       size_text(static_cast<Bytes>(row.least)), size_text(static_cast<Bytes>(row.most)));
  }
  std::string operator()(CoreList& (*)(AgentConfig&)) const { return "cores such as \"0,2-3\""; }
};

}  // namespace

std::string config_value_text(const ConfigRow& row, const AgentConfig& values) {
  AgentConfig copy = values;
  return std::visit(TextOf{copy, row}, row.place);
}

std::string config_expectation(const ConfigRow& row) {
  std::string text = std::visit(ExpectationOf{row}, row.place);
  if (!row.zero.empty()) text += fmt::format(", or \"{}\"", row.zero);
  return text;
}

}  // namespace lk

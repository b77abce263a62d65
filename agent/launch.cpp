#include "agent/launch.hpp"

#include <algorithm>
#include <filesystem>

#include "control/topology/machines.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    if (comma > begin) parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

}  // namespace

void read_loopback(Config& config, const std::string& what) {
  if (std::filesystem::path(what).extension() == ".toml") {
    config.read_file(what);
  } else {
    config.set("loopback.profile", what, "--loopback");
  }
}

ClusterSpec cluster_of(const LoopbackConfig& c) {
  ProfileUse use;
  use.profile = c.profile;
  use.nodes = c.nodes;
  use.gpu = c.gpu;
  use.nic = c.nic;
  use.rails = split(c.rails);
  use.ports_per_nic = c.ports_per_nic;
  use.domain_nodes = c.domain_nodes;
  return build_profiles({use});
}

ControlOptions control_of(Config& config) {
  const std::string path = config_folder() + "/thresholds.toml";
  ControlOptions out;
  Thresholds& t = out.thresholds;
  t = load_thresholds(path);
  const auto adopt = [&](const char* key, const std::string& value) {
    if (config.source(key) == "default") config.set(key, value, path);
  };
  adopt("control.suspect", span_text(t.suspect_ns));
  adopt("control.dead", span_text(t.dead_ns));
  adopt("control.min_gain", std::to_string(t.route_gain_least));
  adopt("control.min_interval", span_text(t.route_interval_ns));
  config.check();
  const AgentConfig& values = config.values();
  t.suspect_ns = values.control.suspect_ns;
  t.dead_ns = values.control.dead_ns;
  t.route_gain_least = values.control.min_gain;
  t.route_interval_ns = values.control.min_interval_ns;
  t.heartbeat_ns = values.engine.heartbeat_ns;
  for (std::size_t kind = 0; kind < values.rung.size(); ++kind) out.policy.never[kind] = values.rung[kind] == "never";
  return out;
}

}  // namespace lk

// Config: every setting of the agent, read from one table of keys (config_table.cpp) that gives parsing, checking,
// `lanectl show config`, help and configs/lanekeeper.toml. Layers, later ones win: defaults, a config file, the
// --loopback file, the command line. Set-up only; then a value that is copied. Any thread.
// Fails: InputError, one line "FILE:LINE: KEY…: what was expected". Units: _ns and _bytes here; in files "50ms",
// "1MiB".
#pragma once

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "agent/config_value.hpp"
#include "dataplane/loop/reactor.hpp"
#include "dataplane/path/options.hpp"

namespace lk {

struct LoopbackConfig {
  std::string profile = "dgx-a100";  // a profile's name or a capture's path
  unsigned nodes = 1;
  std::string gpu, nic;  // rows of machines.toml; empty: as the profile has it
  std::string rails;     // NIC names; empty: by nearness
  unsigned ports_per_nic = 1;
  unsigned domain_nodes = 0;  // nodes that one NVLink domain spans; 0: as the profile has it
  double rate_scale = 0;      // every link's rate times this; 0: from the machine's memory rate
  unsigned reactors = 0;      // 0: one a node
};

struct ControlConfig {
  Nanos suspect_ns = 250 * kMilli;
  Nanos dead_ns = 2 * kSecond;
  double min_gain = 0.01;
  Nanos min_interval_ns = 250 * kMilli;
};

struct ReactorConfig {
  std::string mode = "adaptive";
  Nanos pause_ns = ReactorOptions{}.pause_ns;
  Nanos yield_ns = ReactorOptions{}.yield_ns;
  CoreList cores;
  Bytes memory_bytes = 64 * kMiB;  // that DPDK takes at start
};

struct AgentConfig {
  std::string socket;  // empty: see socket_path()
  std::string socket_mode = "0600", log_level = "info";
  LoopbackConfig loopback;
  ReactorConfig reactor;
  ControlConfig control;
  EngineOptions engine;
  std::array<std::string, 6> rung = {"auto", "auto", "auto", "auto", "auto", "auto"};  // by LaneKind
};

// The socket of this config: as given, else one of this user.
std::string socket_path(const AgentConfig& config);

// Where a row's value is, and so which type it has.
using ConfigPlace = std::variant<bool& (*)(AgentConfig&), unsigned& (*)(AgentConfig&), double& (*)(AgentConfig&),
                                 std::string& (*)(AgentConfig&), Nanos& (*)(AgentConfig&), Bytes& (*)(AgentConfig&),
                                 CoreList& (*)(AgentConfig&)>;

struct ConfigRow {
  std::string_view key;  // "section.name"
  ConfigPlace place;
  double least = 0, most = 0;     // in ns, bytes or as is; of numbers
  std::string_view choices = {};  // "a|b" of words; empty: any text
  std::string_view zero = {};     // the word for 0 or empty: "auto"
  std::string_view help;
};

const std::vector<ConfigRow>& config_table();

struct ConfigEntry {
  std::string key, value, source, help;  // source: "default", "command line" or FILE:LINE
};

class Config {
 public:
  Config();

  void read_file(const std::string& path);
  void parse(std::string_view toml, const std::string& path);
  void set(std::string_view key, const std::string& value, const std::string& source);
  void check() const;  // what no row alone can tell: one value against another

  const AgentConfig& values() const noexcept { return values_; }
  std::vector<ConfigEntry> entries() const;
  const std::string& source(std::string_view key) const;

 private:
  std::size_t row_of(std::string_view key, const std::string& place) const;

  AgentConfig values_;
  std::vector<std::string> sources_;  // by row
};

// The text of configs/lanekeeper.toml: each key with its help, type, range and default.
std::string config_template();

// A row's value as a file would write it (words and units in quotes), and what may stand there.
std::string config_value_text(const ConfigRow& row, const AgentConfig& values);
std::string config_expectation(const ConfigRow& row);

}  // namespace lk

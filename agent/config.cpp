#include "agent/config.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// A value as it stands in a file or on a command line, before it has a type.
struct Given {
  std::optional<bool> flag;
  std::optional<std::int64_t> whole;
  std::optional<double> number;
  std::optional<std::string> text;
  std::string shown;  // for the message
};

bool in_range(const ConfigRow& row, double value) { return value >= row.least && value <= row.most; }

// Stores a value where the row says; false when it is not what the row expects.
struct Store {
  AgentConfig& values;
  const ConfigRow& row;
  const Given& given;

  bool is_zero_word() const { return !row.zero.empty() && given.text && *given.text == row.zero; }

  bool operator()(bool& (*at)(AgentConfig&)) const {
    if (!given.flag) return false;
    at(values) = *given.flag;
    return true;
  }
  bool operator()(unsigned& (*at)(AgentConfig&)) const {
    if (is_zero_word()) return at(values) = 0, true;
    if (!given.whole || !in_range(row, static_cast<double>(*given.whole))) return false;
    at(values) = static_cast<unsigned>(*given.whole);
    return true;
  }
  bool operator()(double& (*at)(AgentConfig&)) const {
    if (is_zero_word()) return at(values) = 0, true;
    if (!given.number || std::isnan(*given.number) || !in_range(row, *given.number)) return false;
    at(values) = *given.number;
    return true;
  }
  bool operator()(std::string& (*at)(AgentConfig&)) const {
    if (is_zero_word()) return at(values).clear(), true;
    if (!given.text) return false;
    if (!row.choices.empty()) {
      const std::string all = fmt::format("|{}|", row.choices);
      if (given.text->empty() || all.find(fmt::format("|{}|", *given.text)) == std::string::npos) return false;
    }
    at(values) = *given.text;
    return true;
  }
  bool operator()(Nanos& (*at)(AgentConfig&)) const {
    const auto span = given.text ? parse_span(*given.text) : std::nullopt;
    if (!span || !in_range(row, static_cast<double>(*span))) return false;
    at(values) = *span;
    return true;
  }
  bool operator()(Bytes& (*at)(AgentConfig&)) const {
    const auto size = given.text ? parse_size(*given.text) : std::nullopt;
    if (!size || !in_range(row, static_cast<double>(*size))) return false;
    at(values) = *size;
    return true;
  }
  bool operator()(CoreList& (*at)(AgentConfig&)) const {
    if (is_zero_word()) return at(values).clear(), true;
    const auto cores = given.text ? parse_cores(*given.text) : std::nullopt;
    if (!cores) return false;
    at(values) = *cores;
    return true;
  }
};

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  constexpr std::size_t kMost = 80;
  return text.size() > kMost ? text.substr(0, kMost) + "…" : text;
}

Given given_of(const toml::node& node) {
  Given given;
  if (const auto* flag = node.as_boolean()) given.flag = flag->get();
  if (const auto* whole = node.as_integer())
    given.whole = whole->get(), given.number = static_cast<double>(whole->get());
  if (const auto* number = node.as_floating_point()) given.number = number->get();
  if (const auto* text = node.as_string()) given.text = text->get();
  std::ostringstream shown;
  node.visit([&shown](const auto& n) { shown << n; });
  given.shown = one_line(given.text ? fmt::format("\"{}\"", *given.text) : shown.str());
  return given;
}

// A word of the command line is of every type that it can be read as.
Given given_of(const std::string& word) {
  Given given;
  given.text = word;
  given.shown = one_line(word);
  if (word == "true" || word == "false") given.flag = word == "true";
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (!word.empty() && end == word.c_str() + word.size()) {
    given.number = number;
    if (number == std::floor(number) && std::abs(number) < 9e15) given.whole = static_cast<std::int64_t>(number);
  }
  return given;
}

void store(AgentConfig& values, const ConfigRow& row, const Given& given, const std::string& place) {
  if (std::visit(Store{values, row, given}, row.place)) return;
  throw InputError(fmt::format("{}: {} = {}: expected {}", place, row.key, given.shown, config_expectation(row)));
}

}  // namespace

std::string socket_path(const AgentConfig& config) {
  if (!config.socket.empty()) return config.socket;
  if (::geteuid() == 0) return "/run/lanekeeper.sock";
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  if (folder != nullptr && *folder != '\0') return fmt::format("{}/lanekeeper.sock", folder);
  return fmt::format("/tmp/lanekeeper-{}.sock", ::geteuid());
}

Config::Config() : sources_(config_table().size(), "default") {}

std::size_t Config::row_of(std::string_view key, const std::string& place) const {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < config_table().size(); ++i) {
    if (config_table()[i].key == key) return i;
    keys.emplace_back(config_table()[i].key);
  }
  const std::string near = nearest_word(key, keys);
  throw InputError(fmt::format("{}: {}: unknown key, expected {}", place, key,
                               near.empty() ? "one of `lanectl show config`" : near));
}

void Config::set(std::string_view key, const std::string& value, const std::string& source) {
  const std::size_t row = row_of(key, source);
  store(values_, config_table()[row], given_of(value), source);
  sources_[row] = source;
}

void Config::read_file(const std::string& path) {
  constexpr std::streamsize kMost = 1024 * 1024;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMost + 1, '\0');
  if (file) file.read(text.data(), kMost + 1);
  if (!file.is_open() || file.bad()) {
    throw InputError(fmt::format("{}: cannot be read: {}, expected a config file", path, std::strerror(errno)));
  }
  if (file.gcount() > kMost) throw InputError(fmt::format("{}: more than 1 MiB, expected a config file", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  parse(text, path);
}

void Config::parse(std::string_view toml_text, const std::string& path) {
  toml::table root;
  try {
    root = toml::parse(toml_text, path);
  } catch (const toml::parse_error& e) {
    throw InputError(fmt::format("{}:{}: {}", path, e.source().begin.line, one_line(std::string(e.description()))));
  }
  for (const auto& [section, node] : root) {
    const std::string place = fmt::format("{}:{}", path, node.source().begin.line);
    const toml::table* rows = node.as_table();
    if (rows == nullptr) {
      throw InputError(fmt::format("{}: {}: expected a key in a section, such as [loopback]", place, section.str()));
    }
    for (const auto& [name, value] : *rows) {
      const std::string key = fmt::format("{}.{}", section.str(), name.str());
      const std::string where = fmt::format("{}:{}", path, value.source().begin.line);
      const std::size_t row = row_of(key, where);
      store(values_, config_table()[row], given_of(value), where);
      sources_[row] = where;
    }
  }
}

void Config::check() const {
  struct Order {
    std::string_view less, more;
  };
  // The first must not be greater than the second.
  constexpr Order kOrders[] = {{"engine.heartbeat", "control.suspect"},
                               {"control.suspect", "control.dead"},
                               {"engine.probe_first", "engine.probe_most"},
                               {"engine.flap_hold", "engine.flap_hold_most"},
                               {"control.dead", "engine.op_deadline"}};
  const auto span = [this](std::string_view key) {
    AgentConfig copy = values_;
    return std::get<Nanos& (*)(AgentConfig&)>(config_table()[row_of(key, "")].place)(copy);
  };
  for (const Order& o : kOrders) {
    if (span(o.less) <= span(o.more)) continue;
    const bool less_given = source(o.less) != "default";
    throw InputError(fmt::format("{}: {} = \"{}\": expected {} {} = \"{}\" ({})", source(less_given ? o.less : o.more),
                                 less_given ? o.less : o.more, span_text(span(less_given ? o.less : o.more)),
                                 less_given ? "at most" : "at least", less_given ? o.more : o.less,
                                 span_text(span(less_given ? o.more : o.less)), source(less_given ? o.more : o.less)));
  }
  const EngineOptions& e = values_.engine;
  if (e.slots_per_flow < e.active_chunks + kAtOnceSlots) {
    const bool slots_given = source("engine.slots_per_flow") != "default";
    throw InputError(fmt::format("{}: engine.slots_per_flow = {}: expected at least engine.active_chunks + {} = {}",
                                 source(slots_given ? "engine.slots_per_flow" : "engine.active_chunks"),
                                 e.slots_per_flow, kAtOnceSlots, e.active_chunks + kAtOnceSlots));
  }
  if (values_.loopback.profile.empty()) {
    throw InputError(
        fmt::format("{}: loopback.profile = \"\": expected a profile or a capture", source("loopback.profile")));
  }
}

const std::string& Config::source(std::string_view key) const { return sources_[row_of(key, "config")]; }

std::vector<ConfigEntry> Config::entries() const {
  std::vector<ConfigEntry> entries;
  for (std::size_t i = 0; i < config_table().size(); ++i) {
    const ConfigRow& row = config_table()[i];
    entries.push_back({std::string(row.key), config_value_text(row, values_), sources_[i],
                       fmt::format("{}; {}", row.help, config_expectation(row))});
  }
  return entries;
}

std::string config_template() {
  std::string text =
      "# Lanekeeper's settings, each with its default. `lanectl config template` prints this file, `lanectl config "
      "check\n"
      "# FILE` checks one, `lanectl show config` says what a running agent uses and where each value comes from.\n";
  std::string section;
  const AgentConfig defaults;
  for (const ConfigRow& row : config_table()) {
    const auto dot = row.key.find('.');
    if (section != row.key.substr(0, dot)) {
      section = row.key.substr(0, dot);
      text += fmt::format("\n[{}]\n", section);
    }
    text += fmt::format("# {}; {}\n# {} = {}\n", row.help, config_expectation(row), row.key.substr(dot + 1),
                        config_value_text(row, defaults));
  }
  return text;
}

}  // namespace lk

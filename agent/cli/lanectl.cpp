#include "agent/cli/lanectl.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/cli/control_client.hpp"
#include "agent/cli/print.hpp"
#include "agent/cli/reduce_files.hpp"
#include "agent/command_table.hpp"
#include "agent/config.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

using nlohmann::json;

// What was said for one argument of one command.
struct Given {
  std::string value;
  std::vector<std::string> values;
  bool flag = false;
};

struct Parsed {
  std::string socket;
  bool as_json = false;
  const CommandRow* command = nullptr;
  std::map<std::string, Given> given;
};

class CommandLine {
 public:
  CommandLine() : app_("lanectl: talks to lanekeeperd.", "lanectl") {
    app_.add_option("--socket", socket_, "the agent's control socket");
    app_.add_flag("--json", json_, "print one JSON object");
    app_.set_version_flag("--version", fmt::format("lanectl {}", LK_VERSION));
    app_.fallthrough();
    app_.require_subcommand(1);
    app_.footer(
        "Exit code: 0 well, 1 the answer is bad news, 2 wrong use.\nExample: lanectl --socket /tmp/lk.sock status");
    for (const CommandRow& row : command_table()) add(row);
  }

  Parsed parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    app_.parse(words);
    Parsed out;
    out.socket = socket_;
    out.as_json = json_;
    for (const auto& leaf : leaves_) {
      if (!leaf->app->parsed()) continue;
      out.command = leaf->row;
      out.given = leaf->given;
    }
    return out;
  }
  int exit(const CLI::Error& e, std::ostream& out, std::ostream& error) { return app_.exit(e, out, error); }

 private:
  struct Leaf {
    CLI::App* app;
    const CommandRow* row;
    std::map<std::string, Given> given;
  };

  void add(const CommandRow& row) {
    CLI::App* parent = &app_;
    std::string name(row.name);
    if (const auto space = name.find(' '); space != std::string::npos) {
      parent = parent_named(name.substr(0, space));
      name = name.substr(space + 1);
    }
    leaves_.push_back(std::make_unique<Leaf>());
    Leaf& leaf = *leaves_.back();
    leaf.row = &row;
    leaf.app = parent->add_subcommand(name, std::string(row.help));
    leaf.app->footer(fmt::format("Example: {}", row.example));
    leaf.app->fallthrough();
    for (const CommandArgument& a : row.arguments) add_argument(leaf, a);
  }

  CLI::App* parent_named(const std::string& name) {
    CLI::App*& parent = parents_[name];
    if (parent != nullptr) return parent;
    parent = app_.add_subcommand(name, name == "show" ? "show what there is and how it is" : "about config files");
    parent->require_subcommand(1);
    parent->fallthrough();
    return parent;
  }

  static void add_argument(Leaf& leaf, const CommandArgument& a) {
    const std::string name(a.name), help(a.help);
    Given& given = leaf.given[name];
    CLI::Option* option = nullptr;
    switch (a.kind) {
      case ArgumentKind::kFlag:
        option = leaf.app->add_flag("--" + name, given.flag, help);
        break;
      case ArgumentKind::kWord:
      case ArgumentKind::kNumber:
        option = leaf.app->add_option(name, given.value, help);
        break;
      case ArgumentKind::kOption:
        option = leaf.app->add_option("--" + name, given.value, help);
        break;
      case ArgumentKind::kWords:
        option = leaf.app->add_option(name, given.values, help);
        break;
      case ArgumentKind::kValues:
        option = leaf.app->add_option("--" + name, given.values, help);
        break;
    }
    option->required(a.required);
  }

  CLI::App app_;
  std::string socket_;
  bool json_ = false;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::map<std::string, CLI::App*> parents_;  // "show", "config"
};

// The arguments as the agent wants them.
json arguments(const Parsed& p) {
  json args = json::object();
  for (const CommandArgument& a : p.command->arguments) {
    const Given& g = p.given.at(std::string(a.name));
    const std::string name(a.name);
    if (a.kind == ArgumentKind::kFlag) {
      if (g.flag) args[name] = true;
    } else if (a.kind == ArgumentKind::kWords || a.kind == ArgumentKind::kValues) {
      if (!g.values.empty()) args[name] = g.values;
    } else if (g.value.empty() && !a.required) {
      continue;
    } else if (a.kind == ArgumentKind::kNumber) {
      double value = 0;
      const std::string& text = g.value;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc{} || end != text.data() + text.size()) {
        throw InputError(fmt::format("{}: \"{}\": expected a number, {}", name, text, a.help));
      }
      args[name] = value;
    } else {
      args[name] = g.value;
    }
  }
  return args;
}

unsigned count_of(const json& args, const char* name, unsigned otherwise, unsigned most) {
  if (!args.contains(name)) return otherwise;
  const auto text = args[name].get<std::string>();
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0 || value > most) {
    throw InputError(fmt::format("--{} {}: expected a whole number from 1 to {}", name, text, most));
  }
  return value;
}

ReduceJob job_of(const std::string& socket, const json& args) {
  ReduceJob job{.socket = socket, .group = args.value("group", ""), .output = args.value("output", "")};
  const std::string timeout = args.value("timeout", "60s");
  const auto span = parse_span(timeout);
  if (!span || *span <= 0) throw InputError(fmt::format("--timeout {}: expected a duration such as 60s", timeout));
  job.timeout_ns = *span;
  return job;
}

json all_reduce(const std::string& socket, const json& args) {
  const std::string op = args.value("op", "sum");
  if (op != "sum" && op != "avg") throw InputError(fmt::format("--op {}: expected sum or avg", op));
  return all_reduce_files(job_of(socket, args), args["input"].get<std::vector<std::string>>(), op == "avg",
                          count_of(args, "repeat", 1, 1000000));
}

json version(const std::string& socket) {
  json out = {{"lanectl", LK_VERSION}, {"agent", nullptr}};
  try {
    out["agent"] = ControlClient(socket).ask("version", json::object()).value("version", "unknown");
  } catch (const AgentGone&) {  // there may be none, lanectl's own version is an answer too
  }
  return out;
}

json answer(const Parsed& p, const std::string& socket) {
  const json args = arguments(p);
  const std::string_view name = p.command->name;
  if (p.command->agents) return ControlClient(socket).ask(std::string(name), args);
  if (name == "allreduce") return all_reduce(socket, args);
  if (name == "broadcast") {
    return broadcast_file(job_of(socket, args), args["input"].get<std::string>(), count_of(args, "ranks", 1, 1024));
  }
  if (name == "config check") {
    Config config;
    config.read_file(args["file"].get<std::string>());
    config.check();
    return {{"file", args["file"]}, {"good", true}};
  }
  if (name == "config template") return {{"text", config_template()}};
  return version(socket);
}

std::string printed(const Parsed& p, const json& result) {
  if (p.as_json) return result.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  if (p.command->name == "config template") return result["text"].get<std::string>();
  return print_result(p.command->name, result);
}

LanectlResult failed(int code, const std::string& line, bool as_json) {
  LanectlResult r{code, "", fmt::format("lanectl: {}\n", line)};
  if (as_json) r.out = json{{"ok", false}, {"error", line}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return r;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

LanectlResult run(std::vector<std::string> words) {
  const bool as_json = std::find(words.begin(), words.end(), "--json") != words.end();
  try {
    CommandLine line;
    try {
      const Parsed parsed = line.parse(std::move(words));
      const std::string socket = parsed.socket.empty() ? socket_path(AgentConfig{}) : parsed.socket;
      const json result = answer(parsed, socket);
      return {is_bad_news(parsed.command->name, result) ? 1 : 0, printed(parsed, result), ""};
    } catch (const CLI::Success& e) {  // --help
      std::ostringstream out, error;
      line.exit(e, out, error);
      return {0, out.str(), error.str()};
    } catch (const CLI::ParseError& e) {
      return failed(2, fmt::format("{}, see --help", one_line(e.what())), as_json);
    }
  } catch (const InputError& e) {
    return failed(2, e.what(), as_json);
  } catch (const std::exception& e) {  // AgentGone, OpFailed, SystemError
    return failed(1, e.what(), as_json);
  }
}

}  // namespace

LanectlResult lanectl(std::vector<std::string> words) noexcept { return run(std::move(words)); }

}  // namespace lk

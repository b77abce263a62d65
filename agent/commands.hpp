// Commands: what the agent answers lanectl, one handler for each row of command_table.hpp that is the agent's. Results
// are JSON with units in every key. Owner: the control thread. Fails: InputError, one line, for what the user said
// wrong.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config.hpp"
#include "agent/lab.hpp"
#include "agent/session_server.hpp"

namespace lk {

class Commands {
 public:
  Commands(Lab& lab, const SessionServer& sessions, const Config& config)
      : lab_(lab), sessions_(sessions), config_(config) {}

  nlohmann::json answer(const std::string& command, const nlohmann::json& args);
  static std::vector<std::string_view> names();  // that have a handler

 private:
  using Handler = nlohmann::json (Commands::*)(const nlohmann::json& args);
  struct Row {
    std::string_view name;
    Handler handler;
  };
  static const std::vector<Row>& rows();

  // commands_show.cpp
  nlohmann::json status(const nlohmann::json& args);
  nlohmann::json topology(const nlohmann::json& args);
  nlohmann::json links(const nlohmann::json& args);
  nlohmann::json lanes(const nlohmann::json& args);
  nlohmann::json trunks(const nlohmann::json& args);
  nlohmann::json cores(const nlohmann::json& args);
  nlohmann::json pollers(const nlohmann::json& args);
  nlohmann::json ops(const nlohmann::json& args);
  nlohmann::json groups(const nlohmann::json& args);
  nlohmann::json counters(const nlohmann::json& args);
  nlohmann::json faults(const nlohmann::json& args);
  nlohmann::json events(const nlohmann::json& args);
  nlohmann::json config(const nlohmann::json& args);
  // commands.cpp
  nlohmann::json explain(const nlohmann::json& args);
  nlohmann::json drain(const nlohmann::json& args);
  nlohmann::json undrain(const nlohmann::json& args);
  nlohmann::json set_weight(const nlohmann::json& args);
  nlohmann::json off(const nlohmann::json& args);
  nlohmann::json on(const nlohmann::json& args);
  nlohmann::json rebalance(const nlohmann::json& args);
  nlohmann::json inject(const nlohmann::json& args);
  nlohmann::json clear(const nlohmann::json& args);
  nlohmann::json version(const nlohmann::json& args);

  // Nodes that --node asks for, or all.
  std::vector<NodeId> nodes_of(const nlohmann::json& args) const;
  nlohmann::json problems() const;

  Lab& lab_;
  const SessionServer& sessions_;
  const Config& config_;
};

}  // namespace lk

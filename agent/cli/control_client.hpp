// ControlClient: lanectl's end of the control socket (agent/control_server.hpp): one request, one answer.
// Fails: AgentGone when no agent answers (exit code 1), InputError for what the agent refuses (exit code 2).
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "dataplane/base/unique_fd.hpp"

namespace lk {

class AgentGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ControlClient {
 public:
  explicit ControlClient(const std::string& path);

  // The result of a command.
  nlohmann::json ask(const std::string& command, const nlohmann::json& args);

 private:
  std::string read_line();

  std::string path_;
  UniqueFd socket_;
};

}  // namespace lk

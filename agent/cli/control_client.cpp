#include "agent/cli/control_client.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr time_t kAnswerSeconds = 30;

}  // namespace

ControlClient::ControlClient(const std::string& path)
    : path_(path), socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw InputError(
        fmt::format("socket path \"{}\": {} bytes, expected 1 to {}", path, path.size(), sizeof address.sun_path - 1));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const timeval limit{kAnswerSeconds, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (!socket_ || ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw AgentGone(fmt::format("{}: no agent answers: {}", path, std::strerror(errno)));
  }
}

nlohmann::json ControlClient::ask(const std::string& command, const nlohmann::json& args) {
  const std::string line = nlohmann::json{{"command", command}, {"args", args}}.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) throw AgentGone(fmt::format("{}: the agent has gone: {}", path_, std::strerror(errno)));
    sent += static_cast<std::size_t>(n);
  }
  const nlohmann::json answer = nlohmann::json::parse(read_line(), nullptr, false);
  if (!answer.is_object() || !answer.contains("ok"))
    throw AgentGone(fmt::format("{}: that is no Lanekeeper agent", path_));
  if (!answer["ok"].get<bool>()) throw InputError(answer.value("error", "refused without a reason"));
  return answer.value("result", nlohmann::json());
}

std::string ControlClient::read_line() {
  std::string line;
  char buffer[65536];
  while (line.empty() || line.back() != '\n') {
    const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (n < 0) throw AgentGone(fmt::format("{}: the agent does not answer: {}", path_, std::strerror(errno)));
    if (n == 0) throw AgentGone(fmt::format("{}: the agent has gone before it answered", path_));
    line.append(buffer, static_cast<std::size_t>(n));
  }
  return line;
}

}  // namespace lk

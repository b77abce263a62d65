// ControlServer: lanectl's way in: a unix stream socket on which each line is a JSON object and gets one line back.
//   {"command": "show links", "args": {…}}  →  {"ok": true, "result": …}
//                                           or  {"ok": false, "error": "one line"}
// Owner: the control thread, whose io_context it uses; the answer is made there, at once. A client that sends a line
// over 64 KiB, or does not read its answers, is disconnected; nothing that a client does can stop the agent.
// Fails at construction as ListenSocket does.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "agent/listen_socket.hpp"

namespace lk {

class ControlServer {
 public:
  // Answers a command; throws InputError for one that is wrong.
  using Answer = std::function<nlohmann::json(const std::string& command, const nlohmann::json& args)>;

  ControlServer(boost::asio::io_context& io, const std::string& path, unsigned mode, Answer answer);
  ~ControlServer();

  const std::string& path() const noexcept { return listen_.path(); }

 private:
  class Connection;
  void accept();
  void accept_later();
  void make_room();

  boost::asio::io_context& io_;
  ListenSocket listen_;
  boost::asio::posix::stream_descriptor waiter_;
  boost::asio::steady_timer again_;
  Answer answer_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::uint64_t requests_ = 0;  // and connections, in their order
};

// The line for a line: what a connection sends back. Never throws.
std::string answer_line(const std::string& line, const ControlServer::Answer& answer) noexcept;

}  // namespace lk

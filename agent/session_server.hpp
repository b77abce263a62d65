// SessionServer: the socket on which training clients attach (session_protocol.hpp), one connection a client. It makes
// each client's sealed memory, hands the descriptors over, passes joins to SessionGroups, and sees clients go: by a
// close or a death, which are the same here.
// A client's memory is freed when its home's poller says that no engine uses it any more, not before.
// Owner: the control thread. Fails at construction as ListenSocket does; a client that breaks the protocol is
// disconnected, with a line in the log, and nothing else is harmed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/listen_socket.hpp"
#include "agent/session_groups.hpp"

namespace lk {

class SessionServer {
 public:
  SessionServer(boost::asio::io_context& io, const std::string& control_path, unsigned mode, Lab& lab);
  ~SessionServer();

  // What pollers and control planes have said since the last turn.
  void step(Nanos now);
  void stop();  // nobody comes in, everybody is sent away
  bool empty() const noexcept { return sessions_.empty() && connections_.empty(); }

  std::size_t clients() const noexcept { return connections_.size(); }

 private:
  class Connection;
  // A session's memory, from attach until it is drained.
  struct Lent {
    std::unique_ptr<Session> session;
    std::uint64_t client = 0;
    bool open = false;  // its home's poller has it
  };

  void accept();
  void accept_later();
  void make_room();
  void packet(Connection& c, const void* bytes, std::size_t length);
  std::string hello(Connection& c, const void* bytes, std::size_t length);
  void join(Connection& c, const void* bytes, std::size_t length);
  void open_session(Lent& lent, NodeId home);
  void disconnect(std::uint64_t client, const std::string& why);
  void take_note(const SessionNote& note, Nanos now);
  void send_news(const RankNews& news);

  boost::asio::io_context& io_;
  Lab& lab_;
  SessionGroups groups_;
  std::unique_ptr<ListenSocket> listen_;
  boost::asio::posix::stream_descriptor waiter_;
  boost::asio::steady_timer again_;
  std::map<std::uint64_t, std::shared_ptr<Connection>> connections_;  // by client
  std::map<const Session*, Lent> sessions_;
  std::vector<std::uint32_t> next_place_;  // by home node: number of its next session
  std::vector<RankNews> news_;
  std::uint64_t last_client_ = 0;
};

}  // namespace lk

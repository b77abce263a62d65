// ControlLoop: the control thread: it steps the control planes, serves lanectl and the training clients, and ends all
// of it in order: no new clients, drain, fence what they used, stop the run loops. Owner: the thread that calls run().
// Fails at construction: InputError for a socket that cannot be had.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/commands.hpp"
#include "agent/control_server.hpp"
#include "agent/lab.hpp"
#include "agent/session_server.hpp"

namespace lk {

class ControlLoop {
 public:
  ControlLoop(Lab& lab, const Config& config);

  // Until SIGTERM, SIGINT or stop(). The lab runs before, and is stopped after.
  void run();
  void stop();  // any thread

 private:
  void turn();
  void wait(Nanos most);
  void listen_bell();
  void drain();

  Lab& lab_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  boost::asio::posix::stream_descriptor bell_;
  SessionServer sessions_;
  Commands commands_;
  ControlServer server_;
  bool stopping_ = false;
};

}  // namespace lk

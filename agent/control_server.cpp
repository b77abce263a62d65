#include "agent/control_server.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

namespace asio = boost::asio;
using nlohmann::json;

constexpr std::size_t kLongestLine = 64 * 1024;
constexpr std::size_t kMostConnections = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};

json answer_json(const std::string& line, const ControlServer::Answer& answer) {
  const json request = json::parse(line, nullptr, false);
  if (!request.is_object() || !request.contains("command") || !request["command"].is_string()) {
    return {{"ok", false}, {"error", "request: expected one JSON object a line, with \"command\" and \"args\""}};
  }
  const json args = request.value("args", json::object());
  if (!args.is_object()) return {{"ok", false}, {"error", "args: expected an object"}};
  try {
    return {{"ok", true}, {"result", answer(request["command"].get<std::string>(), args)}};
  } catch (const InputError& e) {
    return {{"ok", false}, {"error", e.what()}};
  }
}

}  // namespace

std::string answer_line(const std::string& line, const ControlServer::Answer& answer) noexcept {
  try {
    return answer_json(line, answer).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  } catch (const std::exception& e) {
    spdlog::error("control socket: {}", e.what());
    return "{\"ok\":false,\"error\":\"the agent could not answer, see its log\"}\n";
  }
}

// One client. It reads a line, answers, reads on; while an answer is being written nothing is read.
class ControlServer::Connection : public std::enable_shared_from_this<ControlServer::Connection> {
 public:
  Connection(ControlServer& server, int fd, std::uint64_t number)
      : server_(server), socket_(server.io_, fd), last_request_(number) {
    socket_.non_blocking(true);
  }
  std::uint64_t last_request() const noexcept { return last_request_; }

  void read() {
    socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this()](auto error, std::size_t bytes) {
      if (error) return self->end();
      self->text_.append(self->buffer_.data(), bytes);
      self->serve();
    });
  }
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  void end() {
    close();
    server_.connections_.erase(shared_from_this());
  }

 private:
  void serve() {
    const std::size_t newline = text_.find('\n');
    if (newline == std::string::npos) {
      if (text_.size() > kLongestLine) return end();
      return read();
    }
    last_request_ = ++server_.requests_;
    answer_ = answer_line(text_.substr(0, newline), server_.answer_);
    text_.erase(0, newline + 1);
    asio::async_write(socket_, asio::buffer(answer_), [self = shared_from_this()](auto error, std::size_t) {
      if (error) return self->end();
      self->serve();
    });
  }
  ControlServer& server_;
  asio::posix::stream_descriptor socket_;
  std::array<char, 4096> buffer_{};
  std::string text_, answer_;
  std::uint64_t last_request_;
};

ControlServer::ControlServer(asio::io_context& io, const std::string& path, unsigned mode, Answer answer)
    : io_(io),
      listen_(path, SOCK_STREAM, mode),
      waiter_(io, ::dup(listen_.fd())),
      again_(io),
      answer_(std::move(answer)) {
  accept();
}

ControlServer::~ControlServer() {
  for (const auto& c : connections_) c->close();
}

// No descriptor is left: who waits stays in the queue, and trying again at once would take all of a core.
void ControlServer::accept_later() {
  again_.expires_after(kAcceptPause);
  again_.async_wait([this](auto error) {
    if (!error) accept();
  });
}

// The one that has asked nothing for longest makes room, so that those who hold connections open lock nobody out.
void ControlServer::make_room() {
  const auto idle = std::min_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
    return a->last_request() < b->last_request();
  });
  (*idle)->end();
}

void ControlServer::accept() {
  waiter_.async_wait(asio::posix::stream_descriptor::wait_read, [this](auto error) {
    if (error) return;
    const int fd = ::accept4(listen_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return accept_later();
    if (fd >= 0 && connections_.size() >= kMostConnections) make_room();
    if (fd >= 0 && connections_.size() < kMostConnections) {
      const auto connection = std::make_shared<Connection>(*this, fd, ++requests_);
      connections_.insert(connection);
      connection->read();
    } else if (fd >= 0) {
      ::close(fd);
    }
    accept();
  });
}

}  // namespace lk

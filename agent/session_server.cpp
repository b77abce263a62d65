#include "agent/session_server.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "agent/client/session_protocol.hpp"
#include "agent/lab.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::size_t kMostClients = 512;  // pollers have room for twice as many: those that drain
constexpr Bytes kMostDataBytes = 256 * kGiB;
constexpr std::chrono::milliseconds kAcceptPause{100};

// A client's name as it can stand in a line of the log and in JSON: it may hold anything.
std::string shown(std::string name) {
  for (char& c : name) {
    if (c < ' ' || c == 0x7f) c = '?';  // beyond ASCII too
  }
  return name;
}

}  // namespace

// One client's socket.
class SessionServer::Connection : public std::enable_shared_from_this<SessionServer::Connection> {
 public:
  Connection(SessionServer& server, int fd, std::uint64_t number)
      : client(number), server_(server), socket_(server.io_, fd) {}

  void read() {
    socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](auto error) {
      if (!error) self->receive();
    });
  }
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  // False: the client does not take it.
  template <typename T>
  bool send(const T& message, std::initializer_list<int> descriptors = {}) {
    return send_bytes(&message, sizeof message, descriptors);
  }

  const std::uint64_t client;
  std::string name;
  Session* session = nullptr;

 private:
  void receive() {
    alignas(8) std::array<std::byte, session::kMostPacketBytes> bytes;
    iovec part{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;  // no room for descriptors: what a client passes is closed by the kernel
    const ssize_t n = ::recvmsg(socket_.native_handle(), &header, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return read();
    if (n <= 0) return server_.disconnect(client, "");
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
      return server_.disconnect(client, "a packet of no known size");
    const auto self = shared_from_this();
    try {
      server_.packet(*this, bytes.data(), static_cast<std::size_t>(n));
    } catch (const std::exception& e) {  // memory or descriptors for this one, not the agent's end
      server_.disconnect(client, e.what());
    }
    if (socket_.is_open()) read();
  }

  bool send_bytes(const void* bytes, std::size_t length, std::initializer_list<int> descriptors) {
    iovec part{const_cast<void*>(bytes), length};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * session::kDescriptors)] = {};
    if (descriptors.size() != 0) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
      cmsghdr* c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
      std::memcpy(CMSG_DATA(c), descriptors.begin(), sizeof(int) * descriptors.size());
    }
    return ::sendmsg(socket_.native_handle(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(length);
  }

  SessionServer& server_;
  boost::asio::posix::stream_descriptor socket_;
};

SessionServer::SessionServer(boost::asio::io_context& io, const std::string& control_path, unsigned mode, Lab& lab)
    : io_(io),
      lab_(lab),
      groups_(lab),
      listen_(std::make_unique<ListenSocket>(session::session_socket_path(control_path), SOCK_SEQPACKET, mode)),
      waiter_(io, ::dup(listen_->fd())),
      again_(io),
      next_place_(lab.cluster().nodes.size(), 0) {
  accept();
}

SessionServer::~SessionServer() {
  for (const auto& [client, c] : connections_) c->close();
}

void SessionServer::accept() {
  waiter_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](auto error) {
    if (error) return;
    const int fd = ::accept4(listen_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return accept_later();
    if (fd >= 0 && connections_.size() >= kMostClients) make_room();
    if (fd >= 0 && connections_.size() + sessions_.size() < 2 * kMostClients && connections_.size() < kMostClients) {
      const auto c = std::make_shared<Connection>(*this, fd, ++last_client_);
      connections_.emplace(c->client, c);
      c->read();
    } else if (fd >= 0) {
      ::close(fd);
    }
    accept();
  });
}

// No descriptor is left: who waits stays in the queue, and trying again at once would take all of a core.
void SessionServer::accept_later() {
  again_.expires_after(kAcceptPause);
  again_.async_wait([this](auto error) {
    if (!error) accept();
  });
}

// Who has connected and not attached since holds a place that another could use.
void SessionServer::make_room() {
  const auto idle = std::find_if(connections_.begin(), connections_.end(),
                                 [](const auto& c) { return c.second->session == nullptr; });
  if (idle != connections_.end()) disconnect(idle->first, "it has not attached and others wait");
}

void SessionServer::packet(Connection& c, const void* bytes, std::size_t length) {
  const session::Kind kind = session::kind_of(bytes, length);
  if (kind == session::Kind::kHello && c.session == nullptr) {
    const std::string why = hello(c, bytes, length);
    if (!why.empty()) disconnect(c.client, why);
  } else if (kind == session::Kind::kJoin && c.session != nullptr) {
    join(c, bytes, length);
  } else {
    disconnect(c.client, "a packet that has no place here");
  }
}

// Empty, or why the client is sent away.
std::string SessionServer::hello(Connection& c, const void* bytes, std::size_t length) {
  session::Hello hello;
  if (!session::read_packet(bytes, length, hello)) return "an attach of another size";
  session::HelloReply reply;
  std::string why;
  try {
    if (hello.data_bytes > kMostDataBytes) {
      throw InputError(fmt::format("{} bytes of memory, expected at most {}", hello.data_bytes, kMostDataBytes));
    }
    auto session = std::make_unique<Session>(0,
                                             ShmSizes{.submit_slots = hello.submit_slots,
                                                      .completion_slots = hello.completion_slots,
                                                      .data_bytes = hello.data_bytes},
                                             lab_.incarnation());
    reply.region_bytes = session->region().size();
    reply.incarnation = lab_.incarnation();
    c.name = shown(session::text_of(hello.name));
    c.session = session.get();
    sessions_.emplace(c.session, Lent{std::move(session), c.client, false});
  } catch (const InputError& e) {
    reply.status = static_cast<std::uint8_t>(Status::kInvalid);
    why = e.what();
  } catch (const SystemError& e) {
    reply.status = static_cast<std::uint8_t>(Status::kBusy);
    why = e.what();
  }
  session::set_text(reply.text, why);
  const bool sent = c.session == nullptr
                        ? c.send(reply)
                        : c.send(reply, {c.session->region().fd(), c.session->agent_bell(), c.session->client_bell()});
  if (c.session != nullptr) c.session->close_client_bell();
  return sent ? why : "it does not take the answer";
}

void SessionServer::join(Connection& c, const void* bytes, std::size_t length) {
  session::Join join;
  if (!session::read_packet(bytes, length, join)) return disconnect(c.client, "a join of another size");
  session::JoinReply reply;
  reply.request = join.request;
  try {
    const RankOwner owner{c.client, c.name, c.session};
    const auto joined =
        groups_.join(owner, session::text_of(join.group), join.rank, join.ranks, join.endpoint, lab_.now());
    reply.group = joined.number;
    reply.endpoint = joined.endpoint;
    Lent& lent = sessions_.at(c.session);
    if (!lent.open) open_session(lent, lab_.cluster().gpus[joined.endpoint].node);
  } catch (const InputError& e) {
    reply.status = static_cast<std::uint8_t>(Status::kInvalid);
    session::set_text(reply.text, e.what());
  }
  if (!c.send(reply)) disconnect(c.client, "it does not take the answer to a join");
}

// The home is the node of the client's first rank: most of its ops never leave that reactor.
void SessionServer::open_session(Lent& lent, NodeId home) {
  const auto taken = [this](std::uint32_t id) {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [id](const auto& s) { return s.second.open && s.first->id() == id; });
  };
  std::uint32_t id = 0;
  do {
    id = (std::uint32_t{home} << 16) | (next_place_[home]++ & 0xffffU);
  } while (taken(id));
  lent.session->set_id(id);
  lent.open = true;
  lab_.watch(home, lent.session->agent_bell());
  lab_.send({.kind = SessionCommand::Kind::kOpen, .session = lent.session.get()});
}

void SessionServer::disconnect(std::uint64_t client, const std::string& why) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  const std::shared_ptr<Connection> c = found->second;
  connections_.erase(found);
  c->close();
  if (!why.empty()) spdlog::warn("client {} ({}): {}, sent away", client, c->name, why);
  if (c->session == nullptr) return;
  const auto lent = sessions_.find(c->session);
  if (lent->second.open) {
    lab_.send({.kind = SessionCommand::Kind::kClose, .session = c->session});
  } else {
    sessions_.erase(lent);  // never joined: nobody else knows it
  }
}

void SessionServer::step(Nanos now) {
  SessionNote note;
  OpResult result;
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    SessionPoller& poller = lab_.node(n).sessions();
    while (poller.told().pop(result)) {
      lab_.node(n).plane().note_result(result);
      groups_.note_result(result);
    }
    while (poller.notes().pop(note)) take_note(note, now);
  }
  groups_.step(now, news_);
  for (const RankNews& news : news_) send_news(news);
  news_.clear();
}

void SessionServer::take_note(const SessionNote& note, Nanos now) {
  const auto lent = sessions_.find(note.session);
  switch (note.kind) {
    case SessionNote::Kind::kBroken:
      disconnect(lent->second.client, "its rings are damaged");
      break;
    case SessionNote::Kind::kAbandoned:
      groups_.client_left(lent->second.client, note.in_flight != 0, now);
      break;
    case SessionNote::Kind::kDrained:
      lab_.unwatch(SessionPoller::home_of(note.session->id()), note.session->agent_bell());
      sessions_.erase(lent);
      break;
  }
}

void SessionServer::send_news(const RankNews& news) {
  const auto found = connections_.find(news.client);
  if (found == connections_.end()) return;
  session::GroupReady ready;
  ready.uuid_hi = news.uuid_hi;
  ready.uuid_lo = news.uuid_lo;
  ready.first_op = news.first_op;
  ready.group = news.number;
  ready.rank = news.client_rank;
  ready.status = static_cast<std::uint8_t>(news.status);
  session::set_text(ready.text, news.text);
  if (!found->second->send(ready)) disconnect(news.client, "it does not take news of its groups");
}

void SessionServer::stop() {
  boost::system::error_code ignored;
  waiter_.close(ignored);
  again_.cancel();
  listen_.reset();
  while (!connections_.empty()) disconnect(connections_.begin()->first, "");
}

}  // namespace lk

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "dataplane/reduce/fold.hpp"
#include "tests/agent/fake_agent.hpp"

namespace lk::test {

FakeAgent::FakeAgent(const std::string& path, Misdeed misdeed) : misdeed_(std::move(misdeed)) {
  const std::string name = session::session_socket_path(path);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  if (::bind(listener_.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), 8) != 0) {
    throw std::runtime_error("fake agent: bind or listen");
  }
  thread_ = std::thread([this] { run(); });
}
FakeAgent::~FakeAgent() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void FakeAgent::send_bytes(Client& c, const void* bytes, std::size_t length, const std::vector<int>& descriptors) {
  struct iovec part {
    const_cast<void*>(bytes), length
  };
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)] = {};
  struct msghdr packet {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (!descriptors.empty()) {
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    struct cmsghdr* head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof(int) * descriptors.size());
  }
  [[maybe_unused]] const ssize_t n = ::sendmsg(c.socket.get(), &packet, MSG_NOSIGNAL);
}

void FakeAgent::run() {
  for (;;) {
    std::vector<struct pollfd> watched{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& c : clients_) {
      watched.push_back({c->socket.get(), POLLIN, 0});
      watched.push_back({c->bell.get(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), -1) < 0) return;
    if (watched[0].revents != 0) return;
    if (watched[1].revents != 0) {
      clients_.push_back(std::make_unique<Client>());
      clients_.back()->socket.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      continue;
    }
    for (auto& c : clients_) {
      if (c->socket) read_packet_of(*c);
      if (c->socket && c->bell) take_ops(*c);
    }
  }
}

void FakeAgent::read_packet_of(Client& c) {
  alignas(8) char bytes[session::kMostPacketBytes];
  const ssize_t n = ::recv(c.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n < 0) return;
  session::Hello hello;
  session::Join join;
  if (session::read_packet(bytes, static_cast<std::size_t>(n), hello)) return attach(c, hello);
  if (session::read_packet(bytes, static_cast<std::size_t>(n), join)) return enter(c, join);
  c.socket.reset();
}

void FakeAgent::attach(Client& c, const session::Hello& hello) {
  if (misdeed_.mute) return;
  session::HelloReply reply;
  if (!misdeed_.refuse_attach.empty()) {
    reply.status = static_cast<std::uint8_t>(Status::kBusy);
    session::set_text(reply.text, misdeed_.refuse_attach);
    return send(c, reply);
  }
  c.layout = plan_layout({.submit_slots = hello.submit_slots,
                          .completion_slots = hello.completion_slots,
                          .scratch_bytes = 4096,
                          .data_bytes = hello.data_bytes});
  c.region = Region::create("fake-agent", c.layout.total_bytes);
  std::memcpy(c.region.data(), &c.layout, sizeof c.layout);
  if (misdeed_.damaged_header) c.region.data()[20] ^= std::byte{1};
  c.bell.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  c.client_bell.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  c.submits = {c.region.data() + c.layout.submit_offset, c.layout.submit_slots, ShmRingStart::kFresh};
  c.completions = {c.region.data() + c.layout.completion_offset, c.layout.completion_slots, ShmRingStart::kFresh};
  c.submits.arm();
  UniqueFd loose;
  if (misdeed_.unsealed_memory) {
    loose.reset(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (::ftruncate(loose.get(), static_cast<off_t>(c.region.size())) != 0) return;
  }
  reply.region_bytes = c.region.size();
  std::vector<int> descriptors{loose ? loose.get() : c.region.fd(), c.bell.get(), c.client_bell.get()};
  if (misdeed_.two_descriptors) descriptors.pop_back();
  send(c, reply, descriptors);
  if (misdeed_.garbage_after_attach) send(c, hello);
}

void FakeAgent::enter(Client& c, const session::Join& join) {
  session::JoinReply reply;
  reply.request = join.request;
  if (!misdeed_.refuse_join.empty()) {
    reply.status = static_cast<std::uint8_t>(Status::kInvalid);
    session::set_text(reply.text, misdeed_.refuse_join);
    return send(c, reply);
  }
  const std::string name = session::text_of(join.group);
  const auto number = numbers_.emplace(name, static_cast<std::uint16_t>(numbers_.size() + 3)).first->second;
  Group& group = groups_[number];
  group.ranks = join.ranks;
  group.joined[join.rank] = &c;
  reply.group = number;
  send(c, reply);
  if (group.joined.size() < group.ranks) return;
  for (const auto& [rank, client] : group.joined) {
    session::GroupReady ready;
    ready.group = number;
    ready.rank = rank;
    if (!misdeed_.refuse_group.empty()) ready.status = static_cast<std::uint8_t>(Status::kMismatch);
    session::set_text(ready.text, misdeed_.refuse_group);
    send(*client, ready);
  }
}

void FakeAgent::take_ops(Client& c) {
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t n = ::read(c.bell.get(), &rung, sizeof rung);
  do {
    SubmitEntry entry;
    while (c.socket && c.submits.pop(entry) == Status::kOk) {
      if (misdeed_.die_on_op) return c.socket.reset();
      if (check_submit(entry, c.layout.data_bytes) != Status::kOk) return c.socket.reset();
      Group& group = groups_[entry.group];
      auto& op = group.ops[entry.op_no];
      op[entry.rank] = {&c, entry};
      if (op.size() == group.ranks) finish(group, entry.op_no);
    }
  } while (c.socket && !c.submits.arm());
}

void FakeAgent::finish(Group& group, OpNumber number) {
  auto op = std::move(group.ops.at(number));
  group.ops.erase(number);
  std::vector<const std::byte*> inputs;
  for (const auto& [rank, e] : op) inputs.push_back(at(e, e.entry.in_offset));
  const SubmitEntry& first = op.begin()->second.entry;
  const auto dtype = static_cast<DType>(first.dtype);
  std::vector<std::byte> result(first.count * size_of(dtype));
  if (first.kind == static_cast<std::uint8_t>(Collective::kBroadcast)) {
    std::memcpy(result.data(), inputs.at(first.root), result.size());
  } else {
    fold(dtype, inputs, first.count,
         FoldRounding::last(static_cast<RedOp>(first.redop), static_cast<std::uint32_t>(inputs.size())), result.data());
  }
  for (const auto& [rank, e] : op) {
    std::memcpy(at(e, e.entry.out_offset), result.data(), result.size());
    complete(*e.client, e.entry);
  }
}

std::byte* FakeAgent::at(const Entered& e, Bytes offset) {
  return e.client->region.data() + e.client->layout.data_offset + offset;
}

void FakeAgent::complete(Client& c, const SubmitEntry& entry) {
  CompletionEntry done{};
  done.cookie = entry.cookie + (misdeed_.complete_unknown ? 1000 : 0);
  done.op_no = entry.op_no;
  done.status = static_cast<std::uint8_t>(misdeed_.op_status);
  done.rank = 1;
  done.lost_node = misdeed_.op_status == Status::kNodeLost ? 5 : kNoId16;
  done.progress_done = 2;
  done.progress_total = 9;
  c.completions.push(done);
  if (misdeed_.lie_about_completions) {
    reinterpret_cast<ShmRingIndexes*>(c.region.data() + c.layout.completion_offset)->produced.store(1U << 20);
  }
  const std::uint64_t one = 1;
  if (c.completions.push_wakes()) {
    [[maybe_unused]] const ssize_t n = ::write(c.client_bell.get(), &one, sizeof one);
  }
  if (misdeed_.die_after_completing) c.socket.reset();
}

}  // namespace lk::test

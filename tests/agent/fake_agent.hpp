// FakeAgent: the agent's side of a session in one thread of the test, honest or not. It carries out all-reduces of
// groups whose ranks are all joined, by folding in rank order, and can break the protocol in every way that a client
// must survive. Nothing of the agent's own session code is used.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/client/session_protocol.hpp"
#include "dataplane/base/unique_fd.hpp"
#include "dataplane/memory/region.hpp"
#include "dataplane/memory/shm_layout.hpp"
#include "dataplane/memory/shm_ring.hpp"

namespace lk::test {

struct Misdeed {
  std::string refuse_attach{}, refuse_join{}, refuse_group{};  // texts
  bool mute = false;                                           // takes the connection and says nothing
  bool unsealed_memory = false;
  bool damaged_header = false;
  bool two_descriptors = false;
  bool garbage_after_attach = false;
  bool die_on_op = false;              // closes instead of completing
  bool die_after_completing = false;   // closes right after the completion
  bool complete_unknown = false;       // completes a cookie that nobody has
  bool lie_about_completions = false;  // moves the ring's index to where it cannot be
  Status op_status = Status::kOk;
};

class FakeAgent {
 public:
  FakeAgent(const std::string& path, Misdeed misdeed);
  ~FakeAgent();

 private:
  struct Client {
    UniqueFd socket, bell, client_bell;
    Region region;
    ShmLayout layout{};
    ShmConsumer<SubmitEntry> submits;
    ShmProducer<CompletionEntry> completions;
  };
  struct Entered {
    Client* client;
    SubmitEntry entry;
  };
  struct Group {
    std::uint16_t ranks = 0;
    std::map<Rank, Client*> joined;
    std::map<OpNumber, std::map<Rank, Entered>> ops;
  };

  void run();
  void read_packet_of(Client& c);
  void attach(Client& c, const session::Hello& hello);
  void enter(Client& c, const session::Join& join);
  void take_ops(Client& c);
  void finish(Group& group, OpNumber number);
  std::byte* at(const Entered& e, Bytes offset);
  void complete(Client& c, const SubmitEntry& entry);
  template <typename T>
  void send(Client& c, const T& message, const std::vector<int>& descriptors = {}) {
    send_bytes(c, &message, sizeof message, descriptors);
  }
  void send_bytes(Client& c, const void* bytes, std::size_t length, const std::vector<int>& descriptors);

  const Misdeed misdeed_;
  UniqueFd listener_, stop_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::string, std::uint16_t> numbers_;
  std::map<std::uint16_t, Group> groups_;
  std::thread thread_;
};

}  // namespace lk::test

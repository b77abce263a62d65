// Session: what a client process has of its agent: the lent memory, both rings, the groups that it joined and the ops
// in flight. The C interface (lanekeeper.h) is a thin face of it.
// One thread at a time. Calls return an lk_status; what failed is in lk_last_error(). Set-up may throw std::bad_alloc,
// InputError and SystemError, which the face turns into a status.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/client/connection.hpp"
#include "agent/client/data_area.hpp"
#include "agent/client/lanekeeper.h"
#include "dataplane/base/ids.hpp"
#include "dataplane/memory/region.hpp"
#include "dataplane/memory/shm_layout.hpp"
#include "dataplane/memory/shm_ring.hpp"

namespace lk::client {
class Session;
}

// One rank's membership of a group.
struct lk_group {
  lk::client::Session* session = nullptr;
  std::string name;
  std::uint32_t request = 0;
  std::uint16_t number = lk::kNoId16;  // the agent's
  lk::Rank rank = 0;
  std::uint16_t ranks = 0;
  lk::OpNumber next_op = 1;
  bool answered = false;      // the agent has answered the join,
  lk_status answer = LK_OK;   // so;
  bool ready = false;         // all ranks have joined,
  lk_status refusal = LK_OK;  // or the group will not be
  std::string reason;
};

namespace lk::client {

class Session {
 public:
  static lk_status attach(const std::string& path, const lk_options& options, std::unique_ptr<Session>& out);

  lk_status take_memory(Bytes bytes, void** out);
  lk_status give_memory_back(void* memory);
  lk_status join(const std::string& name, Rank rank, std::uint16_t ranks, EndpointId gpu, lk_group** out);
  lk_status wait_ready(lk_group& group, Nanos timeout);

  // `entry` has kind, redop, dtype, root and count; the rest is filled in.
  lk_status submit(lk_group& group, SubmitEntry entry, const void* in, const void* out, std::uint64_t* cookie);
  lk_status poll(lk_result* results, std::size_t most, std::size_t& taken);
  lk_status wait(std::uint64_t cookie, Nanos timeout, lk_result* result);

 private:
  Session(Connection connection, Region region, const ShmLayout& layout, UniqueFd agent_bell, UniqueFd bell,
          const lk_options& options);

  void collect();       // completions from the ring into done_
  void read_packets();  // what the agent has sent
  void lost();          // no more from this agent: lk_last_error() of that moment is kept as the reason
  lk_status disconnected() const;
  void doze(Nanos deadline);  // until the agent does something
  std::byte* data() const noexcept { return region_.data() + layout_.data_offset; }
  bool offset_of(const void* pointer, Bytes length, Bytes& offset) const noexcept;

  Connection connection_;
  Region region_;
  ShmLayout layout_;
  UniqueFd agent_bell_, bell_;
  ShmProducer<SubmitEntry> submits_;
  ShmConsumer<CompletionEntry> completions_;
  DataArea area_;
  std::uint32_t ops_in_flight_;
  Nanos answer_timeout_ns_;
  std::vector<std::unique_ptr<lk_group>> groups_;
  std::unordered_map<std::uint64_t, OpNumber> in_flight_;  // by cookie
  std::deque<lk_result> done_;                             // complete, not taken yet; oldest first
  std::uint64_t next_cookie_ = 1;
  std::uint32_t next_request_ = 1;
  Nanos looked_at_ = 0;  // when the socket was last read
  bool gone_ = false;
  std::string gone_reason_;
};

}  // namespace lk::client

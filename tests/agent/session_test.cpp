// A session against a client that is not trusted: the test writes the client's end of the shared memory itself.
#include "agent/session.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <string>

#include "dataplane/base/random.hpp"

using namespace lk;

namespace {

constexpr Bytes kData = 8192;

struct Client {
  explicit Client(const Session& session)
      : layout(check_header(session.region().data(), session.region().size())),
        submits(session.region().data() + layout.submit_offset, layout.submit_slots, ShmRingStart::kFresh),
        completions(session.region().data() + layout.completion_offset, layout.completion_slots, ShmRingStart::kFresh) {
  }

  static SubmitEntry good(OpNumber number = 1) {
    SubmitEntry e{};
    e.op_no = number;
    e.group = 7;
    e.rank = 3;
    e.count = 16;
    e.in_offset = 0;
    e.out_offset = 4096;
    e.cookie = 1000 + number;
    return e;
  }
  int next_status() {
    CompletionEntry c{};
    return completions.pop(c) == Status::kOk ? c.status : -1;
  }

  ShmLayout layout;
  ShmProducer<SubmitEntry> submits;
  ShmConsumer<CompletionEntry> completions;
};

Session new_session() {
  Session s((5U << 16) | 9, {.submit_slots = 8, .completion_slots = 8, .data_bytes = kData}, 77);
  s.add_rank({.number = 7, .client_rank = 3, .group = 2, .rank = 1, .node = 4, .membership = 6, .next_op = 1});
  return s;
}

Status take(Session& s, OpRequest& q) {
  NodeId node = 0;
  return s.take(q, node, [] {});
}

// The status with which the session answers an entry.
int answer(const std::function<void(SubmitEntry&)>& change) {
  Session s = new_session();
  Client client(s);
  SubmitEntry e = Client::good();
  change(e);
  BOOST_REQUIRE(client.submits.push(e) == Status::kOk);
  OpRequest q;
  if (take(s, q) == Status::kOk) return -2;
  s.flush();
  BOOST_TEST(s.in_flight() == 0U);
  return client.next_status();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(session_test)

BOOST_AUTO_TEST_CASE(an_entry_becomes_a_request_inside_the_memory) {
  Session s = new_session();
  Client client(s);
  BOOST_REQUIRE(client.submits.push(Client::good()) == Status::kOk);
  OpRequest q;
  NodeId node = 0;
  BOOST_REQUIRE(s.take(q, node, [] {}) == Status::kOk);
  BOOST_TEST(node == 4);
  BOOST_TEST(q.number == 1U);
  BOOST_TEST(q.group == 2);
  BOOST_TEST(q.rank == 1);
  BOOST_TEST(q.membership == 6);  // so that an engine that has lost a node since refuses it
  BOOST_TEST(q.session == ((5U << 16) | 9));
  BOOST_TEST((q.in == s.region().data() + client.layout.data_offset));
  BOOST_TEST((q.out == q.in + 4096));
  BOOST_TEST((q.scratch == s.region().data() + client.layout.scratch_offset + 4096));
  BOOST_TEST(client.layout.scratch_bytes >= kData);
  BOOST_TEST(s.in_flight() == 1U);

  OpResult r;
  r.cookie = q.cookie;
  r.number = q.number;
  r.status = Status::kNodeLost;
  r.lost_node = 6;
  s.complete(r);
  s.flush();
  CompletionEntry c{};
  BOOST_REQUIRE(client.completions.pop(c) == Status::kOk);
  BOOST_TEST(c.cookie == 1001U);
  BOOST_TEST(c.status == static_cast<int>(Status::kNodeLost));
  BOOST_TEST(c.lost_node == 6);
  BOOST_TEST(s.in_flight() == 0U);
}

BOOST_AUTO_TEST_CASE(what_is_wrong_with_an_entry_is_its_completion) {
  const int invalid = static_cast<int>(Status::kInvalid), unsupported = static_cast<int>(Status::kUnsupported);
  BOOST_TEST(answer([](SubmitEntry&) {}) == -2);
  BOOST_TEST(answer([](SubmitEntry& e) { e.count = ~0ULL; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.count = (1ULL << 62) + 1; }) == invalid);  // times four it is 4 bytes
  BOOST_TEST(answer([](SubmitEntry& e) { e.in_offset = kData; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.out_offset = ~0ULL - 3; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.out_offset = e.in_offset + 4; }) == invalid);  // they overlap
  BOOST_TEST(answer([](SubmitEntry& e) { e.in_offset = 2; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.flags = 1; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.op_no = 0; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.op_no = 2; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.group = 8; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.rank = 4; }) == invalid);
  BOOST_TEST(answer([](SubmitEntry& e) { e.kind = 9; }) == unsupported);
  BOOST_TEST(answer([](SubmitEntry& e) { e.dtype = 3; }) == unsupported);
  BOOST_TEST(answer([](SubmitEntry& e) { e.redop = 200; }) == unsupported);
}

BOOST_AUTO_TEST_CASE(news_of_a_group_may_be_on_its_way) {
  Session s((5U << 16) | 9, {.submit_slots = 8, .completion_slots = 8, .data_bytes = kData}, 77);
  Client client(s);
  BOOST_REQUIRE(client.submits.push(Client::good()) == Status::kOk);
  OpRequest q;
  NodeId node = 0;
  const Status status = s.take(q, node, [&] { s.add_rank({.number = 7, .client_rank = 3, .node = 4, .next_op = 1}); });
  BOOST_TEST((status == Status::kOk));
}

BOOST_AUTO_TEST_CASE(ops_after_the_end_of_a_group_are_told_so) {
  Session s = new_session();
  Client client(s);
  s.end_group(7, 1, Status::kCancelled);
  OpRequest q;
  for (OpNumber n = 1; n <= 3; ++n) BOOST_REQUIRE(client.submits.push(Client::good(n)) == Status::kOk);
  BOOST_TEST((take(s, q) == Status::kOk));
  BOOST_TEST((take(s, q) == Status::kBusy));
  s.flush();
  BOOST_TEST(client.next_status() == static_cast<int>(Status::kCancelled));
  BOOST_TEST(client.next_status() == static_cast<int>(Status::kCancelled));
  BOOST_TEST(s.in_flight() == 1U);
  s.drop_group(7);
  BOOST_REQUIRE(client.submits.push(Client::good(4)) == Status::kOk);
  BOOST_TEST((take(s, q) == Status::kBusy));
  s.flush();
  BOOST_TEST(client.next_status() == static_cast<int>(Status::kInvalid));
}

BOOST_AUTO_TEST_CASE(a_client_that_takes_no_results_gets_no_more_ops_in) {
  Session s = new_session();
  Client client(s);
  OpRequest q;
  for (OpNumber n = 1; n <= 8; ++n) {
    BOOST_REQUIRE(client.submits.push(Client::good(n)) == Status::kOk);
    BOOST_REQUIRE(take(s, q) == Status::kOk);
    OpResult r;
    r.number = n;
    s.complete(r);
  }
  s.flush();  // fills the completion ring
  BOOST_TEST(s.in_flight() == 0U);
  for (OpNumber n = 9; n <= 16; ++n) {
    BOOST_REQUIRE(client.submits.push(Client::good(n)) == Status::kOk);
    BOOST_REQUIRE(take(s, q) == Status::kOk);
    OpResult r;
    r.number = n;
    s.complete(r);
  }
  s.flush();
  BOOST_TEST(s.has_backlog());
  BOOST_TEST(s.in_flight() == 8U);
  BOOST_REQUIRE(client.submits.push(Client::good(17)) == Status::kOk);
  BOOST_TEST((take(s, q) == Status::kBusy));
  for (int i = 0; i < 8; ++i) BOOST_TEST(client.next_status() == 0);
  s.flush();
  for (int i = 0; i < 8; ++i) BOOST_TEST(client.next_status() == 0);
  BOOST_TEST(s.in_flight() == 0U);
  BOOST_TEST((take(s, q) == Status::kOk));
}

BOOST_AUTO_TEST_CASE(a_broken_ring_ends_the_session_and_nothing_else) {
  Session s = new_session();
  Client client(s);
  OpRequest q;
  BOOST_REQUIRE(client.submits.push(Client::good()) == Status::kOk);
  BOOST_REQUIRE(take(s, q) == Status::kOk);
  auto* indexes = reinterpret_cast<ShmRingIndexes*>(s.region().data() + client.layout.submit_offset);
  indexes->produced.store(1'000'000);
  BOOST_TEST((take(s, q) == Status::kInvalid));
  BOOST_TEST(s.broken());
  BOOST_TEST(s.in_flight() == 1U);  // its memory is still in use
  s.complete({});
  s.flush();
  BOOST_TEST(s.in_flight() == 0U);
}

BOOST_AUTO_TEST_CASE(the_memory_cannot_shrink) {
  const Session s = new_session();
  BOOST_TEST(::ftruncate(s.region().fd(), 0) == -1);
}

// Any bytes that a client may write give a request inside its own memory, or a status.
BOOST_AUTO_TEST_CASE(random_entries_never_reach_outside) {
  Random random(20260101);
  unsigned good = 0, bad = 0;
  Session s = new_session();
  Client client(s);
  OpNumber next = 1;
  for (int i = 0; i < 200'000; ++i) {
    SubmitEntry e = Client::good(next);
    for (unsigned n = static_cast<unsigned>(random.below(3)); n > 0; --n) {  // a few bytes of anything
      reinterpret_cast<unsigned char*>(&e)[8 + random.below(sizeof e - 8)] = static_cast<unsigned char>(random.next());
    }
    BOOST_REQUIRE(client.submits.push(e) == Status::kOk);
    OpRequest q;
    if (take(s, q) == Status::kOk) {
      ++good;
      const std::byte* begin = s.region().data();
      const std::byte* end = begin + s.region().size();
      const Bytes length = q.count * size_of(q.dtype);
      for (const std::byte* p :
           {q.in, static_cast<const std::byte*>(q.out), static_cast<const std::byte*>(q.scratch)}) {
        BOOST_REQUIRE((p >= begin && p <= end && length <= static_cast<Bytes>(end - p)));
      }
      BOOST_REQUIRE((q.scratch + length <= begin + client.layout.data_offset));
      s.complete({});
    } else {
      ++bad;
    }
    s.flush();
    BOOST_REQUIRE(client.next_status() >= 0);
    if (e.group == 7 && e.rank == 3) ++next;
  }
  BOOST_TEST(good > 1000U);
  BOOST_TEST(bad > 1000U);
}

BOOST_AUTO_TEST_SUITE_END()

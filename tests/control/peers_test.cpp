#include <boost/test/unit_test.hpp>
#include <map>

#include "control/peers/channel.hpp"
#include "control/peers/peers.hpp"
#include "dataplane/base/random.hpp"
#include "tests/control/plane_test_support.hpp"

using lk::kMilli;
using lk::kSecond;
using lk::NoticeKind;
using lk::PeerState;
using lk::RecordKind;

BOOST_AUTO_TEST_SUITE(peers)

namespace {

struct Outbox final : lk::PeerBus {
  bool up = true;
  std::vector<lk::PeerMessage> sent;
  bool send(const lk::PeerMessage& m) override {
    if (up) sent.push_back(m);
    return up;
  }
};

struct Ears final : lk::Liveness {
  lk::Nanos heard = -1;
  lk::Nanos last_heard(lk::NodeId) const override { return heard; }
};

// One node's Peers, and what the test plays: the other node.
struct Side {
  explicit Side(lk::NodeId self, lk::Incarnation incarnation)
      : cluster(lk::plane_test::small_cluster(2)), peers(cluster, self, incarnation, thresholds, bus, ears, in_band) {}
  lk::ClusterSpec cluster;
  lk::Thresholds thresholds;
  Outbox bus;
  Ears ears;
  lk::Ring<lk::PeerMessage> in_band{1024};
  lk::Peers peers;

  void turn(lk::Nanos now) {
    peers.tick(now);
    peers.flush(now);
  }
  std::vector<NoticeKind> kinds() {
    std::vector<NoticeKind> out;
    for (const lk::Notice& n : peers.notices()) out.push_back(n.kind);
    peers.notices().clear();
    return out;
  }
  unsigned drain_in_band() {
    lk::PeerMessage m;
    unsigned n = 0;
    while (in_band.pop(m)) ++n;
    return n;
  }
};

lk::PeerMessage beat(lk::NodeId from, lk::NodeId to, lk::Incarnation mine, lk::Incarnation theirs) {
  lk::PeerChannel channel(from, to, mine);
  channel.open(theirs);
  return channel.control_message(lk::PeerMessageKind::kHeartbeat);
}

bool has(const std::vector<NoticeKind>& kinds, NoticeKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_record_that_is_cut_reads_as_such) {
  lk::RecordWriter out;
  out.put(std::uint16_t{0x1234}).put_text("name").put_list(std::vector<std::uint16_t>{1, 2, 3});
  lk::RecordReader whole(out.bytes());
  BOOST_TEST(whole.get<std::uint16_t>() == 0x1234);
  BOOST_TEST(whole.get_text() == "name");
  BOOST_TEST(whole.get_list<std::uint16_t>() == (std::vector<std::uint16_t>{1, 2, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(whole.done());
  for (std::size_t length = 0; length < out.bytes().size(); ++length) {
    lk::RecordReader cut({out.bytes().data(), length});
    cut.get<std::uint16_t>();
    cut.get_text();
    cut.get_list<std::uint16_t>();
    BOOST_TEST(!cut.done());
  }
  const lk::Bytestring lie = {0xff, 0xff, 0xff, 0xff, 1};  // a list of 2^32 - 1
  lk::RecordReader liar(lie);
  BOOST_TEST(liar.get_list<std::uint16_t>().empty());
  BOOST_TEST(!liar.ok());
}

// Whatever the messages between them suffer: every record once, in order, whole.
BOOST_AUTO_TEST_CASE(a_channel_delivers_each_record_once_and_in_order) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    lk::Random random(seed);
    lk::PeerChannel a(0, 1, 11), b(1, 0, 22);
    a.open(22);
    b.open(11);
    std::vector<lk::Bytestring> said;
    std::vector<lk::Record> heard;
    std::multimap<lk::Nanos, lk::PeerMessage> flights;
    const auto launch = [&](const std::vector<lk::PeerChannel::Due>& due, lk::Nanos now) {
      for (const auto& d : due) {
        for (int copy = 0; copy < (random.chance(0.2) ? 2 : 1); ++copy) {
          if (!random.chance(0.3)) flights.emplace(now + static_cast<lk::Nanos>(random.below(60)) * kMilli, d.message);
        }
      }
    };
    for (lk::Nanos now = 0; now < 60 * kSecond && (now < kSecond || heard.size() < said.size()); now += kMilli) {
      if (now < kSecond && random.chance(0.1)) {
        lk::Bytestring body(random.below(1500));
        for (auto& byte : body) byte = static_cast<std::uint8_t>(random.next());
        a.queue(RecordKind::kHealth, body);
        said.push_back(std::move(body));
      }
      std::vector<lk::PeerChannel::Due> from_a, from_b;
      a.collect(now, 20 * kMilli, from_a);
      b.collect(now, 20 * kMilli, from_b);
      launch(from_a, now);
      launch(from_b, now);
      while (!flights.empty() && flights.begin()->first <= now) {
        const lk::PeerMessage m = flights.begin()->second;
        flights.erase(flights.begin());
        std::vector<lk::Record> nothing;
        if (m.to == 1) {
          b.take(m, now, heard);
        } else {
          a.take(m, now, nothing);
        }
      }
    }
    BOOST_REQUIRE(said.size() > 50U);
    BOOST_REQUIRE(heard.size() == said.size());
    for (std::size_t i = 0; i < said.size(); ++i) BOOST_REQUIRE(heard[i].body == said[i]);
  }
}

BOOST_AUTO_TEST_CASE(heartbeats_suspicion_and_death_keep_their_times) {
  Side side(0, 11);
  side.turn(0);
  BOOST_TEST(side.bus.sent.size() == 1U);  // an unseen node is greeted
  side.peers.receive(beat(1, 0, 22, 0), 10 * kMilli, false);
  BOOST_TEST((side.peers.state(1) == PeerState::kAlive));
  for (lk::Nanos now = 20 * kMilli; now < 255 * kMilli; now += 10 * kMilli) side.turn(now);
  BOOST_TEST(!has(side.kinds(), NoticeKind::kSuspect));
  side.turn(260 * kMilli);
  BOOST_TEST(has(side.kinds(), NoticeKind::kSuspect));
  side.peers.receive(beat(1, 0, 22, 11), 300 * kMilli, false);
  side.turn(310 * kMilli);
  BOOST_TEST(has(side.kinds(), NoticeKind::kTrusted));
  for (lk::Nanos now = 350 * kMilli; now < 2300 * kMilli; now += 50 * kMilli) side.turn(now);
  BOOST_TEST((side.peers.state(1) == PeerState::kSuspect));
  side.turn(2300 * kMilli);
  BOOST_TEST((side.peers.state(1) == PeerState::kDead));
  // A dead node is not greeted any more; its word is refused, and a new incarnation is welcome.
  side.bus.sent.clear();
  side.turn(3 * kSecond);
  BOOST_TEST(side.bus.sent.empty());
  side.peers.receive(beat(1, 0, 22, 11), 3 * kSecond, false);
  BOOST_TEST((side.peers.state(1) == PeerState::kDead));
  BOOST_REQUIRE(side.bus.sent.size() == 1U);
  BOOST_TEST(side.bus.sent.front().kind == static_cast<std::uint16_t>(lk::PeerMessageKind::kRefused));
  side.kinds();
  side.peers.receive(beat(1, 0, 33, 0), 3 * kSecond, false);
  BOOST_TEST((side.peers.state(1) == PeerState::kAlive));
  side.peers.receive(beat(1, 0, 22, 11), 3 * kSecond, false);  // late, of the old one
  BOOST_TEST(side.peers.incarnation_of(1) == 33U);
}

BOOST_AUTO_TEST_CASE(a_new_incarnation_is_the_death_of_the_old_one) {
  Side side(0, 11);
  side.peers.receive(beat(1, 0, 22, 11), 0, false);
  side.kinds();
  side.peers.receive(beat(1, 0, 33, 0), kMilli, false);
  const auto kinds = side.kinds();
  BOOST_REQUIRE(kinds.size() == 2U);
  BOOST_TEST((kinds[0] == NoticeKind::kDead));
  BOOST_TEST((kinds[1] == NoticeKind::kAlive));
}

BOOST_AUTO_TEST_CASE(a_refusal_is_believed_only_of_the_present_incarnations) {
  Side side(0, 11);
  side.peers.receive(beat(1, 0, 22, 11), 0, false);
  const auto refusal = [](lk::Incarnation mine, lk::Incarnation theirs) {
    lk::PeerMessage m = beat(1, 0, mine, theirs);
    m.kind = static_cast<std::uint16_t>(lk::PeerMessageKind::kRefused);
    return m;
  };
  side.peers.receive(refusal(22, 10), 1, false);  // meant for an earlier life of this node
  side.peers.receive(refusal(21, 11), 1, false);  // by an earlier life of that one
  BOOST_TEST((side.peers.state(1) == PeerState::kAlive));
  side.peers.receive(refusal(22, 11), 1, false);
  BOOST_TEST((side.peers.state(1) == PeerState::kDead));
}

BOOST_AUTO_TEST_CASE(what_the_bus_does_not_take_travels_in_band) {
  Side side(0, 11);
  side.peers.receive(beat(1, 0, 22, 11), 0, false);
  side.turn(0);
  BOOST_TEST(side.drain_in_band() == 0U);
  side.bus.up = false;
  side.peers.send(1, RecordKind::kHealth, {1, 2, 3});
  side.turn(kMilli);
  BOOST_TEST(side.drain_in_band() == 1U);
  // A bus that swallows: the repeats try the lanes.
  side.bus.up = true;
  side.turn(30 * kMilli);
  BOOST_TEST(side.drain_in_band() == 0U);
  side.turn(60 * kMilli);
  BOOST_TEST(side.drain_in_band() == 1U);
}

BOOST_AUTO_TEST_CASE(a_node_that_its_lanes_hear_lives_without_a_control_channel) {
  Side side(0, 11);
  side.peers.receive(beat(1, 0, 22, 11), 0, false);
  for (lk::Nanos now = 0; now < 10 * kSecond; now += 50 * kMilli) {
    side.ears.heard = now;
    side.turn(now);
  }
  BOOST_TEST((side.peers.state(1) == PeerState::kAlive));
  const auto kinds = side.kinds();
  BOOST_TEST(has(kinds, NoticeKind::kBusLost));
  BOOST_TEST(!has(kinds, NoticeKind::kSuspect));
  side.peers.receive(beat(1, 0, 22, 11), 10 * kSecond, false);
  BOOST_TEST(has(side.kinds(), NoticeKind::kBusBack));
}

BOOST_AUTO_TEST_CASE(a_pause_of_this_thread_is_nobodys_death) {
  Side side(0, 11);
  side.peers.receive(beat(1, 0, 22, 11), 0, false);
  side.turn(0);
  side.turn(30 * kSecond);
  BOOST_TEST((side.peers.state(1) == PeerState::kAlive));
}

BOOST_AUTO_TEST_CASE(nonsense_is_dropped) {
  Side side(0, 11);
  lk::PeerMessage m = beat(1, 0, 22, 11);
  m.from = 99;
  side.peers.receive(m, 0, false);
  m = beat(1, 0, 22, 11);
  m.length = 3;
  side.peers.receive(m, 0, false);
  m = beat(1, 0, 22, 11);
  m.length = 2000;
  side.peers.receive(m, 0, false);
  m = beat(1, 1, 22, 11);
  side.peers.receive(m, 0, false);
  BOOST_TEST((side.peers.state(1) == PeerState::kUnseen));
}

BOOST_AUTO_TEST_SUITE_END()

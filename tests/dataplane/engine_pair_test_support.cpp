#include "tests/dataplane/engine_pair.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/random.hpp"
#include "tests/dataplane/reference.hpp"

namespace lk::test {
namespace {
constexpr Nanos kControlNs = 100 * kMicro;
constexpr std::byte kBlank{0xee};
}  // namespace

ClusterSpec rail_cluster(unsigned rails, bool tcp, GBps rate) {
  ClusterSpec c;
  const unsigned lanes = rails + (tcp ? 1 : 0);
  for (NodeId n = 0; n < 2; ++n) {
    c.nodes.push_back({"n" + std::to_string(n), n, 1, static_cast<std::uint16_t>(rails)});
    c.gpus.push_back({n, 0, n, 0});
    c.domains.push_back({{n}, 0});
    for (unsigned i = 0; i < lanes; ++i) {
      const LinkKind kind = i < rails ? LinkKind::kPort : LinkKind::kTcp;
      c.links.push_back({"link" + std::to_string(i), kind, n, 1, rate, kNoId16, kNoId16, ""});
    }
  }
  for (unsigned i = 0; i < lanes; ++i) {
    LaneSpec l;
    l.kind = i < rails ? LaneKind::kRdma : LaneKind::kTcp;
    l.rung = i < rails ? 0 : 1;
    l.a = 0;
    l.b = 1;
    l.near_hops = {{i, Direction::kForward}};
    l.far_hops = {{lanes + i, Direction::kBackward}};
    l.latency_ns = kLatency;
    l.nominal_GBps = rate;
    c.lanes.push_back(l);
  }
  return c;
}

Work::Work(const GroupSpec& g, OpNumber op, std::size_t elements, Collective what, bool same)
    : group(g), number(op), count(elements), kind(what), in_place(same) {
  Random random(op * 7919);
  for (Rank r = 0; r < g.members.size(); ++r) {
    std::vector<std::byte> bytes(count * 4);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(random.unit() * 2000 - 1000);
      std::memcpy(bytes.data() + i * 4, &value, 4);
    }
    given.push_back(bytes);
    scratch.emplace_back(bytes.size(), kBlank);
    out.push_back(in_place ? bytes : std::vector<std::byte>(bytes.size(), kBlank));
    in.push_back(std::move(bytes));
  }
}

OpRequest Work::request(Rank r) {
  OpRequest q;
  q.number = number;
  q.count = count;
  q.cookie = number * 100 + r;
  q.in = in_place ? out[r].data() : in[r].data();
  q.out = out[r].data();
  q.scratch = scratch[r].data();
  q.group = group.id;
  q.rank = r;
  q.root = root;
  q.membership = membership;
  q.kind = kind;
  q.redop = redop;
  q.dtype = DType::kF32;
  return q;
}

std::vector<std::byte> Work::expected() const {
  if (kind == Collective::kBroadcast) return given[root];
  std::vector<std::vector<std::size_t>> domains;
  for (const GroupDomain& d : group.domains) domains.emplace_back(d.ranks.begin(), d.ranks.end());
  std::vector<const std::byte*> inputs;
  for (const auto& g : given) inputs.push_back(g.data());
  std::vector<std::byte> sum(count * 4);
  reference::all_reduce(DType::kF32, redop, count, domains, inputs, sum.data());
  return sum;
}

bool Work::untouched(Rank r) const {
  const std::vector<std::byte> blank(count * 4, kBlank);
  return in[r] == given[r] && out[r] == (in_place ? given[r] : blank) && scratch[r] == blank;
}

EngineOptions EnginePair::small() {
  EngineOptions o;
  o.chunk_most_bytes = kChunk;
  o.transfers = 1024;
  return o;
}

EnginePair::EnginePair(ClusterSpec spec, const EngineOptions& options, std::uint16_t plan_of_n1)
    : cluster(std::move(spec)), net(cluster) {
  for (NodeId n = 0; n < 2; ++n) {
    slots.push_back(std::make_unique<SlotTable>(256, kChunk));
    wires.push_back(std::make_unique<ScriptWire>(net, n, slots[n]->memory()));
    engines.push_back(std::make_unique<Engine>(cluster, n, options, *wires[n], *slots[n], 0x1000U + n));
  }
  make_group(plan_of_n1);
}

void EnginePair::make_group(std::uint16_t plan_of_n1) {
  group.domains.resize(cluster.domains.size());
  for (EndpointId e = 0; e < cluster.gpus.size(); ++e) {
    GroupDomain& d = group.domains[cluster.gpus[e].domain];
    group.members.push_back(e);
    group.domain_of.push_back(cluster.gpus[e].domain);
    group.place_of.push_back(static_cast<std::uint16_t>(d.ranks.size()));
    d.ranks.push_back(e);
    group.columns = std::max<std::uint16_t>(group.columns, static_cast<std::uint16_t>(d.ranks.size()));
  }
  for (NodeId n = 0; n < 2; ++n) {
    plan[n].version = n == 1 ? plan_of_n1 : 1;
    plan[n].chunk_bytes = kChunk;
    plan[n].share.assign(group.columns * group.domains.size(), 0);
    for (std::size_t c = 0; c < group.columns; ++c)
      plan[n].share[c * group.domains.size()] = kShareUnit / group.columns;
    Command c;
    c.kind = CommandKind::kCreateGroup;
    c.group_spec = &group;
    c.plan_spec = &plan[n];
    command(n, c);
  }
}

void EnginePair::rates(const std::vector<GBps>& by_lane) {
  RouteTable t;
  t.version = tables_.size() + 1;
  for (LaneId l = 0; l < cluster.lanes.size(); ++l) {
    for (unsigned d = 0; d < 2; ++d) t.routes.push_back({by_lane[l], cluster.lanes[l].nominal_GBps, ~std::uint64_t{0}});
  }
  tables_.push_back(std::move(t));
  Command c;
  c.kind = CommandKind::kInstallRoutes;
  c.routes = &tables_.back();
  for (NodeId n = 0; n < 2; ++n) command(n, c);
}

void EnginePair::command(NodeId n, const Command& c) { BOOST_REQUIRE(engines[n]->commands().push(c)); }

void EnginePair::enter(Work& w, Rank r) {
  BOOST_REQUIRE(engines[cluster.gpus[group.members[r]].node]->requests().push(w.request(r)));
}

void EnginePair::enter(Work& w) {
  for (Rank r = 0; r < group.members.size(); ++r) enter(w, r);
}

void EnginePair::step() {
  while (!control_.empty() && control_.front().first <= now) {
    BOOST_REQUIRE(engines[control_.front().second.to]->signals_in().push(control_.front().second));
    control_.pop_front();
  }
  bool work = true;
  for (unsigned turn = 0; work; ++turn) {
    BOOST_REQUIRE_MESSAGE(turn < 10000, "the engines never come to rest");
    work = false;
    for (NodeId n = 0; n < 2; ++n) {
      if (plays[n]) work = engines[n]->poll(now) != 0 || work;
      Signal s;
      while (engines[n]->signals_out().pop(s)) {
        control_log.push_back(s);
        if (control_up) control_.emplace_back(now + kControlNs, s);
      }
      OpResult r;
      while (engines[n]->results().pop(r)) results.emplace_back(n, r);
      Event e;
      while (engines[n]->events().pop(e)) events.emplace_back(n, e);
    }
  }
}

Nanos EnginePair::next_time() const {
  Nanos next = control_.empty() ? kNever : control_.front().first;
  for (NodeId n = 0; n < 2; ++n) {
    if (plays[n]) next = std::min(next, engines[n]->next_time(now));
  }
  return next;
}

bool EnginePair::run_until(const std::function<bool()>& what, Nanos limit) {
  const Nanos end = now + limit;
  unsigned same = 0;
  while (true) {
    step();
    if (what()) return true;
    const Nanos next = next_time();
    if (next > end) break;
    same = next > now ? 0 : same + 1;
    BOOST_REQUIRE_MESSAGE(same < 1000, "time stands still");
    now = std::max(now, next);
  }
  now = end;
  return false;
}

void EnginePair::run_to(Nanos end) {
  static_cast<void>(run_until([] { return false; }, end - now));
}

bool EnginePair::run_until_done(const Work& w, Nanos limit) {
  return run_until([&] { return done(w); }, limit);
}

std::vector<OpResult> EnginePair::results_of(OpNumber number, Rank r) const {
  std::vector<OpResult> some;
  for (const auto& [node, result] : results) {
    if (result.number == number && result.rank == r) some.push_back(result);
  }
  return some;
}

bool EnginePair::done(const Work& w) const {
  for (Rank r = 0; r < group.members.size(); ++r) {
    if (results_of(w.number, r).empty()) return false;
  }
  return true;
}

void EnginePair::ends_well(const Work& w, Nanos limit) {
  BOOST_TEST(run_until_done(w, limit));
  check(w);
}

void EnginePair::plays_well(Work& w, Nanos limit) {
  enter(w);
  ends_well(w, limit);
}

void EnginePair::plays_well(Work& a, Work& b, Nanos limit) {
  enter(a);
  enter(b);
  BOOST_TEST(run_until([&] { return done(a) && done(b); }, limit));
  check(a);
  check(b);
}

void EnginePair::heal() {
  net.fate = nullptr;
  net.release_all(now);
}

void EnginePair::check(const Work& w) const {
  const std::vector<std::byte> expected = w.expected();
  for (Rank r = 0; r < group.members.size(); ++r) {
    BOOST_TEST_CONTEXT("op " << w.number << " rank " << r) {
      const std::vector<OpResult> all = results_of(w.number, r);
      BOOST_TEST_REQUIRE(all.size() == 1U);
      BOOST_TEST(name_of(all[0].status) == name_of(Status::kOk));
      BOOST_TEST(all[0].chunks_done == all[0].chunks_total);
      BOOST_TEST(all[0].chunks_total == (w.count * 4 + kChunk - 1) / kChunk);
      BOOST_TEST((w.out[r] == expected), "wrong bits");
      BOOST_TEST((w.in[r] == w.given[r]), "what it gave was changed");
    }
  }
}

LaneSnapshot EnginePair::lane(NodeId n, LaneId l) {
  Snapshot s;
  s.lanes.reserve(cluster.lanes.size() * 2);
  engines[n]->fill_snapshot(s, now);
  const auto found = std::find_if(s.lanes.begin(), s.lanes.end(), [l](const LaneSnapshot& x) { return x.lane == l; });
  BOOST_REQUIRE((found != s.lanes.end()));
  return *found;
}

std::vector<Event> EnginePair::events_of(NodeId n, EventKind kind) const {
  std::vector<Event> some;
  for (const auto& [node, e] : events) {
    if (node == n && e.kind == kind) some.push_back(e);
  }
  return some;
}

bool EnginePair::is_lane_event(NodeId n, EventKind kind, LaneId l) const {
  const std::vector<Event> all = events_of(n, kind);
  return std::any_of(all.begin(), all.end(), [l](const Event& e) { return e.lane == l; });
}

void EnginePair::deliver(const Signal& s) { BOOST_REQUIRE(engines[s.to]->signals_in().push(s)); }

}  // namespace lk::test

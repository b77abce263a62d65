#include "agent/sim_run.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {

SimRun::SimRun(const ClusterSpec& cluster, const SimJob& job) : job_(job), sim_(cluster, job.options) {
  report_.started.assign(job.ops.size(), -1);
  report_.finished.assign(job.ops.size(), -1);
  report_.lane_bytes.assign(cluster.lanes.size() * 2, 0);
}

SimRun::~SimRun() = default;

void SimRun::fail(const std::string& why) {
  if (report_.why.empty()) report_.why = fmt::format("at {:.6f} s: {}", static_cast<double>(sim_.now()) * 1e-9, why);
}

bool SimRun::make_group() {
  std::vector<EndpointId> members;
  for (EndpointId e = 0; e < sim_.cluster().gpus.size(); ++e) members.push_back(e);
  NodeId where = 0;
  const Nanos begin = 10 * kMilli;  // the control planes have met
  while (sim_.step(begin, where)) {
  }
  group_ = sim_.node(0).plane->create_group("sim", members, GroupOptions{}, sim_.now());
  sim_.wake_control(0, sim_.now());
  const auto ready = [&] {
    for (NodeId n = 0; n < sim_.size(); ++n) {
      const GroupRecord* g = sim_.node(n).plane->group(group_);
      if (g == nullptr || g->state != GroupState::kReady) return false;
    }
    return true;
  };
  while (!ready()) {
    if (!sim_.step(begin + 5 * kSecond, where)) return false;
  }
  spec_ = sim_.node(0).plane->group(group_)->spec;
  for (unsigned r = 0; r < spec_.members.size(); ++r) {
    ranks_.push_back({spec_.members[r]});
    first_rank_.push_back(r);
  }
  return true;
}

std::size_t SimRun::alive() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const RankState& r) { return !r.gone; }));
}

// The group as a node sees it whose ranks go on.
const GroupRecord* SimRun::record() const {
  const GroupRecord* best = nullptr;
  for (NodeId n = 0; n < sim_.size(); ++n) {
    const SimNode& node = const_cast<SimRun*>(this)->sim_.node(n);
    if (node.killed) continue;
    const GroupRecord* g = node.plane->group(group_);
    if (g != nullptr && g->live() && (best == nullptr || g->spec.membership > best->spec.membership)) best = g;
  }
  return best;
}

// A group that ended takes them too: they come back with its status.
bool SimRun::takes_ops(NodeId n) {
  const GroupRecord* g = sim_.node(n).plane->group(group_);
  if (g == nullptr || g->state == GroupState::kEnded) return true;
  return g->state == GroupState::kReady && g->spec.membership == spec_.membership;
}

void SimRun::release_faults() {
  released_ = true;
  report_.fault_at = sim_.now();
  FaultRows rows = job_.faults;
  for (auto* list : {&rows.wire, &rows.control}) {
    for (FaultRow& row : *list) {
      row.at_ns += sim_.now();
      if (row.until_ns != kNever) row.until_ns += sim_.now();
    }
  }
  for (const FaultRow& row : rows.wire) {
    const bool breaks = row.kind == FaultKind::kCut || row.kind == FaultKind::kStall || row.kind == FaultKind::kFlap;
    if (breaks && row.target != FaultTarget::kNode) fault_begins_.push_back(row.at_ns);
  }
  std::sort(fault_begins_.begin(), fault_begins_.end());
  fault_begins_.erase(std::unique(fault_begins_.begin(), fault_begins_.end()), fault_begins_.end());
  fault_answered_.assign(fault_begins_.size(), false);
  sim_.faults(rows);
}

void SimRun::enter(RankState& r, Rank rank) {
  const unsigned i = r.next++;
  const PlannedOp& op = job_.ops[i];
  if (report_.started[i] < 0) {
    report_.started[i] = sim_.now();
    if (i + 1 >= job_.fault_op && !released_) release_faults();
    if (i + 1 == job_.mark_op) take_snapshots(-1);
  }
  LiveOp& live = live_[{spec_.membership, i}];
  if (live.memory == nullptr)
    live.memory = std::make_unique<OpMemory>(op, job_.seed * 131 + i, spec_, job_.options.engine.payload);
  OpRequest q;
  q.number = spec_.first_op + (i - base_);
  q.count = op.count;
  q.cookie = i;
  q.session = q.membership = spec_.membership;
  q.group = group_;
  q.rank = rank;
  q.root = static_cast<Rank>(op.root % spec_.members.size());
  q.kind = op.kind;
  q.redop = op.redop;
  q.dtype = op.dtype;
  q.in = live.memory->in(rank);
  q.out = live.memory->out(rank);
  q.scratch = live.memory->scratch(rank);
  sim_.request(sim_.cluster().gpus[spec_.members[rank]].node, q);
}

// Adds (or takes away) what every lane has carried up to now. The engines fill their snapshots themselves, on request.
void SimRun::take_snapshots(int sign) {
  for (NodeId n = 0; n < sim_.size(); ++n) {
    if (sim_.node(n).killed) continue;
    Snapshot snapshot;
    snapshot.lanes.reserve(sim_.cluster().lanes.size() * 2);
    sim_.node(n).engine->fill_snapshot(snapshot, sim_.now());
    for (const LaneSnapshot& l : snapshot.lanes) {
      report_.lane_bytes[std::size_t{l.lane} * 2 + l.direction] += sign > 0 ? l.sent_bytes : Bytes{0} - l.sent_bytes;
    }
  }
}

// Every rank enters its next ops, as far ahead as the depth and the ops' gaps allow.
void SimRun::enter_ready() {
  for (Rank rank = 0; rank < first_rank_.size(); ++rank) {
    RankState& r = ranks_[first_rank_[rank]];
    const NodeId node = sim_.cluster().gpus[r.endpoint].node;
    if (r.gone || r.failing || sim_.node(node).killed || !takes_ops(node)) continue;
    while (r.next < job_.ops.size() && r.next < r.returned + job_.depth) {
      const Nanos gap = job_.ops[r.next].gap_ns;
      if (gap > 0 && r.next > 0) {
        const Nanos before = report_.started[r.next - 1];
        if (sim_.now() < before + gap) {
          sim_.wake(node, before + gap);
          break;
        }
      }
      enter(r, rank);
    }
  }
}

void SimRun::take_results(NodeId n) {
  OpResult result;
  while (sim_.node(n).engine->results().pop(result)) {
    sim_.node(n).plane->note_result(result);
    sim_.wake_control(n, sim_.now());
    take_result(result);
  }
}

void SimRun::take_result(const OpResult& result) {
  const bool over = result.membership != spec_.membership;  // a loss came between; the bits are right all the same
  const auto i = static_cast<unsigned>(result.cookie);
  if (result.status != Status::kOk) {
    if (!over) take_failure(result, i);
    return;
  }
  const auto it = live_.find({result.membership, i});
  if (it == live_.end() || !it->second.got.insert(result.rank).second) {
    ++report_.lost_ops;
    fail(fmt::format("op {}: rank {} got a second result", i, result.rank));
    return;
  }
  LiveOp& live = it->second;
  const std::uint64_t wrong = live.memory->wrong_bits(result.rank);
  report_.wrong_bits += wrong;
  if (wrong != 0) fail(fmt::format("op {}: rank {} has {} wrong bits", i, result.rank, wrong));
  if (over) return;
  report_.payload_bytes += job_.ops[i].count * size_of(job_.ops[i].dtype);
  ++ranks_[first_rank_[result.rank]].returned;
  if (live.got.size() == spec_.members.size()) {
    report_.finished[i] = sim_.now();
    ++report_.ops;
    live_.erase(it);
  }
}

void SimRun::take_failure(const OpResult& result, unsigned i) {
  ++report_.ended_ops;
  RankState& r = ranks_[first_rank_[result.rank]];
  const bool lost_node = result.status == Status::kNodeLost || result.status == Status::kPartitioned;
  if (!lost_node && result.status != job_.lost) {
    ++report_.lost_ops;
    fail(fmt::format("op {} ended for rank {} with {} ({} of {} chunks)", i, result.rank, name_of(result.status),
                     result.chunks_done, result.chunks_total));
  }
  if (result.status == Status::kPartitioned) r.gone = partitioned_ = true;
  r.failing = true;
}

// The survivors have agreed: the ranks that are left go on from the op that they say, with fresh copies of its inputs.
void SimRun::follow_membership() {
  // The side of a partition that may not go on: its ranks have their answer.
  for (RankState& r : ranks_) {
    SimNode& node = sim_.node(sim_.cluster().gpus[r.endpoint].node);
    const GroupRecord* own = node.plane->group(group_);
    if (r.failing && own != nullptr && own->state == GroupState::kEnded) r.gone = true;
  }
  const GroupRecord* g = record();
  if (g == nullptr || g->spec.membership == spec_.membership) return;
  ++report_.shrinks;
  const unsigned resume = base_ + static_cast<unsigned>(g->spec.first_op - spec_.first_op);
  for (RankState& r : ranks_) r.gone = true;
  first_rank_.clear();
  for (const EndpointId e : g->spec.members) {
    for (unsigned i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].endpoint == e) first_rank_.push_back(i);
    }
  }
  // What comes before that op is over for all who go on; the lost ranks' results do not come any more.
  for (unsigned i = base_; i < resume; ++i) {
    if (report_.finished[i] >= 0) continue;
    report_.finished[i] = sim_.now();
    ++report_.ops;
  }
  spec_ = g->spec;
  base_ = resume;
  for (const unsigned i : first_rank_) {
    ranks_[i].gone = ranks_[i].failing = false;
    ranks_[i].next = ranks_[i].returned = resume;
  }
  for (unsigned i = resume; i < job_.ops.size(); ++i) {
    if (report_.finished[i] >= 0) --report_.ops;
    report_.finished[i] = -1;
  }
}

void SimRun::take_log(std::string* log) {
  for (const auto& [node, e] : sim_.take_log()) {
    ++report_.events;
    if (e.kind == EventKind::kChunkResent) {
      // The youngest fault that has begun: this is what it cost, if it is the first chunk that moved after it.
      for (std::size_t f = fault_begins_.size(); f-- > 0;) {
        if (fault_begins_[f] > e.at) continue;
        if (!fault_answered_[f]) report_.failovers.push_back(e.at - fault_begins_[f]);
        fault_answered_[f] = true;
        break;
      }
    }
    if (log == nullptr || e.kind == EventKind::kSnapshotReady) continue;
    const ClusterSpec& c = sim_.cluster();
    *log += fmt::format("{} n{} kind={} lane={} dir={} cause=\"{}\" link={} group={} op={} status={} value={}\n", e.at,
                        node, static_cast<int>(e.kind), e.lane == kNoId ? "-" : c.lanes[e.lane].name.c_str(),
                        static_cast<int>(e.direction), name_of(e.cause),
                        e.link == kNoId ? "-" : c.links[e.link].name.c_str(), e.group, e.op, name_of(e.status),
                        e.pointer == nullptr ? e.value : 0);
  }
}

bool SimRun::done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const RankState& r) {
    return r.gone || const_cast<SimRun*>(this)->sim_.node(sim_.cluster().gpus[r.endpoint].node).killed ||
           r.returned >= job_.ops.size();
  });
}

SimReport SimRun::run(std::string* log) {
  if (!make_group()) {
    fail("the group was not made");
    return report_;
  }
  if (job_.fault_op == 0) release_faults();
  // Nobody hangs: an op ends at its deadline, a loss is agreed on soon after.
  Nanos moved = sim_.now();
  const Nanos patience = job_.options.engine.op_deadline_ns + 10 * kSecond;
  enter_ready();
  while (!done()) {
    NodeId where = 0;
    const std::uint64_t before = report_.payload_bytes + report_.ended_ops + report_.ops;
    if (!sim_.step(moved + patience, where)) break;
    take_results(where);
    take_log(log);
    follow_membership();
    enter_ready();
    if (report_.payload_bytes + report_.ended_ops + report_.ops != before) moved = sim_.now();
  }
  for (RankState& r : ranks_) {
    const bool killed = sim_.node(sim_.cluster().gpus[r.endpoint].node).killed;
    if (!r.gone && !killed && r.returned < job_.ops.size())
      report_.hung_ops += static_cast<unsigned>(job_.ops.size()) - r.returned;
  }
  if (report_.hung_ops != 0) fail(fmt::format("{} ops did not end", report_.hung_ops));
  if (alive() == 0) fail("no rank went on");
  report_.ended_at = sim_.now();
  if (job_.mark_op != 0) take_snapshots(+1);
  report_.ok = report_.why.empty();
  return report_;
}

}  // namespace lk

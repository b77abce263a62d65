#include "agent/lab_run.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

namespace lk {
namespace {

// No poller is at home there: results come back to us alone.
constexpr std::uint32_t kNoHome = 0xffff0000U;
constexpr Nanos kWatchEvery = 100 * kMilli;

bool is_death(const FaultRow& r) {
  return r.target == FaultTarget::kNode && r.kind == FaultKind::kCut && r.until_ns == kNever;
}

}  // namespace

std::vector<PlannedOp> gradient_ops(unsigned ops, Nanos gap_ns) {
  std::vector<PlannedOp> out(ops);
  for (unsigned i = 0; i < ops; ++i) {
    PlannedOp& op = out[i];
    op.gap_ns = gap_ns;
    op.in_place = i % 3 == 1;
    op.redop = i % 2 == 1 ? RedOp::kAvg : RedOp::kSum;
    op.dtype = i % 8 == 3 ? DType::kF16 : i % 8 == 6 ? DType::kBF16 : DType::kF32;
    if (i % 8 == 5) op.kind = Collective::kBroadcast;
    op.root = static_cast<Rank>(i / 8);
  }
  return out;
}

LabRun::LabRun(Lab& lab, LabGradients& gradients, LabJob job)
    : lab_(lab), gradients_(gradients), job_(std::move(job)), end_(static_cast<unsigned>(job_.ops.size())) {
  started_.assign(end_, -1);
  finished_.assign(end_, false);
  report_.lane_bytes.assign(lab.cluster().lanes.size() * 2, 0);
  for (PlannedOp& op : job_.ops) op.count = gradients.bytes(op.dtype) / size_of(op.dtype);
  if (job_.members.empty()) {
    for (EndpointId e = 0; e < lab.cluster().gpus.size(); ++e) job_.members.push_back(e);
  }
}

LabRun::~LabRun() { lab_.stop(); }

void LabRun::fail(const std::string& why) {
  if (!report_.why.empty()) return;
  report_.why = fmt::format("after {:.3f} s: {}", static_cast<double>(lab_.now() - began_) * 1e-9, why);
  for (NodeId n = 0; n < lab_.cluster().nodes.size(); ++n) {
    for (const auto& entry : std::as_const(lab_).node(n).plane().events())
      report_.journal.push_back(fmt::format("{:.6f} {} {}", entry.value("at_ns", 0.0) * 1e-9, entry.value("node", ""),
                                            entry.value("text", "")));
  }
}

void LabRun::turn() {
  lab_.turn();
  kill_due();
  OpResult result;
  for (NodeId n = 0; n < lab_.cluster().nodes.size(); ++n) {
    if (!lab_.alive(n)) continue;
    while (lab_.node(n).sessions().told().pop(result)) {
      lab_.node(n).plane().note_result(result);
      take_result(result);
    }
  }
}

// Until there is news, or the control planes or we have something to do.
void LabRun::wait() {
  Nanos until = std::min(lab_.next_time(), next_entry_);
  for (const auto& [at, node] : deaths_) until = std::min(until, at);
  const Nanos span = std::clamp<Nanos>(until - lab_.now(), 0, kWatchEvery);
  const timespec limit{0, static_cast<long>(span)};
  pollfd bell{lab_.bell(), POLLIN, 0};
  if (::ppoll(&bell, 1, &limit, nullptr) > 0) lab_.quiet_bell();
}

bool LabRun::make_group() {
  GroupOptions options;
  options.owner = "lab";
  options.chunk_most_bytes = lab_.chunk_most_bytes();
  const NodeId first = node_of(job_.members.front());
  group_ = lab_.node(first).plane().create_group("lab", job_.members, options, lab_.now());
  const auto ready = [this] {
    return std::all_of(job_.members.begin(), job_.members.end(), [this](EndpointId e) {
      const GroupRecord* g = lab_.node(node_of(e)).plane().group(group_);
      return g != nullptr && g->state == GroupState::kReady;
    });
  };
  while (!ready()) {
    turn();
    if (lab_.now() - began_ > job_.patience_ns) return false;
    wait();
  }
  spec_ = lab_.node(first).plane().group(group_)->spec;
  for (unsigned r = 0; r < spec_.members.size(); ++r) {
    ranks_.push_back({.endpoint = spec_.members[r]});
    first_rank_.push_back(r);
  }
  return true;
}

// The group as a node sees it whose ranks go on.
const GroupRecord* LabRun::record() const {
  const GroupRecord* best = nullptr;
  for (NodeId n = 0; n < lab_.cluster().nodes.size(); ++n) {
    const GroupRecord* g = lab_.alive(n) ? std::as_const(lab_).node(n).plane().group(group_) : nullptr;
    if (g != nullptr && g->live() && (best == nullptr || g->spec.membership > best->spec.membership)) best = g;
  }
  return best;
}

void LabRun::release_faults() {
  released_ = true;
  FaultRows rows = std::move(job_.faults);
  const Nanos now = lab_.now();
  there_at_ = now;
  for (auto* list : {&rows.wire, &rows.control}) {
    for (FaultRow& row : *list) {
      row.at_ns += now;
      if (row.until_ns != kNever) row.until_ns += now;
      there_at_ = std::max(there_at_, row.at_ns);
    }
  }
  for (const FaultRow& row : rows.wire) {
    if (is_death(row)) deaths_.emplace_back(row.at_ns, static_cast<NodeId>(row.id));
  }
  std::erase_if(rows.wire, is_death);
  lab_.apply(rows);
}

void LabRun::kill_due() {
  const Nanos now = lab_.now();
  std::erase_if(deaths_, [&](const auto& death) {
    if (death.first > now) return false;
    lab_.kill(death.second);
    return true;
  });
}

std::unique_ptr<LabOpMemory> LabRun::free_memory() {
  if (free_.empty()) return std::make_unique<LabOpMemory>();
  std::unique_ptr<LabOpMemory> memory = std::move(free_.back());
  free_.pop_back();
  return memory;
}

void LabRun::enter(RankState& r, Rank rank) {
  const unsigned i = r.next++;
  const PlannedOp& op = job_.ops[i];
  LiveOp& live = live_[{spec_.membership, i}];
  if (live.memory == nullptr) {
    live.memory = free_memory();
    live.memory->prepare(op, i, spec_, gradients_);
  }
  if (started_[i] < 0) {
    started_[i] = lab_.now();
    if (i + 1 >= job_.fault_op && !released_) release_faults();
  }
  OpRequest q;
  q.number = spec_.first_op + (i - base_);
  q.count = op.count;
  q.cookie = i;
  q.session = kNoHome | spec_.membership;
  q.membership = spec_.membership;
  q.group = group_;
  q.rank = rank;
  q.root = static_cast<Rank>(op.root % spec_.members.size());
  q.kind = op.kind;
  q.redop = op.redop;
  q.dtype = op.dtype;
  q.in = live.memory->in(rank);
  q.out = live.memory->out(rank);
  q.scratch = live.memory->scratch(rank);
  lab_.enter(node_of(spec_.members[rank]), q);
}

// Every rank enters its next ops, as far ahead as the depth and the ops' gaps allow.
void LabRun::enter_ready() {
  const Nanos now = lab_.now();
  next_entry_ = kNever;
  if (now - began_ > job_.box_ns) close_entry();
  for (Rank rank = 0; rank < first_rank_.size(); ++rank) {
    RankState& r = ranks_[first_rank_[rank]];
    if (r.gone || r.failing || !lab_.alive(node_of(r.endpoint))) continue;
    while (r.next < end_ && r.next < r.returned + job_.depth) {
      const Nanos due = r.next == 0 ? 0 : started_[r.next - 1] + job_.ops[r.next].gap_ns;
      if (started_[r.next] < 0 && now < due) {
        next_entry_ = std::min(next_entry_, due);
        break;
      }
      enter(r, rank);
    }
  }
}

// The time is up: what a rank has entered the others enter too, and then it is over.
void LabRun::close_entry() {
  unsigned entered = job_.least_ops;
  for (const RankState& r : ranks_) entered = std::max(entered, r.next);
  end_ = std::min(end_, entered);
}

void LabRun::take_result(const OpResult& result) {
  moved_ = lab_.now();
  const bool over = result.membership != spec_.membership;  // a loss came between; the bits are right all the same
  const auto i = static_cast<unsigned>(result.cookie);
  if (result.status != Status::kOk) {
    if (!over) take_failure(result, i);
    return;
  }
  const auto it = live_.find({result.membership, i});
  if (it == live_.end() || !it->second.got.insert(result.rank).second) {
    ++report_.lost_ops;
    fail(fmt::format("op {}: rank {} got a second result", i + 1, result.rank));
    return;
  }
  LiveOp& live = it->second;
  const std::uint64_t wrong = live.memory->wrong_bits(result.rank);
  report_.wrong_bits += wrong;
  if (wrong != 0) fail(fmt::format("op {}: rank {} has {} wrong bits", i + 1, result.rank, wrong));
  if (over) return;
  report_.payload_bytes += job_.ops[i].count * size_of(job_.ops[i].dtype);
  ++ranks_[first_rank_[result.rank]].returned;
  if (live.got.size() < spec_.members.size()) return;
  finished_[i] = true;
  ++report_.ops;
  free_.push_back(std::move(live.memory));
  live_.erase(it);
}

void LabRun::take_failure(const OpResult& result, unsigned i) {
  ++report_.ended_ops;
  ranks_[first_rank_[result.rank]].failing = true;
  if (result.status == job_.lost) return;
  ++report_.lost_ops;
  fail(fmt::format("op {} ended for rank {} with {} ({} of {} chunks)", i + 1, result.rank, name_of(result.status),
                   result.chunks_done, result.chunks_total));
}

// The survivors have agreed: the ranks that are left go on from the op that they say, with its inputs as they were.
void LabRun::follow_membership() {
  const GroupRecord* g = record();
  if (g == nullptr || g->spec.membership == spec_.membership) return;
  moved_ = lab_.now();
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
    if (!finished_[i]) ++report_.ops;
    finished_[i] = true;
  }
  spec_ = g->spec;
  base_ = resume;
  for (const unsigned i : first_rank_) ranks_[i] = {.endpoint = ranks_[i].endpoint, .next = resume, .returned = resume};
  for (unsigned i = resume; i < finished_.size(); ++i) {
    if (finished_[i]) --report_.ops;
    finished_[i] = false;
  }
}

// Counting begins with the first op that the faults were there for from its start.
bool LabRun::faults_are_there() const {
  return released_ && deaths_.empty() && lab_.now() >= there_at_ &&
         (job_.fault_op == 0 || finished_[job_.fault_op - 1]);
}

// Adds (or takes away) what every lane has carried up to now.
void LabRun::count_lanes(int sign) {
  counted_ = true;
  if (!lab_.refresh_snapshots(job_.patience_ns)) return fail("an engine gave no account of itself");
  for (NodeId n = 0; n < lab_.cluster().nodes.size(); ++n) {
    if (!lab_.alive(n)) continue;
    for (const LaneSnapshot& l : lab_.node(n).plane().snapshot()->lanes) {
      Bytes& bytes = report_.lane_bytes[std::size_t{l.lane} * 2 + l.direction];
      bytes += sign > 0 ? l.sent_bytes : Bytes{0} - l.sent_bytes;
    }
  }
}

bool LabRun::done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const RankState& r) {
    return r.gone || !lab_.alive(node_of(r.endpoint)) || r.returned >= end_;
  });
}

void LabRun::count_hung() {
  for (const RankState& r : ranks_) {
    if (!r.gone && lab_.alive(node_of(r.endpoint)) && r.returned < end_) report_.hung_ops += end_ - r.returned;
  }
  if (report_.hung_ops != 0) fail(fmt::format("{} ops did not end", report_.hung_ops));
}

void LabRun::work() {
  turn();
  follow_membership();
  enter_ready();
  if (!counted_ && faults_are_there()) count_lanes(-1);
}

LabReport LabRun::run(const std::function<void(const LabReport&)>& watch) {
  began_ = moved_ = lab_.now();
  Nanos watched = began_;
  if (!make_group()) {
    fail("the group was not made");
  } else {
    began_ = moved_ = lab_.now();
    work();
    while (!done() && lab_.now() - moved_ < job_.patience_ns) {
      wait();
      work();
      report_.took_ns = lab_.now() - began_;
      if (watch && lab_.now() - watched >= kWatchEvery) {
        watch(report_);
        watched = lab_.now();
      }
    }
    count_hung();
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.gone; })) fail("no rank went on");
    if (counted_) count_lanes(+1);
  }
  report_.took_ns = lab_.now() - began_;
  lab_.stop();
  report_.ok = report_.why.empty();
  return report_;
}

}  // namespace lk

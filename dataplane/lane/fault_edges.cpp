// Which faults are there now: rows come in, begin, end and flap; flags of lane sides and rates of links follow, and
// only then. Everything else is in fault.cpp.
#include <algorithm>

#include "dataplane/lane/fault.hpp"

namespace lk {

namespace {
constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15ULL;

std::uint64_t seed_of(const FaultRow& row) noexcept {
  return Random(row.seed ^ (std::uint64_t{row.fault} << 8 | static_cast<std::uint64_t>(row.kind)) * kMix).next();
}

double either(double p, double q) noexcept { return 1 - (1 - p) * (1 - q); }
}  // namespace

// For each direction of each link: the lane sides of this node that use it.
void FaultWire::map_links() {
  touches_.resize(cluster_.links.size() * 2);
  const auto add = [&](const std::vector<Hop>& hops, Direction travel, std::uint32_t side, bool far) {
    for (const Hop& h : hops) {
      const Direction d = travel == Direction::kForward ? h.direction : opposite(h.direction);
      auto& users = touches_[std::size_t{h.link} * 2 + static_cast<std::size_t>(d)];
      if (users.empty() || users.back().side != side) users.push_back({side, far});
    }
  };
  for (LaneId id = 0; id < cluster_.lanes.size(); ++id) {
    const LaneSpec& lane = cluster_.lanes[id];
    const bool near_here = cluster_.gpus[lane.a].node == node_;
    const bool far_here = cluster_.gpus[lane.b].node == node_;
    if (!near_here && !far_here) continue;
    for (const Direction d : {Direction::kForward, Direction::kBackward}) {
      const std::uint32_t side = side_of(id, d);
      Side& s = sides_[side];
      s.sends = d == Direction::kForward ? near_here : far_here;
      s.receives = d == Direction::kForward ? far_here : near_here;
      own_sides_.push_back(side);
      if (near_here) add(lane.near_hops, d, side, false);
      if (far_here) add(lane.far_hops, d, side, false);
      if (s.sends && !near_here) add(lane.near_hops, d, side, true);
      if (s.sends && !far_here) add(lane.far_hops, d, side, true);
    }
  }
}

void FaultWire::advance(Nanos now) noexcept {
  constexpr unsigned kMost = 64;  // a short flap over a long sleep
  for (unsigned i = 0; next_edge_ <= now; ++i) recompute(i < kMost ? next_edge_ : now);
  if (!incoming_.empty() && take_rows(now)) recompute(now);
}

bool FaultWire::take_rows(Nanos now) noexcept {
  bool any = false;
  FaultRow row;
  while (incoming_.pop(row)) {
    any = true;
    if (row.kind == FaultKind::kClear) {
      std::erase_if(rows_, [&](const FaultRow& r) { return row.fault == 0 || r.fault == row.fault; });
      continue;
    }
    if (row.target == FaultTarget::kControl || row.until_ns <= now) continue;
    if (row.kind == FaultKind::kLate && copies_ == nullptr && options_.late_copies > 0) {
      const Bytes size = options_.payload ? landing_.stride : sizeof(ChunkHeader);
      copies_ = std::make_unique_for_overwrite<std::byte[]>(size * options_.late_copies);
      for (unsigned i = options_.late_copies; i-- > 0;) free_copies_.push_back(i);
    }
    rows_.push_back(row);
  }
  return any;
}

void FaultWire::recompute(Nanos t) noexcept {
  ++counters_.edges;
  std::erase_if(rows_, [t](const FaultRow& r) { return r.until_ns <= t; });
  std::swap(effects_, previous_);
  effects_.clear();
  for (const Effect& e : previous_) {
    sides_[e.side].previous = sides_[e.side].effect;
    sides_[e.side].effect = kNoId;
  }
  for (const std::uint32_t i : touched_) {
    LinkSide& l = link_sides_[i];
    l.fraction = 1;
    l.lost = 0;
    l.loud_cut = false;
  }
  next_edge_ = kNever;
  for (const FaultRow& row : rows_) {
    next_edge_ = std::min(next_edge_, next_edge(row, t));
    if (is_active(row, t)) apply(row);
  }
  settle_links(t);
  settle_sides();
}

void FaultWire::apply(const FaultRow& row) noexcept {
  switch (row.target) {
    case FaultTarget::kLink:
      for (std::uint32_t d = 0; d < 2; ++d) {
        if ((row.directions >> d & 1U) == 0) continue;
        const std::uint32_t link_side = row.id * 2 + d;
        touch_link(row, link_side);
        if (row.kind == FaultKind::kDegrade || row.kind == FaultKind::kPlane) continue;
        for (const Touch& t : touches_[link_side]) merge(t.side, row, t.far);
      }
      break;
    case FaultTarget::kLane:
      for (std::uint32_t d = 0; d < 2; ++d) {
        const std::uint32_t side = row.id * 2 + d;
        const bool ours = sides_[side].sends || sides_[side].receives;
        if ((row.directions >> d & 1U) != 0 && ours) merge(side, row, false);
      }
      break;
    case FaultTarget::kNode:
      for (const std::uint32_t side : own_sides_) {
        const LaneSpec& lane = cluster_.lanes[side / 2];
        const bool near = cluster_.gpus[lane.a].node == row.id;
        if (row.id == node_) {
          merge(side, row, false);
        } else if ((near || cluster_.gpus[lane.b].node == row.id) && sides_[side].sends) {
          merge(side, row, true);
        }
      }
      break;
    case FaultTarget::kControl:
      break;
  }
}

void FaultWire::merge(std::uint32_t side, const FaultRow& row, bool far) noexcept {
  Side& s = sides_[side];
  if (s.effect == kNoId) {
    s.effect = static_cast<std::uint32_t>(effects_.size());
    effects_.emplace_back();
    effects_.back().side = side;
  }
  Effect& e = effects_[s.effect];
  e.seed ^= seed_of(row);
  switch (row.kind) {
    case FaultKind::kCut:
    case FaultKind::kFlap:
      // What happens at the far end, or to a whole node, is not seen here: it is silence.
      (far || row.target == FaultTarget::kNode ? e.stall : e.cut) = true;
      break;
    case FaultKind::kStall:
      e.stall = true;
      break;
    case FaultKind::kDelay:
      e.delay += row.delay_ns;
      break;
    case FaultKind::kDrop:
      e.drop = far ? e.drop : either(e.drop, row.rate);
      break;
    case FaultKind::kCorrupt:
      e.corrupt = far ? e.corrupt : either(e.corrupt, row.rate);
      break;
    case FaultKind::kDuplicate:
      e.duplicate = far ? e.duplicate : either(e.duplicate, row.rate);
      break;
    case FaultKind::kLate:
      e.late = far ? e.late : either(e.late, row.rate);
      e.late_by = std::max(e.late_by, row.delay_ns);
      break;
    case FaultKind::kBad:
      e.bad = far ? e.bad : either(e.bad, row.rate);
      break;
    case FaultKind::kDegrade:
    case FaultKind::kPlane:
    case FaultKind::kClear:
      break;
  }
}

void FaultWire::touch_link(const FaultRow& row, std::uint32_t link_side) noexcept {
  if (cluster_.links[link_side / 2].node != node_) return;
  LinkSide& l = link_sides_[link_side];
  if (!l.touched) {
    l.touched = true;
    touched_.push_back(link_side);
  }
  if (row.kind == FaultKind::kDegrade) l.fraction *= row.rate;
  if (row.kind == FaultKind::kPlane) l.lost += row.rate;
  if ((row.kind == FaultKind::kCut || row.kind == FaultKind::kFlap) && row.silent == 0) l.loud_cut = true;
}

// Rates of this node's links, and port events where a link went or came back in both directions.
void FaultWire::settle_links(Nanos t) noexcept {
  for (const std::uint32_t i : touched_) {
    LinkSide& l = link_sides_[i];
    const double fraction = l.fraction * std::max(0.0, 1 - l.lost);
    if (fraction != l.set && rates_ != nullptr) rates_->set_rate(i / 2, static_cast<Direction>(i % 2), fraction, t);
    l.set = fraction;
    const LinkId link = i / 2;
    const LinkKind kind = cluster_.links[link].kind;
    if (kind != LinkKind::kPort && kind != LinkKind::kNvlink) continue;
    const bool down = link_sides_[link * 2].loud_cut && link_sides_[link * 2 + 1].loud_cut;
    if (down == link_down_[link]) continue;
    link_down_[link] = down;
    Completion c;
    c.kind = down ? CompletionKind::kPortDown : CompletionKind::kPortUp;
    c.link = link;
    ready_.push_back(c);
  }
  std::erase_if(touched_, [this](std::uint32_t i) {
    LinkSide& l = link_sides_[i];
    l.touched = l.set != 1 || l.loud_cut;
    return !l.touched;
  });
}

// Chance goes on where it was if the same rows still act on a side; a side that is cut now loses what is under way.
void FaultWire::settle_sides() noexcept {
  for (Effect& e : effects_) {
    Side& s = sides_[e.side];
    const Effect* before = s.previous == kNoId ? nullptr : &previous_[s.previous];
    e.random = before != nullptr && before->seed == e.seed ? before->random : Random(e.seed ^ e.side * kMix);
    const bool begins = e.cut && (before == nullptr || !before->cut);
    if (begins && s.sends && !s.dead && s.outstanding + s.waiting > 0) kill(e.side);
  }
  for (const Effect& e : previous_) sides_[e.side].previous = kNoId;
}

}  // namespace lk

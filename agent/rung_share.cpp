#include "agent/rung_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

namespace lk {
namespace {

bool touches(const FaultRow& row, const ClusterSpec& c, LaneId lane) {
  if (row.target == FaultTarget::kLane) return row.id == lane;
  if (row.target != FaultTarget::kLink) return false;
  const auto hit = [&row](const Hop& h) { return h.link == row.id; };
  const LaneSpec& l = c.lanes[lane];
  return std::any_of(l.near_hops.begin(), l.near_hops.end(), hit) ||
         std::any_of(l.far_hops.begin(), l.far_hops.end(), hit);
}

bool touches_best(const FaultRow& row, const ClusterSpec& c, const TrunkSpec& trunk) {
  for (LaneId l = trunk.first_lane; l < trunk.first_lane + trunk.lane_count; ++l) {
    if (c.lanes[l].rung == c.lanes[trunk.first_lane].rung && touches(row, c, l)) return true;
  }
  return false;
}

std::set<TrunkId> touched_trunks(const ClusterSpec& c, const std::vector<FaultRow>& rows) {
  std::set<TrunkId> touched, all;
  for (TrunkId t = 0; t < c.trunks.size(); ++t) {
    all.insert(t);
    if (std::any_of(rows.begin(), rows.end(), [&](const FaultRow& r) { return touches_best(r, c, c.trunks[t]); }))
      touched.insert(t);
  }
  return touched.empty() ? all : touched;
}

std::string rung_of(const ClusterSpec& c, const LaneSpec& lane) {
  if (lane.kind != LaneKind::kRdma) return name_of(lane.kind);
  if (lane.rung == c.lanes[c.trunks[lane.trunk].first_lane].rung) return "own rail";
  return lane.rung <= 1 ? "neighbour's rail" : "other rail";
}

std::string text_of(std::vector<std::pair<double, std::string>> shares, double total) {
  std::sort(shares.begin(), shares.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  std::string text;
  for (const auto& [bytes, name] : shares) {
    if (total > 0 && bytes / total > 0.01)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, 100 * bytes / total);
  }
  return text;
}

std::string judge(const std::vector<LaneKind>& expected, const std::array<double, 6>& share, double stray) {
  if (share[static_cast<std::size_t>(expected.front())] <= 0)
    return fmt::format("no payload over {}", name_of(expected.front()));
  for (std::size_t k = 0; k < share.size(); ++k) {
    const auto kind = static_cast<LaneKind>(k);
    if (share[k] > stray && std::find(expected.begin(), expected.end(), kind) == expected.end())
      return fmt::format("payload over {}, which was not expected", name_of(kind));
  }
  return {};
}

}  // namespace

RungShare share_of_rungs(const Scenario& s, const ClusterSpec& c, std::span<const Bytes> lane_bytes, double stray) {
  const std::set<TrunkId> touched = touched_trunks(c, scenario_rows(s, c, 0).wire);
  std::vector<std::pair<double, std::string>> shares;
  std::array<double, 6> by_kind{};
  double total = 0;
  for (LaneId l = 0; l < c.lanes.size(); ++l) {
    if (!touched.contains(c.lanes[l].trunk)) continue;
    const double bytes = static_cast<double>(lane_bytes[std::size_t{l} * 2] + lane_bytes[std::size_t{l} * 2 + 1]);
    total += bytes;
    by_kind[static_cast<std::size_t>(c.lanes[l].kind)] += bytes;
    const std::string name = rung_of(c, c.lanes[l]);
    const auto it = std::find_if(shares.begin(), shares.end(), [&](const auto& p) { return p.second == name; });
    if (it == shares.end())
      shares.emplace_back(bytes, name);
    else
      it->first += bytes;
  }
  RungShare out{text_of(shares, total), {}};
  if (s.expect.rungs.empty() || total <= 0) return out;
  for (double& share : by_kind) share /= total;
  out.why = judge(s.expect.rungs, by_kind, stray);
  return out;
}

}  // namespace lk

// The lab's part that an operator talks to: names to ids, and the calls passed on to the control planes that they are
// about. And the rates at which a machine can emulate a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "agent/lab.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

template <typename Spec>
std::uint32_t id_named(const std::vector<Spec>& specs, const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
    names.push_back(specs[i].name);
  }
  const std::string near = nearest_word(name, names);
  throw InputError(fmt::format("{} \"{}\": unknown, expected {}", what, name,
                               near.empty() ? fmt::format("one of `lanectl show {}s`", what) : near));
}

}  // namespace

LinkId Lab::link_named(const std::string& name) const { return id_named(cluster_.links, name, "link"); }
LaneId Lab::lane_named(const std::string& name) const { return id_named(cluster_.lanes, name, "lane"); }

std::vector<NodeId> Lab::senders_of(LaneId lane) const {
  const LaneSpec& spec = cluster_.lanes[lane];
  const NodeId a = cluster_.gpus[spec.a].node, b = cluster_.gpus[spec.b].node;
  return a == b ? std::vector<NodeId>{a} : std::vector<NodeId>{a, b};
}

void Lab::drain(const std::string& link, bool drained) {
  const LinkId id = link_named(link);
  nodes_[cluster_.links[id].node]->plane().drain_link(id, drained, now());
}

void Lab::set_off(const std::string& name, bool off) {
  const auto link =
      std::find_if(cluster_.links.begin(), cluster_.links.end(), [&](const LinkSpec& l) { return l.name == name; });
  if (link != cluster_.links.end()) {
    nodes_[link->node]->plane().set_link_off(static_cast<LinkId>(link - cluster_.links.begin()), off, now());
    return;
  }
  const LaneId lane = lane_named(name);
  for (const NodeId n : senders_of(lane)) nodes_[n]->plane().set_lane_off(lane, off, now());
}

void Lab::set_weight(const std::string& name, double weight) {
  const LaneId lane = lane_named(name);
  for (const NodeId n : senders_of(lane)) nodes_[n]->plane().set_lane_weight(lane, weight, now());
}

std::uint32_t Lab::inject(const FaultSpec& fault) {
  const FaultRows rows = faults_.inject(fault, now());
  apply(rows);
  return faults_.entries().empty() ? 0 : faults_.entries().back().id;
}

void Lab::clear(const std::string& words) { apply(faults_.clear(words)); }

void Lab::apply(const FaultRows& rows) {
  for (const FaultRow& row : rows.wire) {
    for (const auto& n : nodes_) n->fault(row);
    if (row.target == FaultTarget::kNode || row.kind == FaultKind::kClear) bus_.fault(row);
  }
  for (const FaultRow& row : rows.control) bus_.fault(row);
  for (const auto& r : reactors_) r->wake();
}

ClusterSpec scaled(ClusterSpec cluster, double scale) {
  for (LinkSpec& l : cluster.links) l.nominal_GBps *= scale;
  for (LaneSpec& l : cluster.lanes) l.nominal_GBps *= scale;
  return cluster;
}

GBps memory_rate() {
  constexpr Bytes kBlock = 64 * kMiB;
  constexpr int kRounds = 4;
  const auto from = std::make_unique<std::byte[]>(kBlock);
  const auto to = std::make_unique<std::byte[]>(kBlock);
  std::memset(from.get(), 1, kBlock);
  std::memcpy(to.get(), from.get(), kBlock);  // once untimed: the pages must be there
  const MonotonicClock clock;
  Nanos best = kSecond;
  for (int i = 0; i < kRounds; ++i) {
    const Nanos begin = clock.now();
    std::memcpy(to.get(), from.get(), kBlock);
    best = std::min(best, std::max<Nanos>(clock.now() - begin, 1));
  }
  return static_cast<double>(kBlock) / static_cast<double>(best);
}

double fitting_scale(const ClusterSpec& cluster) {
  const GBps memory = memory_rate();
  GBps links = 0;
  for (const LinkSpec& l : cluster.links) links += 2 * l.nominal_GBps;
  return std::min(1.0, memory / 4 / std::max(links, 1e-9));
}

}  // namespace lk

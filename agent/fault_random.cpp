// Seeded faults for the simulator: what breaks, how, when and for how long.
#include <fmt/format.h>

#include <algorithm>

#include "agent/fault_plan.hpp"
#include "dataplane/base/random.hpp"

namespace lk {
namespace {

// What a trunk's last rungs (host, tcp) need: whoever takes that away for good takes the trunk.
enum class Worth : std::uint8_t { kSpare, kLast };

struct Target {
  std::string name;
  Worth worth;
  bool directed;  // has a direction
};

constexpr FaultKind kCutting[] = {FaultKind::kCut, FaultKind::kStall, FaultKind::kFlap, FaultKind::kBad,
                                  FaultKind::kDrop};
constexpr FaultKind kHurting[] = {FaultKind::kDegrade, FaultKind::kDelay,     FaultKind::kDrop, FaultKind::kBad,
                                  FaultKind::kCorrupt, FaultKind::kDuplicate, FaultKind::kLate};

class Weather {
 public:
  Weather(const ClusterSpec& cluster, std::uint64_t seed, FaultWeather weather, Nanos duration)
      : cluster_(cluster),
        random_(seed ^ 0x6661756c74ULL),
        storm_(weather == FaultWeather::kStorm),
        duration_(duration) {
    for (const LinkSpec& l : cluster.links) {
      const bool last = l.kind == LinkKind::kTcp || (l.kind == LinkKind::kPcie && l.gpu != kNoId16);
      of_kind_[static_cast<std::size_t>(l.kind)].push_back({l.name, last ? Worth::kLast : Worth::kSpare, true});
      if (l.kind == LinkKind::kPort) {
        nics_.push_back({fmt::format("{}.{}", cluster.nodes[l.node].name, l.device), Worth::kSpare, true});
      }
    }
    for (const LaneSpec& l : cluster.lanes) {
      const bool last = l.kind == LaneKind::kHost || l.kind == LaneKind::kTcp;
      lanes_.push_back({l.name, last ? Worth::kLast : Worth::kSpare, true});
    }
    for (const GpuSpec& g : cluster.gpus) {
      gpus_.push_back({fmt::format("{}.gpu{}", cluster.nodes[g.node].name, g.index), Worth::kLast, true});
    }
    for (const NodeSpec& n : cluster.nodes) {
      nodes_.push_back({n.name, Worth::kLast, false});
      const unsigned planes = n.gpu_count == 0 ? 0 : cluster.domains[cluster.gpus[n.first_gpu].domain].switch_planes;
      for (unsigned p = 0; p < planes; ++p)
        planes_.push_back({fmt::format("{}.nvswitch{}", n.name, p), Worth::kSpare, true});
    }
  }

  std::vector<FaultSpec> faults() {
    std::vector<FaultSpec> all;
    const std::uint64_t count = storm_ ? 3 + random_.below(5 + 2 * cluster_.nodes.size()) : 1;
    const bool loses_node = cluster_.nodes.size() > 1 && random_.chance(storm_ ? 0.15 : 0.06);
    if (loses_node) all.push_back(node_loss());
    while (all.size() < count) all.push_back(one());
    std::stable_sort(all.begin(), all.end(), [](const FaultSpec& a, const FaultSpec& b) { return a.at < b.at; });
    return all;
  }

 private:
  Nanos part(double least, double most) {
    return static_cast<Nanos>((least + random_.unit() * (most - least)) * static_cast<double>(duration_)) + 1;
  }
  // Whole microseconds, so that the fault's text stays short.
  static Nanos rounded(Nanos t) { return std::max<Nanos>(t / kMicro, 1) * kMicro; }

  FaultSpec start(FaultKind kind, std::string target) {
    FaultSpec f;
    f.kind = kind;
    f.target = std::move(target);
    f.at = rounded(part(0.02, storm_ ? 0.7 : 0.5));
    f.seed = random_.below(1'000'000);
    f.place = "random fault: target";
    return f;
  }

  // Two nodes: the side with rank 0 is the one that goes on.
  FaultSpec node_loss() {
    const std::size_t n = cluster_.nodes.size() == 2 ? 1 : random_.below(cluster_.nodes.size());
    return start(FaultKind::kCut, cluster_.nodes[n].name);
  }

  FaultSpec control_cut() {
    const std::size_t a = random_.below(cluster_.nodes.size() - 1);
    const std::size_t b = a + 1 + random_.below(cluster_.nodes.size() - a - 1);
    FaultSpec f = start(FaultKind::kCut, fmt::format("control.{}-{}", cluster_.nodes[a].name, cluster_.nodes[b].name));
    if (random_.chance(0.5)) f.lasts = rounded(part(0.1, 0.5));
    return f;
  }

  // A kind of target first, so that the few of one kind come up as often as the many of another.
  const Target* target() {
    const auto& nvlinks = of_kind_[static_cast<std::size_t>(LinkKind::kNvlink)];
    const auto& slots = of_kind_[static_cast<std::size_t>(LinkKind::kPcie)];
    const auto& ports = of_kind_[static_cast<std::size_t>(LinkKind::kPort)];
    const auto& netdevs = of_kind_[static_cast<std::size_t>(LinkKind::kTcp)];
    const std::vector<Target>* lists[] = {&nvlinks, &nvlinks, &nvlinks, &ports, &ports,   &ports,  &slots,
                                          &netdevs, &nics_,   &lanes_,  &gpus_, &planes_, &nodes_, nullptr};
    const std::vector<Target>* list = lists[random_.below(std::size(lists))];
    if (list == nullptr || list->empty()) return nullptr;
    return &(*list)[random_.below(list->size())];
  }

  FaultSpec one() {
    while (true) {
      const Target* t = target();
      if (t != nullptr) return on(*t);
      if (cluster_.nodes.size() > 1) return control_cut();
    }
  }

  FaultSpec on(const Target& t) {
    const bool plane = std::any_of(planes_.begin(), planes_.end(), [&t](const Target& p) { return &p == &t; });
    const bool node = !t.directed;
    const bool may_cut = !node && (t.worth == Worth::kSpare || storm_);
    const bool cuts = may_cut && random_.chance(0.55);
    FaultKind kind = cuts ? kCutting[random_.below(std::size(kCutting))] : kHurting[random_.below(std::size(kHurting))];
    if (plane) kind = cuts ? FaultKind::kCut : FaultKind::kDegrade;
    const bool is_lane = std::any_of(lanes_.begin(), lanes_.end(), [&t](const Target& l) { return &l == &t; });
    if (is_lane && kind == FaultKind::kDegrade) kind = FaultKind::kDelay;
    FaultSpec f = start(kind, t.name);
    set_strength(f, cuts);
    if (t.directed && !plane && random_.chance(0.3)) f.directions = random_.chance(0.5) ? kForwardOnly : kBackwardOnly;
    set_length(f, cuts && t.worth == Worth::kLast);
    return f;
  }

  void set_strength(FaultSpec& f, bool cuts) {
    const auto percent = [this](std::uint64_t least, std::uint64_t most) {
      return static_cast<double>(least + random_.below(most - least + 1)) / 100;
    };
    switch (f.kind) {
      case FaultKind::kCut:
        f.silent = random_.chance(0.25);
        break;
      case FaultKind::kFlap:
        f.period = std::max<Nanos>(kMilli, rounded(part(0.02, 0.25)));
        f.rate = percent(10, 60);
        break;
      case FaultKind::kDegrade:
        f.rate = percent(20, 90);
        break;
      case FaultKind::kDelay:
        f.delay = rounded(static_cast<Nanos>(random_.below(3 * kMilli)));
        break;
      case FaultKind::kLate:
        f.delay = rounded(static_cast<Nanos>(random_.below(30 * kMilli)));
        f.rate = percent(2, 30);
        break;
      case FaultKind::kBad:
      case FaultKind::kDrop:
        f.rate = cuts ? 1.0 : percent(1, 10);
        break;
      case FaultKind::kCorrupt:
      case FaultKind::kDuplicate:
        f.rate = percent(1, 30);
        break;
      case FaultKind::kStall:
      case FaultKind::kPlane:
      case FaultKind::kClear:
        break;
    }
  }

  // What takes a trunk's last rung must heal, and in less time than it takes to call a node dead.
  void set_length(FaultSpec& f, bool must_heal) {
    if (must_heal) {
      f.lasts = std::min(rounded(part(0.02, 0.3)), kSecond);
    } else if (random_.chance(0.6)) {
      f.lasts = rounded(part(0.05, 0.6));
    }
  }

  const ClusterSpec& cluster_;
  Random random_;
  bool storm_;
  Nanos duration_;
  std::vector<Target> of_kind_[4], nics_, lanes_, gpus_, nodes_, planes_;
};

}  // namespace

std::vector<FaultSpec> random_faults(const ClusterSpec& cluster, std::uint64_t seed, FaultWeather weather,
                                     Nanos duration) {
  return Weather(cluster, seed, weather, duration).faults();
}

}  // namespace lk

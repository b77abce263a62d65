// From the name of what is broken to rows about links, lanes, nodes and control channels.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "agent/config_value.hpp"
#include "agent/fault_plan.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

std::uint8_t turned(std::uint8_t directions) noexcept {
  return static_cast<std::uint8_t>((directions >> 1 & 1) | (directions << 1 & 2));
}

std::string gpu_name(const ClusterSpec& c, std::size_t gpu) {
  return fmt::format("{}.gpu{}", c.nodes[c.gpus[gpu].node].name, c.gpus[gpu].index);
}

std::string nic_name(const ClusterSpec& c, const LinkSpec& link) {
  return fmt::format("{}.{}", c.nodes[link.node].name, link.device);
}

unsigned planes_of(const ClusterSpec& c, NodeId node) {
  return c.nodes[node].gpu_count == 0 ? 0 : c.domains[c.gpus[c.nodes[node].first_gpu].domain].switch_planes;
}

class Expander {
 public:
  Expander(const FaultSpec& fault, const ClusterSpec& cluster, std::uint32_t id, Nanos from)
      : fault_(fault), cluster_(cluster) {
    base_.fault = id;
    base_.kind = fault.kind;
    base_.directions = fault.directions;
    base_.silent = fault.silent ? 1 : 0;
    base_.rate = fault.rate.value_or(fault.kind == FaultKind::kFlap ? 0.25 : 1.0);
    base_.delay_ns = fault.delay.value_or(0);
    base_.period_ns = fault.period.value_or(0);
    base_.at_ns = from + fault.at;
    base_.until_ns = fault.lasts ? base_.at_ns + *fault.lasts : kNever;
    base_.seed = fault.seed;
  }

  FaultRows rows() {
    if (link() || lane() || node() || gpu() || nic() || plane() || control()) return std::move(out_);
    const std::string close = nearest_word(fault_.target, known());
    refuse(
        fmt::format("no such link, lane, NIC, GPU, switch plane, node or control channel; expected a name as `show` "
                    "prints it{}",
                    close.empty() ? "" : fmt::format(" (did you mean {}?)", close)));
  }

 private:
  [[noreturn]] void refuse(std::string_view problem) const {
    throw InputError(fmt::format("{} '{}': {}", fault_.place, fault_.target, problem));
  }
  void add(FaultTarget target, std::uint32_t id, std::uint8_t directions) {
    FaultRow row = base_;
    row.target = target;
    row.id = id;
    row.directions = directions;
    out_.wire.push_back(row);
  }
  void add_link(LinkId id, bool turn = false) {
    add(FaultTarget::kLink, id, turn ? turned(base_.directions) : base_.directions);
  }

  bool link() {
    for (LinkId i = 0; i < cluster_.links.size(); ++i) {
      if (cluster_.links[i].name == fault_.target) return add_link(i), true;
    }
    return false;
  }
  bool lane() {
    for (LaneId i = 0; i < cluster_.lanes.size(); ++i) {
      if (cluster_.lanes[i].name != fault_.target) continue;
      if (base_.kind == FaultKind::kDegrade) refuse("a rate belongs to a link; expected one of the lane's links");
      return add(FaultTarget::kLane, i, base_.directions), true;
    }
    return false;
  }
  bool node() {
    for (std::uint32_t n = 0; n < cluster_.nodes.size(); ++n) {
      if (cluster_.nodes[n].name != fault_.target) continue;
      if (base_.directions != kBothDirections) refuse("a node has no direction; expected none, or one of its links");
      if (base_.kind != FaultKind::kDegrade) return add(FaultTarget::kNode, n, kBothDirections), true;
      for (LinkId i = 0; i < cluster_.links.size(); ++i) {
        if (cluster_.links[i].node == n) add_link(i);
      }
      return true;
    }
    return false;
  }
  // tx is what leaves the GPU.
  bool gpu() {
    for (std::size_t g = 0; g < cluster_.gpus.size(); ++g) {
      if (gpu_name(cluster_, g) != fault_.target) continue;
      for (LinkId i = 0; i < cluster_.links.size(); ++i) {
        if (cluster_.links[i].gpu == g) add_link(i);
        if (cluster_.links[i].peer_gpu == g) add_link(i, true);
      }
      return true;
    }
    return false;
  }
  // tx is what goes out to the wire, and so into the slot.
  bool nic() {
    for (LinkId i = 0; i < cluster_.links.size(); ++i) {
      const LinkSpec& l = cluster_.links[i];
      const bool part = (l.kind == LinkKind::kPort || l.kind == LinkKind::kPcie) && !l.device.empty();
      if (part && nic_name(cluster_, l) == fault_.target) add_link(i, l.kind == LinkKind::kPcie);
    }
    return !out_.wire.empty();
  }
  // Every GPU of the node loses its share of NVLinks.
  bool plane() {
    for (std::uint32_t n = 0; n < cluster_.nodes.size(); ++n) {
      const std::string prefix = cluster_.nodes[n].name + ".nvswitch";
      if (!fault_.target.starts_with(prefix)) continue;
      const std::string_view digits = std::string_view(fault_.target).substr(prefix.size());
      const unsigned planes = planes_of(cluster_, static_cast<NodeId>(n));
      unsigned plane = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), plane);
      if (error != std::errc{} || end != digits.data() + digits.size() || plane >= planes) {
        refuse(planes == 0 ? "this node has no NVSwitch; expected an NVLink bundle"
                           : fmt::format("no such plane; expected {}0 to {}{}", prefix, prefix, planes - 1));
      }
      if (base_.kind != FaultKind::kCut && base_.kind != FaultKind::kDegrade) {
        refuse("a switch plane can be cut or degraded; expected that, or one of the GPUs' NVLinks");
      }
      const double left = base_.kind == FaultKind::kCut ? 0 : base_.rate;
      base_.kind = FaultKind::kPlane;
      base_.rate = (1 - left) / planes;
      for (LinkId i = 0; i < cluster_.links.size(); ++i) {
        const LinkSpec& l = cluster_.links[i];
        if (l.node == n && l.kind == LinkKind::kNvlink && l.peer_gpu == kNoId16) add_link(i);
      }
      return true;
    }
    return false;
  }
  bool control() {
    for (std::uint32_t a = 0; a < cluster_.nodes.size(); ++a) {
      for (std::uint32_t b = 0; b < cluster_.nodes.size(); ++b) {
        if (a == b || control_name(a, b) != fault_.target) continue;
        if (base_.kind != FaultKind::kCut && base_.kind != FaultKind::kFlap) {
          refuse("a control channel can be cut or flap; expected that");
        }
        FaultRow row = base_;
        row.target = FaultTarget::kControl;
        row.id = a;
        row.peer = b;
        out_.control.push_back(row);
        return true;
      }
    }
    return false;
  }
  std::string control_name(std::uint32_t a, std::uint32_t b) const {
    return fmt::format("control.{}-{}", cluster_.nodes[a].name, cluster_.nodes[b].name);
  }

  std::vector<std::string> known() const {
    std::vector<std::string> names;
    for (const LinkSpec& l : cluster_.links) {
      names.push_back(l.name);
      if (l.kind == LinkKind::kPort) names.push_back(nic_name(cluster_, l));
    }
    for (std::size_t g = 0; g < cluster_.gpus.size(); ++g) names.push_back(gpu_name(cluster_, g));
    for (std::uint32_t n = 0; n < cluster_.nodes.size(); ++n) {
      names.push_back(cluster_.nodes[n].name);
      for (unsigned p = 0; p < planes_of(cluster_, static_cast<NodeId>(n)); ++p) {
        names.push_back(fmt::format("{}.nvswitch{}", cluster_.nodes[n].name, p));
      }
      for (std::uint32_t b = n + 1; b < cluster_.nodes.size(); ++b) names.push_back(control_name(n, b));
    }
    for (const LaneSpec& l : cluster_.lanes) names.push_back(l.name);
    return names;
  }

  const FaultSpec& fault_;
  const ClusterSpec& cluster_;
  FaultRow base_;
  FaultRows out_;
};

}  // namespace

FaultRows expand_fault(const FaultSpec& fault, const ClusterSpec& cluster, std::uint32_t id, Nanos from) {
  return Expander(fault, cluster, id, from).rows();
}

}  // namespace lk

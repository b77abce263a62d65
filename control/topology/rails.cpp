#include "control/topology/rails.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

bool is_near(Relation r) noexcept { return r == Relation::kPix || r == Relation::kPxb; }

bool is_bond(const NicFact& nic) { return nic.device.find("bond") != std::string::npos; }

Relation relation(const NodeTopology& t, std::size_t gpu, std::size_t nic) {
  const Relation r = t.gpu_nic(gpu, nic).relation;
  return r == Relation::kUnknown ? Relation::kSys : r;
}

// Each GPU in order takes the first NIC nearest to it that no GPU has yet; what is left follows its nearest GPU.
std::vector<RailChoice> by_nearness(const NodeTopology& t) {
  std::vector<RailChoice> rails;
  std::vector<bool> taken(t.nics.size());
  const auto take = [&](std::size_t gpu, Relation wanted) {
    for (std::size_t nic = 0; nic < t.nics.size(); ++nic) {
      if (taken[nic] || is_bond(t.nics[nic]) || relation(t, gpu, nic) != wanted) continue;
      taken[nic] = true;
      rails.push_back({nic, gpu, {}});
      return true;
    }
    return false;
  };
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    if (!take(gpu, Relation::kPix)) take(gpu, Relation::kPxb);
  }
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    while (take(gpu, Relation::kPix) || take(gpu, Relation::kPxb)) {
    }
  }
  std::stable_sort(rails.begin(), rails.end(),
                   [](const RailChoice& a, const RailChoice& b) { return a.home < b.home; });
  return rails;
}

std::vector<RailChoice> by_name(const NodeTopology& t, const std::vector<std::string>& named) {
  std::vector<RailChoice> rails;
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto it = std::find_if(t.nics.begin(), t.nics.end(),
                                 [&](const NicFact& nic) { return nic.name == named[i] || nic.device == named[i]; });
    if (it == t.nics.end()) {
      std::vector<std::string> have;
      for (const NicFact& nic : t.nics) have.push_back(nic.device.empty() ? nic.name : nic.device);
      throw InputError(fmt::format("{}: rail {} is no NIC of this node; expected one of {}", t.source, named[i],
                                   have.empty() ? "none" : fmt::format("{}", fmt::join(have, ", "))));
    }
    const auto nic = static_cast<std::size_t>(it - t.nics.begin());
    if (std::any_of(rails.begin(), rails.end(), [&](const RailChoice& r) { return r.nic == nic; })) {
      throw InputError(fmt::format("{}: rail {} is named twice", t.source, named[i]));
    }
    std::size_t home = t.gpus.size();
    for (std::size_t gpu = t.gpus.size(); gpu-- > 0;) {
      if (is_near(relation(t, gpu, nic))) home = gpu;
    }
    rails.push_back({nic, home, {}});
  }
  // A NIC near no GPU: the GPUs are shared out over the rails in order.
  for (std::size_t i = 0; i < rails.size(); ++i) {
    if (rails[i].home == t.gpus.size()) rails[i].home = i * t.gpus.size() / rails.size();
  }
  return rails;
}

// All rails are as far from this GPU: nothing tells them apart but their order.
bool undecided(const NodeTopology& t, const std::vector<RailChoice>& rails) {
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    for (const RailChoice& rail : rails) {
      if (relation(t, gpu, rail.nic) != relation(t, 0, rails[0].nic)) return false;
    }
  }
  return true;
}

void find_own(const NodeTopology& t, std::vector<RailChoice>& rails, bool named) {
  const bool by_order = named && undecided(t, rails);
  for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
    bool any = false;
    for (RailChoice& rail : rails) {
      const bool home = rail.home == gpu || (by_order && gpu * rails.size() / t.gpus.size() ==
                                                             static_cast<std::size_t>(&rail - rails.data()));
      rail.view[gpu].own = home && (by_order || is_near(relation(t, gpu, rail.nic)));
      any = any || rail.view[gpu].own;
    }
    if (any) continue;
    Relation best = Relation::kSys;
    for (const RailChoice& rail : rails) best = std::min(best, relation(t, gpu, rail.nic));
    if (!named && !is_near(best)) continue;
    for (RailChoice& rail : rails) rail.view[gpu].own = relation(t, gpu, rail.nic) == best;
  }
}

}  // namespace

std::vector<RailChoice> choose_rails(const NodeTopology& t, const Machines& machines,
                                     const std::vector<std::string>& named, bool coherent) {
  std::vector<RailChoice> rails = named.empty() ? by_nearness(t) : by_name(t, named);
  for (RailChoice& rail : rails) {
    rail.view.resize(t.gpus.size());
    for (std::size_t gpu = 0; gpu < t.gpus.size(); ++gpu) {
      const Relation r = relation(t, gpu, rail.nic);
      RailView& view = rail.view[gpu];
      view.near = is_near(r);
      view.same_socket = r != Relation::kSys;
      view.share = coherent ? 1 : machines.distance_share(text_of({r, 0}));
    }
  }
  if (!rails.empty()) find_own(t, rails, !named.empty());
  return rails;
}

}  // namespace lk

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "control/topology/findings.hpp"

namespace lk {
namespace {

constexpr unsigned kMostDirectLinks = 18;  // a GPU whose pairs add up to more has a switch behind it

// Links of each GPU pair, 0 where there is none. `known` is false where the capture does not say.
struct LinkTable {
  std::size_t n = 0;
  std::vector<unsigned> links;
  std::vector<bool> known;
  unsigned at(std::size_t a, std::size_t b) const { return links[a * n + b]; }
};

LinkTable table_of(const NodeTopology& t) {
  LinkTable out{t.gpus.size(), {}, {}};
  out.links.resize(out.n * out.n);
  out.known.resize(out.n * out.n);
  for (std::size_t a = 0; a < out.n; ++a) {
    for (std::size_t b = 0; b < out.n; ++b) {
      const Cell cell = t.cell(a, b);
      out.links[a * out.n + b] = a != b && cell.relation == Relation::kNvlink ? cell.links : 0;
      out.known[a * out.n + b] = cell.relation != Relation::kUnknown;
    }
  }
  return out;
}

// Groups of GPUs that NVLink joins, directly or over others; each in ascending order.
std::vector<std::vector<std::size_t>> islands(const LinkTable& t) {
  std::vector<std::vector<std::size_t>> out;
  std::vector<bool> seen(t.n);
  for (std::size_t start = 0; start < t.n; ++start) {
    if (seen[start]) continue;
    std::vector<std::size_t> island{start};
    seen[start] = true;
    for (std::size_t i = 0; i < island.size(); ++i) {
      for (std::size_t b = 0; b < t.n; ++b) {
        if (seen[b] || t.at(island[i], b) == 0) continue;
        seen[b] = true;
        island.push_back(b);
      }
    }
    std::sort(island.begin(), island.end());
    out.push_back(std::move(island));
  }
  return out;
}

void add_places(const NodeTopology& t, std::size_t gpu, std::vector<std::string>& out) {
  for (std::string& place : places_of(t, gpu)) out.push_back(std::move(place));
}

std::vector<std::string> places_of_pair(const NodeTopology& t, std::size_t a, std::size_t b) {
  std::vector<std::string> out = places_of(t, a);
  add_places(t, b, out);
  return out;
}

std::string pair_text(const NodeTopology& t, std::size_t a, std::size_t b) {
  return fmt::format("{}-{}", t.gpus[a].name, t.gpus[b].name);
}

// A switch gives each pair the lesser of its two GPUs' links. So a GPU that is low to all is at fault itself, and a
// pair that is lower than both its GPUs can do is at fault as a pair.
void check_switched(NodeTopology& t, const LinkTable& table, const std::vector<std::size_t>& gpus) {
  std::vector<unsigned> own(table.n);
  unsigned most = 0;
  for (const std::size_t a : gpus) {
    for (const std::size_t b : gpus) own[a] = std::max(own[a], table.at(a, b));
    most = std::max(most, own[a]);
  }
  for (const std::size_t a : gpus) {
    if (own[a] < most) {
      t.note("nvlink-degraded-gpu", Severity::kFault, places_of(t, a),
             fmt::format("{} has {} links to every peer where other pairs have {}: {} links of {} itself are down",
                         t.gpus[a].name, own[a], most, most - own[a], t.gpus[a].name));
    }
    for (const std::size_t b : gpus) {
      const unsigned due = std::min(own[a], own[b]);
      if (b <= a || table.at(a, b) == due || !table.known[a * table.n + b]) continue;
      t.note("nvlink-degraded-pair", Severity::kFault, places_of_pair(t, a, b),
             fmt::format("{}: {} links where the fabric gives both GPUs {}", pair_text(t, a, b), table.at(a, b), due));
    }
  }
  constexpr std::array kWhole = {6U, 8U, 12U, 18U};  // V100, A800/H800, A100, H100 and later
  if (std::find(kWhole.begin(), kWhole.end(), most) == kWhole.end()) {
    std::vector<std::string> all;
    for (const std::size_t g : gpus) add_places(t, g, all);
    t.note("nvlink-degraded-fabric", Severity::kFault, all,
           fmt::format("every GPU has {} links; no GPU on an NVSwitch has that number: a switch or its links are down",
                       most));
  }
}

void check_bridges(NodeTopology& t, const LinkTable& table, const std::vector<std::vector<std::size_t>>& pairs) {
  unsigned most = 0;
  for (const auto& p : pairs) most = std::max(most, table.at(p[0], p[1]));
  for (const auto& p : pairs) {
    const unsigned links = table.at(p[0], p[1]);
    constexpr std::array kWhole = {1U, 2U, 4U, 6U, 8U, 12U, 18U};
    // Three links join the GPU pairs of a POWER9 node; a single pair with three is a bridge of four that lost one.
    const bool power9 = links == 3 && pairs.size() > 1 && links == most;
    const bool odd = !power9 && std::find(kWhole.begin(), kWhole.end(), links) == kWhole.end();
    if (!odd && links == most) continue;
    t.note("nvlink-degraded-pair", Severity::kFault, places_of_pair(t, p[0], p[1]),
           odd ? fmt::format(
                     "{}: {} links; no NVLink bridge has that number: a link did not train or a bridge is not seated",
                     pair_text(t, p[0], p[1]), links)
               : fmt::format("{}: {} links where another bridge has {}", pair_text(t, p[0], p[1]), links, most));
  }
}

using Mesh = std::array<std::array<unsigned, 8>, 8>;

struct MeshDesign {
  std::size_t size = 0;
  Mesh links{};
};

Mesh mesh_of(std::initializer_list<std::array<unsigned, 3>> edges) {
  Mesh m{};
  for (const auto& e : edges) m[e[0]][e[1]] = m[e[1]][e[0]] = e[2];
  return m;
}

// DGX-1 with V100 (its user guide; the quads' NV1/NV2 pattern with a NV2 or NV1 to the other quad), with P100, and
// boards of four: V100 in full, P100 with one and with two doubled pairs.
const std::vector<MeshDesign>& designs() {
  static const std::vector<MeshDesign> kDesigns = [] {
    const Mesh v100 = mesh_of({{0, 1, 1},
                               {0, 2, 1},
                               {0, 3, 2},
                               {1, 2, 2},
                               {1, 3, 1},
                               {2, 3, 2},
                               {4, 5, 1},
                               {4, 6, 1},
                               {4, 7, 2},
                               {5, 6, 2},
                               {5, 7, 1},
                               {6, 7, 2},
                               {0, 4, 2},
                               {1, 5, 2},
                               {2, 6, 1},
                               {3, 7, 1}});
    Mesh p100 = v100;
    for (auto& row : p100) {
      for (unsigned& links : row) links = std::min(links, 1U);
    }
    Mesh full{};
    for (std::size_t a = 0; a < 4; ++a) {
      for (std::size_t b = 0; b < 4; ++b) full[a][b] = a == b ? 0 : 2;
    }
    const Mesh doubled = mesh_of({{0, 1, 2}, {2, 3, 2}, {0, 2, 1}, {0, 3, 1}, {1, 2, 1}, {1, 3, 1}});
    return std::vector<MeshDesign>{{8, v100}, {8, p100}, {4, full}, {4, doubled}};
  }();
  return kDesigns;
}

// Finds how a mesh lies in a design: each GPU at a place of its own, no pair above the design's, fewest links missing.
class MeshFit {
 public:
  MeshFit(const LinkTable& table, std::vector<std::size_t> gpus) : table_(table), gpus_(std::move(gpus)) {}

  void against(const MeshDesign& design) {
    if (design.size < gpus_.size()) return;
    design_ = &design;
    used_.fill(false);
    search(0, 0);
  }
  bool found() const noexcept { return best_ != kNoFit; }
  unsigned missing() const noexcept { return best_; }
  // Pairs that lack links, in every fit that lacks the fewest.
  const std::set<std::pair<std::size_t, std::size_t>>& lacking() const noexcept { return lacking_; }

 private:
  static constexpr unsigned kNoFit = 9;  // more than one GPU's worth of links: another design, no fault of this one

  void search(std::size_t depth, unsigned lost) {
    if (lost > best_ || best_ == 0) return;
    if (depth == gpus_.size()) {
      accept(lost);
      return;
    }
    for (std::size_t place = 0; place < design_->size; ++place) {
      if (used_[place]) continue;
      unsigned more = 0;
      bool fits = true;
      for (std::size_t i = 0; i < depth && fits; ++i) {
        const unsigned due = design_->links[places_[i]][place];
        const unsigned have = table_.at(gpus_[i], gpus_[depth]);
        if (!table_.known[gpus_[i] * table_.n + gpus_[depth]]) continue;
        fits = have <= due;
        more += due - std::min(have, due);
      }
      if (!fits) continue;
      used_[place] = true;
      places_[depth] = place;
      search(depth + 1, lost + more);
      used_[place] = false;
    }
  }

  void accept(unsigned lost) {
    std::set<std::pair<std::size_t, std::size_t>> lacking;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      for (std::size_t j = i + 1; j < gpus_.size(); ++j) {
        if (table_.at(gpus_[i], gpus_[j]) < design_->links[places_[i]][places_[j]] &&
            table_.known[gpus_[i] * table_.n + gpus_[j]]) {
          lacking.emplace(gpus_[i], gpus_[j]);
        }
      }
    }
    if (lost < best_)
      lacking_ = lacking;
    else
      lacking_.insert(lacking.begin(), lacking.end());
    best_ = lost;
  }

  const LinkTable& table_;
  std::vector<std::size_t> gpus_;
  const MeshDesign* design_ = nullptr;
  std::array<bool, 8> used_{};
  std::array<std::size_t, 8> places_{};
  unsigned best_ = kNoFit;
  std::set<std::pair<std::size_t, std::size_t>> lacking_;
};

void note_lacking(NodeTopology& t, const std::set<std::pair<std::size_t, std::size_t>>& pairs) {
  std::vector<std::string> where;
  std::string text;
  for (const auto& [a, b] : pairs) {
    add_places(t, a, where);
    add_places(t, b, where);
    text += (text.empty() ? "" : ", ") + pair_text(t, a, b);
  }
  std::sort(where.begin(), where.end());
  where.erase(std::unique(where.begin(), where.end()), where.end());
  t.note("nvlink-degraded-pair", Severity::kFault, where,
         fmt::format("fewer links than this mesh is built with: {}", text));
}

// A mesh of single and double links: a cube mesh, a part of one that a VM owns, or a board of four.
void check_small_mesh(NodeTopology& t, const LinkTable& table, const std::vector<std::size_t>& gpus, bool complete) {
  t.fabric = gpus.size() > 4 || !complete ? Fabric::kHybridCubeMesh : Fabric::kDirectMesh;
  if (gpus.size() > 8) {
    t.note("nvlink-mesh-unknown", Severity::kWarn, {}, "a mesh of more than eight GPUs is not known");
    return;
  }
  MeshFit fit(table, gpus);
  for (const MeshDesign& design : designs()) fit.against(design);
  if (!fit.found()) {
    t.note("nvlink-mesh-unknown", Severity::kWarn, {}, "the NVLink pairs fit no mesh that is known");
  } else if (fit.missing() > 0) {
    if (gpus.size() <= 4) t.fabric = Fabric::kDirectMesh;
    note_lacking(t, fit.lacking());
  } else {
    t.note("nvlink-uneven-by-design", Severity::kInfo, {}, "pairs with one, two and no NVLinks: normal for this mesh");
  }
}

// Three or four GPUs, each pair with the same number of links.
void check_even_mesh(NodeTopology& t, const LinkTable& table, const std::vector<std::size_t>& gpus) {
  t.fabric = Fabric::kDirectMesh;
  unsigned most = 0;
  for (const std::size_t a : gpus) {
    for (const std::size_t b : gpus) most = std::max(most, table.at(a, b));
  }
  std::set<std::pair<std::size_t, std::size_t>> lacking;
  for (const std::size_t a : gpus) {
    for (const std::size_t b : gpus) {
      if (b > a && table.at(a, b) < most && table.known[a * table.n + b]) lacking.emplace(a, b);
    }
  }
  if (!lacking.empty()) note_lacking(t, lacking);
}

void check_island(NodeTopology& t, const LinkTable& table, const std::vector<std::size_t>& gpus) {
  unsigned most = 0;
  bool complete = true;
  for (const std::size_t a : gpus) {
    for (const std::size_t b : gpus) {
      most = std::max(most, table.at(a, b));
      complete = complete && (a == b || table.at(a, b) > 0);
    }
  }
  if (most * (gpus.size() - 1) > kMostDirectLinks || (most > 2 && gpus.size() > 4)) {
    t.fabric = Fabric::kNvswitch;
    check_switched(t, table, gpus);
  } else if (most <= 2) {
    check_small_mesh(t, table, gpus, complete);
  } else {
    check_even_mesh(t, table, gpus);
  }
}

}  // namespace

std::vector<std::string> places_of(const NodeTopology& t, std::size_t gpu) {
  std::vector<std::string> out{t.gpus[gpu].name};
  if (t.kind == CaptureKind::kTopoMatrix) return out;
  if (t.gpus[gpu].pcie.bus_id != out[0]) out.push_back(t.gpus[gpu].pcie.bus_id);
  if (t.gpus[gpu].dev) out.push_back(std::to_string(*t.gpus[gpu].dev));
  return out;
}

void find_fabric(NodeTopology& t) {
  const LinkTable table = table_of(t);
  const auto groups = islands(table);
  std::vector<std::vector<std::size_t>> pairs;
  std::vector<std::string> lone;
  std::size_t widest = 0;
  for (const auto& group : groups) {
    widest = std::max(widest, group.size());
    if (group.size() == 2) pairs.push_back(group);
    if (group.size() == 1) add_places(t, group[0], lone);
  }
  t.fabric = Fabric::kNone;
  if (widest == 2) {
    t.fabric = pairs.size() == 1 ? Fabric::kBridgePair : Fabric::kBridgePairs;
    if (t.gpus.size() == 2 && table.at(0, 1) >= kMostDirectLinks) t.fabric = Fabric::kNvswitch;  // two GPUs of a board
    check_bridges(t, table, pairs);
    if (t.gpus.size() > 2)
      t.note("nvlink-pairs-only", Severity::kInfo, {}, "NVLink joins pairs only; a larger group crosses PCIe");
  }
  for (const auto& group : groups) {
    if (group.size() > 2) check_island(t, table, group);
  }
  if (widest > 2 && !lone.empty() && !t.cut) {
    const bool fault = t.fabric == Fabric::kNvswitch && (t.gpus.size() == 8 || t.gpus.size() == 16);
    t.note("nvlink-none-on-gpu", fault ? Severity::kFault : Severity::kWarn, lone,
           "no NVLink at all where the other GPUs have it");
  }
}

}  // namespace lk

#include "tests/control/balance_test_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace lk::balance_test {
namespace {

constexpr Direction kFwd = Direction::kForward;
constexpr Direction kBwd = Direction::kBackward;

class Builder {
 public:
  explicit Builder(const Board& board) : board_(board) {}

  ClusterSpec build() {
    cluster_.profile = "test";
    for (int n = 0; n < board_.nodes; ++n) add_node(n);
    const int all = board_.nodes * board_.gpus;
    for (int a = 0; a < all; ++a) {
      for (int b = a + 1; b < all; ++b) add_trunk(a, b);
    }
    return std::move(cluster_);
  }

 private:
  int node_of(int gpu) const { return gpu / board_.gpus; }
  std::string gpu_name(int gpu) const { return fmt::format("n{}.gpu{}", node_of(gpu), gpu % board_.gpus); }

  LinkId add_link(std::string name, LinkKind kind, int node, GBps nominal) {
    LinkSpec link;
    link.name = std::move(name);
    link.kind = kind;
    link.node = static_cast<NodeId>(node);
    link.nominal_GBps = nominal;
    cluster_.links.push_back(std::move(link));
    return static_cast<LinkId>(cluster_.links.size() - 1);
  }

  void add_node(int n) {
    for (int g = 0; g < board_.gpus; ++g) {
      const int gpu = n * board_.gpus + g;
      const int domain = board_.one_domain ? 0 : n;
      cluster_.gpus.push_back({static_cast<NodeId>(n), static_cast<std::uint16_t>(g), static_cast<DomainId>(domain),
                               static_cast<std::uint16_t>(board_.one_domain ? gpu : g)});
      slot_.push_back(add_link(gpu_name(gpu) + ".pcie", LinkKind::kPcie, n, board_.pcie_GBps));
      if (board_.nvswitch) up_.push_back(add_link(gpu_name(gpu) + ".nvlink", LinkKind::kNvlink, n, board_.switch_GBps));
    }
    for (const auto& [a, b, width] : board_.bundles) {
      const std::string name = fmt::format("n{}.gpu{}-gpu{}.nvlink", n, a, b);
      bundle_.push_back(
          {n * board_.gpus + a, n * board_.gpus + b, add_link(name, LinkKind::kNvlink, n, width * board_.nvlink_GBps)});
    }
    for (std::size_t i = 0; i < board_.gpu_of_nic.size(); ++i) {
      nic_slot_.push_back(add_link(fmt::format("n{}.mlx5_{}.pcie", n, i), LinkKind::kPcie, n, board_.pcie_GBps));
      port_.push_back(add_link(fmt::format("n{}.mlx5_{}.port1", n, i), LinkKind::kPort, n, board_.port_GBps));
    }
    netdev_.push_back(add_link(fmt::format("n{}.eth0", n), LinkKind::kTcp, n, board_.netdev_GBps));
  }

  // The NVLink hops from x to y; empty when none joins them.
  std::vector<Hop> nvlink(int x, int y) const {
    if (board_.nvswitch && (board_.one_domain || node_of(x) == node_of(y))) {
      return {{up_[static_cast<std::size_t>(x)], kFwd}, {up_[static_cast<std::size_t>(y)], kBwd}};
    }
    for (const auto& [a, b, link] : bundle_) {
      if (a == x && b == y) return {{link, kFwd}};
      if (a == y && b == x) return {{link, kBwd}};
    }
    return {};
  }

  void add_lane(LaneKind kind, int a, int b, std::uint16_t rung, std::vector<Hop> near, std::vector<Hop> far) {
    LaneSpec lane;
    lane.kind = kind;
    lane.trunk = static_cast<TrunkId>(cluster_.trunks.size());
    lane.a = static_cast<EndpointId>(a);
    lane.b = static_cast<EndpointId>(b);
    lane.rung = rung;
    lane.addressable = kind == LaneKind::kNvlink || kind == LaneKind::kPcie;
    lane.nominal_GBps = std::numeric_limits<GBps>::infinity();
    for (const Hop& hop : near) lane.nominal_GBps = std::min(lane.nominal_GBps, cluster_.links[hop.link].nominal_GBps);
    for (const Hop& hop : far) lane.nominal_GBps = std::min(lane.nominal_GBps, cluster_.links[hop.link].nominal_GBps);
    lane.near_hops = std::move(near);
    lane.far_hops = std::move(far);
    lane.name = fmt::format("{}-{}.{}", gpu_name(a), gpu_name(b), name_of(kind));
    cluster_.lanes.push_back(std::move(lane));
  }

  void add_trunk(int a, int b) {
    const auto first = static_cast<LaneId>(cluster_.lanes.size());
    const bool same_node = node_of(a) == node_of(b);
    if (const auto direct = nvlink(a, b); !direct.empty()) add_lane(LaneKind::kNvlink, a, b, 0, direct, {});
    if (same_node) {
      add_relays(a, b);
      const Hop out{slot_[static_cast<std::size_t>(a)], kFwd}, in{slot_[static_cast<std::size_t>(b)], kBwd};
      add_lane(LaneKind::kPcie, a, b, 2, {out, in}, {});
      add_lane(LaneKind::kHost, a, b, 3, {out, in}, {});
      cluster_.lanes.back().nominal_GBps = board_.pcie_GBps / 2;  // staging has a limit of its own
    } else {
      add_rdma(a, b);
      add_lane(LaneKind::kTcp, a, b, 9,
               {{slot_[static_cast<std::size_t>(a)], kFwd}, {netdev_[static_cast<std::size_t>(node_of(a))], kFwd}},
               {{netdev_[static_cast<std::size_t>(node_of(b))], kBwd}, {slot_[static_cast<std::size_t>(b)], kBwd}});
    }
    const auto id = static_cast<TrunkId>(cluster_.trunks.size());
    cluster_.trunks.push_back({static_cast<EndpointId>(a), static_cast<EndpointId>(b), first,
                               static_cast<std::uint32_t>(cluster_.lanes.size() - first)});
    cluster_.trunk_of_pair[static_cast<std::uint32_t>(a) << 16 | static_cast<std::uint32_t>(b)] = id;
  }

  void add_relays(int a, int b) {
    if (board_.nvswitch) return;
    for (int via = node_of(a) * board_.gpus; via < (node_of(a) + 1) * board_.gpus; ++via) {
      if (via == a || via == b) continue;
      std::vector<Hop> path = nvlink(a, via);
      const std::vector<Hop> second = nvlink(via, b);
      if (path.empty() || second.empty()) continue;
      path.insert(path.end(), second.begin(), second.end());
      add_lane(LaneKind::kRelay, a, b, 1, path, {});
    }
  }

  // From a GPU to the wire by NIC `nic` of its node: straight if the NIC is beside it, else over NVLink to the GPU
  // beside the NIC, else over its own slot.
  std::vector<Hop> to_wire(int gpu, std::size_t nic) const {
    const int beside = node_of(gpu) * board_.gpus + board_.gpu_of_nic[nic];
    const std::size_t at = static_cast<std::size_t>(node_of(gpu)) * board_.gpu_of_nic.size() + nic;
    std::vector<Hop> path;
    if (beside != gpu) path = nvlink(gpu, beside);
    if (beside != gpu && path.empty()) path = {{slot_[static_cast<std::size_t>(gpu)], kFwd}};
    path.push_back({nic_slot_[at], kFwd});
    path.push_back({port_[at], kFwd});
    return path;
  }

  void add_rdma(int a, int b) {
    const std::size_t nics = board_.gpu_of_nic.size();
    if (nics == 0) return;
    const std::size_t own = static_cast<std::size_t>(a % board_.gpus) % nics;
    for (std::size_t step = 0; step < nics; ++step) {
      const std::size_t nic = (own + step) % nics;
      std::vector<Hop> far = to_wire(b, nic);
      std::reverse(far.begin(), far.end());
      for (Hop& hop : far) hop.direction = opposite(hop.direction);
      add_lane(LaneKind::kRdma, a, b, step == 0 ? 0 : 1, to_wire(a, nic), std::move(far));
    }
  }

  const Board& board_;
  ClusterSpec cluster_;
  std::vector<LinkId> slot_, up_, nic_slot_, port_, netdev_;
  struct Bundle {
    int a, b;
    LinkId link;
  };
  std::vector<Bundle> bundle_;
};

}  // namespace

Board dgx_a100(int nodes) {
  Board board;
  board.nodes = nodes;
  board.gpus = 8;
  board.nvswitch = true;
  board.gpu_of_nic = {0, 1, 2, 3, 4, 5, 6, 7};
  return board;
}

Board hgx_h100(int nodes) {
  Board board = dgx_a100(nodes);
  board.switch_GBps = 450;
  board.pcie_GBps = 55;
  board.port_GBps = 48.5;
  return board;
}

Board dgx1_v100(int nodes) {  // the hybrid cube mesh, four NICs for eight GPUs
  Board board;
  board.nodes = nodes;
  board.gpus = 8;
  board.bundles = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                   {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  board.gpu_of_nic = {0, 2, 4, 6};
  board.pcie_GBps = 12.5;
  board.port_GBps = 12.1;
  return board;
}

Board mesh_4gpu(int nodes) {
  Board board;
  board.nodes = nodes;
  board.gpus = 4;
  board.bundles = {{0, 1, 4}, {0, 2, 4}, {0, 3, 4}, {1, 2, 4}, {1, 3, 4}, {2, 3, 4}};
  board.gpu_of_nic = {0, 1, 2, 3};
  return board;
}

Board pcie_8gpu(int nodes) {
  Board board;
  board.nodes = nodes;
  board.gpus = 8;
  board.gpu_of_nic = {0, 4};
  return board;
}

Board nvl72(int nodes) {
  Board board;
  board.nodes = nodes;
  board.gpus = 4;
  board.nvswitch = true;
  board.one_domain = true;
  board.switch_GBps = 900;
  board.gpu_of_nic = {0, 1, 2, 3};
  return board;
}

ClusterSpec build(const Board& board) { return Builder(board).build(); }

std::vector<EndpointId> everyone(const ClusterSpec& cluster) {
  std::vector<EndpointId> members(cluster.gpus.size());
  std::iota(members.begin(), members.end(), EndpointId{0});
  return members;
}

LinkId link_named(const ClusterSpec& cluster, const std::string& name) {
  for (LinkId id = 0; id < cluster.links.size(); ++id) {
    if (cluster.links[id].name == name) return id;
  }
  throw std::logic_error("no link " + name);
}

LaneId lane_between(const ClusterSpec& cluster, EndpointId a, EndpointId b, LaneKind kind) {
  const TrunkSpec& trunk = cluster.trunks[cluster.trunk_between(a, b)];
  for (LaneId lane = trunk.first_lane; lane < trunk.first_lane + trunk.lane_count; ++lane) {
    if (cluster.lanes[lane].kind == kind) return lane;
  }
  throw std::logic_error("no such lane");
}

}  // namespace lk::balance_test

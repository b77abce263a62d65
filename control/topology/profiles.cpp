#include "control/topology/profiles.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "control/topology/capture.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    out.emplace_back(item);
    list.remove_prefix(std::min(item.size() + 1, list.size()));
  }
  return out;
}

NodeGroup group_of(const ProfileUse& use, const Machines& machines, const std::string& configs) {
  const auto known =
      std::find_if(profiles().begin(), profiles().end(), [&](const Profile& p) { return p.name == use.profile; });
  const bool named = known != profiles().end();
  NodeOptions options{use.gpu, use.nic, use.rails, use.ports_per_nic, use.tcp_GBps};
  std::string path = use.profile;
  unsigned domain_nodes = 1;
  if (named) {
    path = fmt::format("{}/profiles/{}.txt", configs, use.profile);
    if (options.gpu.empty()) options.gpu = known->gpu;
    if (options.nic.empty()) options.nic = known->nic;
    if (options.rails.empty()) options.rails = split(known->rails);
    domain_nodes = known->domain_nodes;
  } else if (std::error_code error; !std::filesystem::exists(path, error)) {
    std::vector<std::string_view> names;
    for (const Profile& p : profiles()) names.push_back(p.name);
    throw InputError(
        fmt::format("profile {}: neither a profile ({}) nor a capture file", use.profile, fmt::join(names, ", ")));
  }
  if (use.domain_nodes != 0) domain_nodes = use.domain_nodes;
  return {plan_node(read_capture(path), machines, options), use.nodes, domain_nodes};
}

}  // namespace

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> kProfiles = {
      {"dgx-a100", "a100-sxm", "hdr", "", 1, "8 A100 on 6 NVSwitches, 8 HDR rails (and 2 ports that are none)"},
      {"dgx1-v100", "v100-sxm2", "edr", "", 1, "8 V100 in a hybrid cube mesh, 4 EDR rails, one per GPU pair"},
      {"hgx-h100", "h100-sxm", "ndr", "", 1, "8 H100 on 4 NVSwitches, 8 NDR rails"},
      {"gb200-nvl72", "gb200", "ndr", "mlx5_0,mlx5_1,mlx5_4,mlx5_5", 18,
       "trays of 4 GB200, up to 18 in one NVLink domain, 4 NDR rails"},
      {"pcie-8gpu", "l40s", "hdr", "mlx5_0,mlx5_1", 1, "8 PCIe GPUs without NVLink, 2 HDR rails on one socket"},
      {"mesh-4gpu", "h100-sxm", "ndr", "", 1, "4 H100, each pair joined by 6 NVLinks, 4 NDR rails"},
  };
  return kProfiles;
}

ClusterSpec build_profiles(const std::vector<ProfileUse>& uses, Pairs pairs, const Machines& machines,
                           const std::string& configs) {
  std::vector<NodeGroup> groups;
  std::vector<std::string> names;
  for (const ProfileUse& use : uses) {
    groups.push_back(group_of(use, machines, configs));
    names.push_back(use.profile);
  }
  return build_cluster(fmt::format("{}", fmt::join(names, "+")), groups, machines, pairs);
}

ClusterSpec build_profiles(const std::vector<ProfileUse>& uses, Pairs pairs) {
  const std::string configs = config_folder();
  return build_profiles(uses, pairs, Machines::load(configs + "/machines.toml"), configs);
}

ClusterSpec build_profile(const std::string& profile, unsigned nodes, Pairs pairs) {
  return build_profiles({{.profile = profile, .nodes = nodes}}, pairs);
}

}  // namespace lk

// Profiles: named node types and capture files, made into a ClusterSpec of N nodes. Set-up only, any thread.
//   ClusterSpec spec = build_profile("dgx-a100", 2);
//   ClusterSpec mixed = build_profiles({{.profile = "dgx-a100", .nodes = 2}, {.profile = "mesh-4gpu"}});
// A profile is one of profiles() or the path of a capture (.txt, .xml). Fails with InputError, one line: unknown
// profile or option, unreadable capture. What no capture gave is listed in ClusterSpec::assumed, to be printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/topology/cluster.hpp"

namespace lk {

struct Profile {
  std::string_view name;
  std::string_view gpu, nic;  // rows of machines.toml
  std::string_view rails;     // comma list where nearness does not tell; empty: by nearness
  unsigned domain_nodes = 1;  // nodes that one NVLink domain spans at most
  std::string_view what;      // one line for help
};

// A profile and how many nodes of it. Empty or 0: as the profile has it.
struct ProfileUse {
  std::string profile;
  unsigned nodes = 1;
  std::string gpu = {}, nic = {};
  std::vector<std::string> rails = {};
  unsigned ports_per_nic = 1;
  unsigned domain_nodes = 0;
  GBps tcp_GBps = 0;
};

const std::vector<Profile>& profiles();

ClusterSpec build_profiles(const std::vector<ProfileUse>& uses, Pairs pairs = Pairs::kAuto);
ClusterSpec build_profile(const std::string& profile, unsigned nodes, Pairs pairs = Pairs::kAuto);
// The same with a table that is already read and the folder that holds profiles/.
ClusterSpec build_profiles(const std::vector<ProfileUse>& uses, Pairs pairs, const Machines& machines,
                           const std::string& configs);

}  // namespace lk

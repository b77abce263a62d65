// Launch: from what a person asked for (a config, a profile or a capture, options) to what the lab is made of. Set-up
// only. Fails with InputError, one line, exit code 2 of lanekeeperd.
#pragma once

#include <string>

#include "agent/config.hpp"
#include "agent/lab.hpp"
#include "control/topology/profiles.hpp"

namespace lk {

// --loopback WHAT: a .toml is read into the config; a capture or a profile's name becomes loopback.profile.
void read_loopback(Config& config, const std::string& what);

// The cluster that the config describes, at its own rates.
ClusterSpec cluster_of(const LoopbackConfig& config);

// Thresholds of the shipped table with what the config says on top; the config then shows them all.
ControlOptions control_of(Config& config);

}  // namespace lk

// [[fault]] rows of a parsed TOML file; for fault plans and scenario files. `path` begins every error, with the line.
#pragma once

#include <toml++/toml.h>
#include <string>
#include <string_view>
#include <vector>

#include "agent/fault_plan.hpp"

namespace lk {

// Parses the file; InputError "path:line: …" when it cannot be read or is no TOML.
toml::table read_toml(const std::string& path);
std::vector<FaultSpec> faults_of(const toml::table& file, const std::string& path);
// "path:line: key"
std::string toml_place(const std::string& path, const toml::node& node, std::string_view key);

}  // namespace lk

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "control/topology/machines.hpp"
#include "dataplane/base/error.hpp"

namespace lk {

std::string config_folder() {
  namespace fs = std::filesystem;
  std::vector<std::string> tried;
  const auto holds_table = [&](const fs::path& folder) {
    tried.push_back(folder.string());
    std::error_code ignored;
    return fs::is_regular_file(folder / "machines.toml", ignored);
  };
  if (const char* named = std::getenv("LANEKEEPER_CONFIGS"); named != nullptr && *named != '\0') {
    if (holds_table(named)) return named;
    throw InputError(fmt::format("LANEKEEPER_CONFIGS={}: expected a folder with machines.toml", named));
  }
  std::error_code error;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int levels = 0; !error && levels < 4 && !above.empty(); ++levels, above = above.parent_path()) {
    for (const char* name : {"configs", "share/lanekeeper"}) {
      if (holds_table(above / name)) return (above / name).string();
    }
  }
  if (holds_table(LK_CONFIGS_FOLDER)) return LK_CONFIGS_FOLDER;
  throw InputError(
      fmt::format("machines.toml: not found in {}; name its folder in LANEKEEPER_CONFIGS", fmt::join(tried, ", ")));
}

}  // namespace lk

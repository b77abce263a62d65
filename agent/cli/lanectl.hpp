// Lanectl: the command line: parsed by command_table.hpp, answered by the agent or here, printed for people or as JSON.
// Exit code: 0 well, 1 the answer is bad news (or no agent answers), 2 wrong use.
#pragma once

#include <string>
#include <vector>

namespace lk {

struct LanectlResult {
  int code = 0;
  std::string out, error;  // for stdout and stderr
};

// `words` without the program's name. Never throws.
LanectlResult lanectl(std::vector<std::string> words) noexcept;

}  // namespace lk

// The table of lanectl's commands: name, arguments, help and example. lanectl parses and explains by it, the agent has
// a handler for each row that is its own (commands.cpp), and a test holds the two together. Constant data, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lk {

enum class ArgumentKind : std::uint8_t {
  kWord,    // positional
  kNumber,  // positional
  kWords,   // positional, all that follow
  kOption,  // --name VALUE
  kValues,  // --name VALUE…
  kFlag,    // --name
};

struct CommandArgument {
  std::string_view name;
  ArgumentKind kind{};
  bool required = false;
  std::string_view help;
};

struct CommandRow {
  std::string_view name;  // "show links"
  std::string_view help;  // one line
  std::string_view example;
  std::vector<CommandArgument> arguments = {};
  bool agents = true;  // false: lanectl's own
};

const std::vector<CommandRow>& command_table();

}  // namespace lk

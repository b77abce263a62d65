// What a command's JSON result looks like for a person. Pure; nothing fails for results of this version's agent.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lk {

// Text for stdout, ends with a newline.
std::string print_result(std::string_view command, const nlohmann::json& result);

// Whether the answer is bad news (exit code 1).
bool is_bad_news(std::string_view command, const nlohmann::json& result);

}  // namespace lk

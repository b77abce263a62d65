// TextTable: rows of JSON objects as a table for people: at most 100 columns wide, units in the headings. The last
// column is cut where the line would be longer. Any thread; nothing fails.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lk {

inline constexpr std::size_t kTableWidth = 100;

struct TextColumn {
  std::string heading;
  std::function<std::string(const nlohmann::json& row)> text;
  bool right = false;  // numbers
};

std::string text_table(const nlohmann::json& rows, const std::vector<TextColumn>& columns);

// Columns of one key. Numbers: `per` of the key's unit make one of the heading's; null is "-".
TextColumn word_column(std::string heading, std::string key);
TextColumn number_column(std::string heading, std::string key, double per = 1, int digits = 4);
TextColumn count_column(std::string heading, std::string key);

}  // namespace lk

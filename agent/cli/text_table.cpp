#include "agent/cli/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lk {
namespace {

using nlohmann::json;

const json& at(const json& row, const std::string& key) {
  static const json kNull;
  const auto found = row.find(key);
  return found == row.end() ? kNull : *found;
}

// Letters, not bytes: a byte that continues a letter has the form 10xxxxxx.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string cut(const std::string& text, std::size_t most) {
  if (width_of(text) <= most) return text;
  std::size_t bytes = 0;
  for (std::size_t letters = 0; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xc0U) != 0x80U;
    if (begins && letters++ == most - 1) break;
  }
  return text.substr(0, bytes) + "…";
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? space + text : text + space;
}

}  // namespace

std::string text_table(const json& rows, const std::vector<TextColumn>& columns) {
  std::vector<std::vector<std::string>> cells(1);
  for (const TextColumn& c : columns) cells[0].push_back(c.heading);
  for (const json& row : rows) {
    cells.emplace_back();
    for (const TextColumn& c : columns) cells.back().push_back(c.text(row));
  }
  std::vector<std::size_t> width(columns.size(), 0);
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], width_of(line[i]));
  }
  std::size_t before_last = 0;
  for (std::size_t i = 0; i + 1 < width.size(); ++i) before_last += width[i] + 2;
  const std::size_t room = before_last + 8 < kTableWidth ? kTableWidth - before_last : 8;
  width.back() = std::min(width.back(), room);
  std::string out;
  for (const auto& line : cells) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += (i == 0 ? "" : "  ") +
              padded(i + 1 == line.size() ? cut(line[i], room) : line[i], width[i], columns[i].right);
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

TextColumn word_column(std::string heading, std::string key) {
  return {std::move(heading), [key = std::move(key)](const json& row) {
            const json& value = at(row, key);
            if (value.is_null()) return std::string("-");
            return value.is_string() ? value.get<std::string>() : value.dump();
          }};
}

TextColumn number_column(std::string heading, std::string key, double per, int digits) {
  return {std::move(heading),
          [key = std::move(key), per, digits](const json& row) {
            const json& value = at(row, key);
            return value.is_number() ? fmt::format("{:.{}g}", value.get<double>() / per, digits) : std::string("-");
          },
          true};
}

TextColumn count_column(std::string heading, std::string key) {
  TextColumn c = word_column(std::move(heading), std::move(key));
  c.right = true;
  return c;
}

}  // namespace lk

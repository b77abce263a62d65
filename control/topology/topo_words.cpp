#include "control/topology/topo_words.hpp"

#include <algorithm>
#include <cctype>

namespace lk {
namespace {

bool digit(char c) noexcept { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool letter(char c) noexcept { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

constexpr unsigned kMostLinks = 36;       // no GPU has more NVLinks
constexpr unsigned kMostLinksGlued = 18;  // where the digits behind could be an affinity

struct CellName {
  std::string_view name;
  Relation relation;
};
constexpr CellName kCellNames[] = {{"NODE", Relation::kNode}, {"PIX", Relation::kPix}, {"PXB", Relation::kPxb},
                                   {"PHB", Relation::kPhb},   {"SYS", Relation::kSys}, {"SOC", Relation::kSys},
                                   {"X", Relation::kSelf}};

struct Taken {
  Cell cell;
  std::size_t length = 0;  // 0: no cell here
};

// The cell at the front of s, which may go on behind it.
Taken take_cell(std::string_view s) noexcept {
  for (const CellName& c : kCellNames) {
    if (s.substr(0, c.name.size()) == c.name) return {{c.relation, 0}, c.name.size()};
  }
  if (s.size() < 3 || s[0] != 'N' || s[1] != 'V' || !digit(s[2])) return {};
  unsigned links = static_cast<unsigned>(s[2] - '0');
  std::size_t length = 3;
  if (s.size() > 3 && digit(s[3])) {
    const unsigned two = links * 10 + static_cast<unsigned>(s[3] - '0');
    const bool more = s.size() > 4 && (digit(s[4]) || s[4] == '-' || s[4] == ',');
    const bool list_needs_it = s.size() > 4 && (s[4] == '-' || s[4] == ',');
    if (two <= (more ? kMostLinksGlued : kMostLinks) && !list_needs_it) {
      links = two;
      length = 4;
    }
  }
  return links == 0 ? Taken{} : Taken{{Relation::kNvlink, static_cast<std::uint16_t>(links)}, length};
}

// Cuts a word into [name] cells [rest]. False when it is not made so.
bool take_glued(std::string_view word, std::size_t name_length, std::vector<TopoWord>& out) {
  std::vector<TopoWord> found;
  if (name_length > 0) found.push_back({std::string(word.substr(0, name_length)), {}, 0, 0, false});
  std::size_t at = name_length;
  std::size_t cells = 0;
  while (at < word.size()) {
    if (cells > 0 && (word[at] == ',' || word[at] == ';')) ++at;
    const Taken taken = take_cell(word.substr(at));
    if (taken.length == 0) break;
    found.push_back({std::string(word.substr(at, taken.length)), taken.cell, at, 0, at > 0});
    at += taken.length;
    ++cells;
  }
  if (cells == 0) return false;
  if (at < word.size()) {
    if (!digit(word[at]) && word.substr(at, 3) != "N/A") return false;
    found.push_back({std::string(word.substr(at)), {}, at, 0, true});
  }
  out = std::move(found);
  return true;
}

std::vector<TopoWord> split_word(std::string_view word) {
  if (const auto cell = cell_of(word)) return {{std::string(word), cell, 0, 0, false}};
  std::vector<TopoWord> out;
  if (take_glued(word, 0, out)) return out;
  for (std::size_t name = 2; name < word.size() && name < 40; ++name) {
    if (digit(word[name - 1]) && is_device_name(word.substr(0, name)) && take_glued(word, name, out)) return out;
  }
  return {{std::string(word), {}, 0, 0, false}};
}

}  // namespace

std::optional<Cell> cell_of(std::string_view word) noexcept {
  char upper[8] = {};
  if (word.empty() || word.size() >= sizeof upper) return {};
  std::transform(word.begin(), word.end(), upper,
                 [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  const Taken taken = take_cell({upper, word.size()});
  if (taken.length != word.size()) return {};
  return taken.cell;
}

bool is_device_name(std::string_view word) noexcept {
  return word.size() >= 2 && word.size() <= 64 && letter(word[0]) && std::any_of(word.begin(), word.end(), digit) &&
         std::all_of(word.begin(), word.end(),
                     [](char c) { return letter(c) || digit(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_affinity(std::string_view word) noexcept {
  if (word == "N/A" || word == "n/a" || word == "-") return true;
  if (word.substr(0, 2) == "0x") word.remove_prefix(2);
  return !word.empty() && digit(word[0]) && std::all_of(word.begin(), word.end(), [](char c) {
    return digit(c) || c == '-' || c == ',' || (c >= 'a' && c <= 'f');
  });
}

bool is_gpu_name(std::string_view word) noexcept {
  return word.size() > 3 && word.substr(0, 3) == "GPU" && std::all_of(word.begin() + 3, word.end(), digit);
}

bool is_elision(std::string_view word) noexcept {
  return word == "\xe2\x80\xa6" || word == "[...]" || word == "[snip]" || word == "<snip>" ||
         (word.size() >= 2 && word.find_first_not_of('.') == std::string_view::npos);
}

std::vector<TopoWord> words_of(std::string_view line) {
  std::vector<TopoWord> out;
  unsigned tabs = 0;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] == ' ' || line[at] == '\t') {
      tabs += line[at] == '\t' ? 1 : 0;
      ++at;
      continue;
    }
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    if (is_elision(line.substr(at, end - at))) {
      tabs = 0;
      at = end;
      continue;
    }
    for (TopoWord& word : split_word(line.substr(at, end - at))) {
      word.column += at;
      if (!word.glued) word.tabs = tabs;
      out.push_back(std::move(word));
    }
    tabs = 0;
    at = end;
  }
  return out;
}

std::vector<std::string> device_names_in(std::string_view word) {
  static constexpr std::string_view kPrefixes[] = {"GPU",   "NIC",   "mlx5_bond_", "mlx5_bond", "mlx5_", "mlx4_",
                                                   "irdma", "hfi1_", "bnxt_re",    "efa_",      "cxi"};
  std::vector<std::string> names;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t length = 0;
    for (const std::string_view prefix : kPrefixes) {
      if (word.substr(at, prefix.size()) != prefix) continue;
      std::size_t end = at + prefix.size();
      while (end < word.size() && digit(word[end])) ++end;
      if (end > at + prefix.size()) length = std::max(length, end - at);
    }
    if (length == 0) {
      // Not a sequence of known names: one name, or names and the affinity headers glued behind.
      if (names.empty() || word.substr(at, 3) != "CPU") return {std::string(word)};
      names.emplace_back(word.substr(at));
      return names;
    }
    names.emplace_back(word.substr(at, length));
    at += length;
  }
  return names;
}

std::string bare_name(std::string_view word) {
  while (!word.empty() && (word.back() == ':' || word.back() == '=')) word.remove_suffix(1);
  const std::size_t colon = word.find_last_of(":)>#*|\"'`");
  if (colon != std::string_view::npos) word.remove_prefix(colon + 1);
  return is_device_name(word) ? std::string(word) : std::string();
}

}  // namespace lk

#include "agent/config_value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace lk {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr Unit kSpans[] = {{"min", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};
constexpr Unit kSizes[] = {{"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}, {"B", 1}};

// Number and unit apart; nothing when the text does not begin with a digit.
std::optional<std::pair<double, std::string_view>> split(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || number < 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return std::pair{number, unit};
}

template <std::size_t N>
std::optional<double> parse_with(const Unit (&units)[N], std::string_view text) {
  const auto parts = split(text);
  if (!parts) return std::nullopt;
  for (const Unit& u : units) {
    if (u.name == parts->second) return parts->first * static_cast<double>(u.factor);
  }
  return std::nullopt;
}

std::optional<unsigned> parse_unsigned(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, corner + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      corner = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<Nanos> parse_span(std::string_view text) {
  const auto ns = parse_with(kSpans, text);
  // "1.029ms" is 1029000 less a hair: decimals are not exact in binary.
  if (!ns || *ns > 9e18 || std::abs(*ns - std::round(*ns)) > std::max(1e-3, *ns * 1e-15)) return std::nullopt;
  return static_cast<Nanos>(std::llround(*ns));
}

std::optional<Bytes> parse_size(std::string_view text) {
  const auto bytes = parse_with(kSizes, text);
  if (!bytes || *bytes > 9e18 || *bytes != std::floor(*bytes)) return std::nullopt;
  return static_cast<Bytes>(*bytes);
}

std::optional<CoreList> parse_cores(std::string_view text) {
  std::set<unsigned> cores;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_unsigned(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_unsigned(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 65535) return std::nullopt;
    for (unsigned core = *first; core <= *last; ++core) cores.insert(core);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return CoreList(cores.begin(), cores.end());
}

std::string span_text(Nanos span) {
  const auto ns = static_cast<std::uint64_t>(span);
  for (const Unit& u : kSpans) {
    if (u.name == "min" && ns % u.factor != 0) continue;  // "90s", not "1.5min"
    if (ns < u.factor || (ns * 1000) % u.factor != 0) continue;
    return fmt::format("{}{}", static_cast<double>(ns) / static_cast<double>(u.factor), u.name);
  }
  return fmt::format("{}ns", ns);
}

std::string size_text(Bytes size) {
  for (const Unit& u : kSizes) {
    if (size >= u.factor && size % u.factor == 0) return fmt::format("{}{}", size / u.factor, u.name);
  }
  return "0B";
}

std::string cores_text(const CoreList& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t j = i;
    while (j + 1 < cores.size() && cores[j + 1] == cores[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (j > i) text += fmt::format("-{}", cores[j]);
    i = j + 1;
  }
  return text;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& k : known) {
    const std::size_t edits = edits_between(word, k);
    if (edits < least) {
      least = edits;
      best = k;
    }
  }
  return best;
}

}  // namespace lk

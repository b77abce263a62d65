#include "agent/fault_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "agent/config_value.hpp"
#include "agent/fault_toml.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

enum Argument : unsigned { kRate = 1, kDelay = 2, kPeriod = 4, kSilent = 8 };  // those that not every kind has

struct KindRow {
  FaultKind kind;
  unsigned has, needs;
};
constexpr KindRow kKinds[] = {
    {FaultKind::kCut, kSilent, 0},       {FaultKind::kDegrade, kRate, kRate},
    {FaultKind::kDelay, kDelay, kDelay}, {FaultKind::kStall, 0, 0},
    {FaultKind::kDrop, kRate, 0},        {FaultKind::kCorrupt, kRate, 0},
    {FaultKind::kDuplicate, kRate, 0},   {FaultKind::kLate, kRate | kDelay, kDelay},
    {FaultKind::kBad, kRate, 0},         {FaultKind::kFlap, kRate | kPeriod | kSilent, kPeriod},
};

struct ArgumentRow {
  std::string_view word;
  unsigned only;  // kinds that have it; 0: all
  std::string_view expected;
};
constexpr ArgumentRow kArguments[] = {
    {"rate", kRate, "a number above 0 and up to 1, as 0.25"},
    {"delay", kDelay, "a time with its unit, as 2ms"},
    {"period", kPeriod, "a time of 1ms or more with its unit, as 12s"},
    {"silent", kSilent, "true or false"},
    {"direction", 0, "tx or rx"},
    {"at", 0, "a time with its unit, as 5ms"},
    {"for", 0, "a time above 0 with its unit, as 2s"},
    {"seed", 0, "a whole number"},
};

[[noreturn]] void fail(std::string_view place, std::string_view word, std::string_view problem) {
  throw InputError(fmt::format("{} '{}': {}", place, word, problem));
}

std::string near(std::string_view word, const std::vector<std::string>& known) {
  const std::string best = nearest_word(word, known);
  return best.empty() ? "" : fmt::format(" (did you mean {}?)", best);
}

const KindRow& kind_row(FaultKind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds), [kind](const KindRow& k) { return k.kind == kind; });
}

FaultKind kind_of(std::string_view word, std::string_view place) {
  std::vector<std::string> known;
  for (const KindRow& k : kKinds) {
    known.emplace_back(name_of(k.kind));
    if (word == known.back()) return k.kind;
  }
  fail(place, word, fmt::format("no such kind of fault; expected {}{}", fmt::join(known, ", "), near(word, known)));
}

std::vector<std::string> arguments_of(const KindRow& kind) {
  std::vector<std::string> words;
  for (const ArgumentRow& a : kArguments) {
    if (a.only == 0 || (kind.has & a.only) != 0) words.emplace_back(a.word);
  }
  return words;
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// False: the value is none for that argument.
bool set_argument(FaultSpec& f, std::string_view key, std::string_view value) {
  if (key == "rate") {
    f.rate = number_of(value);
    return f.rate && *f.rate > 0 && *f.rate <= 1;
  }
  if (key == "silent") {
    f.silent = value == "true";
    return value == "true" || value == "false";
  }
  if (key == "direction") {
    f.directions = value == "tx" ? kForwardOnly : kBackwardOnly;
    return value == "tx" || value == "rx";
  }
  if (key == "seed") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), f.seed);
    return error == std::errc{} && end == value.data() + value.size();
  }
  const auto span = parse_span(value);
  if (!span) return false;
  if (key == "delay") f.delay = span;
  if (key == "period") f.period = span;
  if (key == "at") f.at = *span;
  if (key == "for") f.lasts = span;
  return *span >= (key == "period" ? kMilli : key == "for" ? 1 : 0);
}

// One argument, however it was written down.
void take_argument(FaultSpec& f, const KindRow& kind, std::string_view key, std::string_view value,
                   std::string_view place, std::string_view word) {
  const auto row =
      std::find_if(std::begin(kArguments), std::end(kArguments), [key](const ArgumentRow& a) { return a.word == key; });
  const auto known = arguments_of(kind);
  if (row == std::end(kArguments)) {
    fail(place, word, fmt::format("no such argument; expected {}{}", fmt::join(known, ", "), near(key, known)));
  }
  if (row->only != 0 && (kind.has & row->only) == 0) {
    fail(place, word, fmt::format("{} has no {}; expected {}", name_of(kind.kind), key, fmt::join(known, ", ")));
  }
  if (!set_argument(f, key, value)) fail(place, word, fmt::format("expected {}", row->expected));
}

void check_needs(const FaultSpec& f, const KindRow& kind, std::string_view place) {
  const unsigned given = (f.rate ? kRate : 0U) | (f.delay ? kDelay : 0U) | (f.period ? kPeriod : 0U);
  for (const ArgumentRow& a : kArguments) {
    if (a.only != 0 && (kind.needs & a.only & ~given) != 0) {
      throw InputError(fmt::format("{}: {} needs {}=; expected {}", place, name_of(f.kind), a.word, a.expected));
    }
  }
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    words.push_back(text.substr(0, text.find_first_of(" \t")));
    text.remove_prefix(words.back().size());
  }
}

}  // namespace

FaultSpec parse_fault(std::string_view text, std::string_view place) {
  const auto words = words_of(text);
  if (words.size() < 2) {
    throw InputError(fmt::format("{}: '{}': expected KIND TARGET, as cut n0.mlx5_0.port1", place, text));
  }
  const auto at = [place](std::size_t i) { return fmt::format("{}: word {}", place, i + 1); };
  FaultSpec f;
  f.kind = kind_of(words[0], at(0));
  f.target = words[1];
  f.place = at(1);
  const KindRow& kind = kind_row(f.kind);
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) fail(at(i), words[i], "expected KEY=VALUE");
    take_argument(f, kind, words[i].substr(0, equals), words[i].substr(equals + 1), at(i), words[i]);
  }
  check_needs(f, kind, place);
  return f;
}

std::string fault_to_text(const FaultSpec& f) {
  std::string text = fmt::format("{} {}", name_of(f.kind), f.target);
  const auto add = [&text](std::string_view key, const auto& value) { text += fmt::format(" {}={}", key, value); };
  if (f.rate) add("rate", *f.rate);
  if (f.delay) add("delay", span_text(*f.delay));
  if (f.period) add("period", span_text(*f.period));
  if (f.directions != kBothDirections) add("direction", f.directions == kForwardOnly ? "tx" : "rx");
  if (f.at != 0) add("at", span_text(f.at));
  if (f.lasts) add("for", span_text(*f.lasts));
  if (f.seed != 1) add("seed", f.seed);
  if (f.silent) add("silent", true);
  return text;
}

std::string toml_place(const std::string& path, const toml::node& node, std::string_view key) {
  return fmt::format("{}:{}: {}", path, node.source().begin.line, key);
}

toml::table read_toml(const std::string& path) {
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    throw InputError(fmt::format("{}:{}: {}", path, e.source().begin.line, e.description()));
  }
}

std::vector<FaultSpec> faults_of(const toml::table& file, const std::string& path) {
  std::vector<FaultSpec> faults;
  const toml::node* node = file.get("fault");
  if (node == nullptr) return faults;
  const toml::array* rows = node->as_array();
  if (rows == nullptr) throw InputError(toml_place(path, *node, "fault: expected rows that begin with [[fault]]"));
  for (const toml::node& item : *rows) {
    const toml::table* row = item.as_table();
    if (row == nullptr) throw InputError(toml_place(path, item, "fault: expected rows that begin with [[fault]]"));
    const auto word = [&](const char* key) {
      const auto value = (*row)[key].value<std::string>();
      if (!value) throw InputError(toml_place(path, item, fmt::format("fault: expected {} = \"…\"", key)));
      return *value;
    };
    FaultSpec f;
    const std::string kind_word = word("kind");
    f.kind = kind_of(kind_word, toml_place(path, *row->get("kind"), "kind"));
    f.target = word("target");
    f.place = toml_place(path, *row->get("target"), "target");
    const KindRow& kind = kind_row(f.kind);
    for (const auto& [key, value] : *row) {
      if (key == "kind" || key == "target") continue;
      std::string text = value.is_string() ? **value.as_string() : std::string();
      if (value.is_integer()) text = std::to_string(**value.as_integer());
      if (value.is_floating_point()) text = fmt::format("{}", **value.as_floating_point());
      if (value.is_boolean()) text = **value.as_boolean() ? "true" : "false";
      take_argument(f, kind, key.str(), text, toml_place(path, value, key.str()), text);
    }
    check_needs(f, kind, toml_place(path, item, "fault"));
    faults.push_back(std::move(f));
  }
  return faults;
}

std::vector<FaultSpec> read_fault_plan(const std::string& path) {
  const toml::table file = read_toml(path);
  for (const auto& [key, value] : file) {
    if (key != "fault")
      throw InputError(toml_place(path, value, fmt::format("{}: expected [[fault]] rows", key.str())));
  }
  return faults_of(file, path);
}

FaultRows FaultPlan::inject(const FaultSpec& fault, Nanos now) {
  FaultRows rows = expand_fault(fault, cluster_, next_id_, now);
  entries_.push_back({next_id_++, fault, now});
  return rows;
}

FaultRows FaultPlan::clear(std::string_view text) {
  const auto words = words_of(text);
  FaultRow row;
  row.kind = FaultKind::kClear;
  if (words.size() == 1 && words[0] == "all") {
    entries_.clear();
    return {{row}, {row}};
  }
  std::uint32_t id = 0;
  if (words.size() == 1) {
    const auto [end, error] = std::from_chars(words[0].data(), words[0].data() + words[0].size(), id);
    if (error != std::errc{} || end != words[0].data() + words[0].size()) id = 0;
  }
  FaultRows rows;
  std::erase_if(entries_, [&](const Entry& e) {
    const bool named = words.size() == 2 && words[0] == name_of(e.fault.kind) && words[1] == e.fault.target;
    if (e.id != id && !named) return false;
    row.fault = e.id;
    rows.wire.push_back(row);
    rows.control.push_back(row);
    return true;
  });
  if (!rows.wire.empty()) return rows;
  std::vector<std::string> known;
  for (const Entry& e : entries_) known.push_back(fmt::format("{} {} {}", e.id, name_of(e.fault.kind), e.fault.target));
  throw InputError(
      fmt::format("clear: '{}': no such fault; expected a number, KIND TARGET or all{}", text,
                  known.empty() ? ", and none is injected" : fmt::format(" of: {}", fmt::join(known, ", "))));
}

}  // namespace lk

#include "control/topology/topo_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "control/topology/topo_words.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

// The header words that are no device.
bool is_header_word(std::string_view w) noexcept {
  return w == "CPU" || w == "NUMA" || w == "Affinity" || w == "GPU" || w == "ID" || w == "AffinityNUMA" ||
         w == "AffinityGPU" || w.substr(0, 3) == "CPU";
}

// The front of a name that a terminal broke off at the end of a header line.
bool is_broken_name(std::string_view w, const std::vector<std::string>& devices) noexcept {
  for (const std::string_view name : {"GPU", "NIC", "CPU", "NUMA", "Affinity"}) {
    if (name.substr(0, w.size()) == w) return true;
  }
  return std::any_of(devices.begin(), devices.end(),
                     [&](const std::string& d) { return d.compare(0, w.size(), w) == 0; });
}

// 0-63 and what a broken line leaves of it: ",128-191", "-63", "/A".
bool is_affinity_piece(std::string_view w) noexcept {
  return is_affinity(w) || (w.size() > 1 && (w[0] == '-' || w[0] == ',') && is_affinity(w.substr(1))) || w == "/A" ||
         w == "A";
}

// "<pre>GPU0", "`GPU0", "12:GPU0": what stands behind the signs.
std::string without_tag(std::string_view word) {
  const std::size_t sign = word.find_last_of(":)>#*\"'`");
  return std::string(sign == std::string_view::npos || sign + 1 == word.size() ? word : word.substr(sign + 1));
}

struct HeaderLine {
  std::vector<std::string> devices;
  std::string after;  // affinity headers, blanks removed
  bool shifted = false;
};

// Device names up to the affinity headers, or none when the line is no header (or no continuation of one).
std::optional<HeaderLine> header_of(std::string_view line, bool continuation) {
  const std::vector<TopoWord> words = words_of(line);
  HeaderLine out;
  std::size_t i = 0;
  const auto first_gpu = [](const std::string& word) {
    return is_gpu_name(device_names_in(without_tag(word)).front());
  };
  while (!continuation && i < words.size() && !first_gpu(words[i].text)) ++i;
  const std::size_t first = i;
  if (i < words.size()) out.shifted = words[i].column < 8 && words[i].tabs == 0;
  for (; i < words.size(); ++i) {
    if (words[i].cell) return {};
    if (!out.after.empty() || is_header_word(words[i].text)) {
      out.after += words[i].text;
      continue;
    }
    for (std::string& name : device_names_in(i == first ? without_tag(words[i].text) : words[i].text)) {
      if (is_header_word(name)) {
        out.after += name;
      } else if (is_device_name(name)) {
        out.devices.push_back(std::move(name));
      } else if (i + 1 < words.size() || out.devices.size() < 2 || !is_broken_name(name, out.devices)) {
        return {};
      }
    }
  }
  if (continuation ? out.devices.empty() && out.after.empty()
                   : out.devices.empty() || (out.devices.size() == 1 && out.after.substr(0, 3) != "CPU")) {
    return {};
  }
  return out;
}

struct RowShape {
  std::size_t first = 0, last = 0;  // words that are the first and the last cell
  std::string name;
};

// Where a line's cells are and whose row it is; none when it has no cells or is a legend.
std::optional<RowShape> row_of(const std::vector<TopoWord>& words) {
  RowShape out;
  const auto is_cell = [](const TopoWord& w) { return w.cell.has_value(); };
  const auto first = std::find_if(words.begin(), words.end(), is_cell);
  if (first == words.end()) return {};
  out.first = static_cast<std::size_t>(first - words.begin());
  out.last = static_cast<std::size_t>(words.rend() - std::find_if(words.rbegin(), words.rend(), is_cell)) - 1;
  for (std::size_t i = out.first; i < words.size(); ++i) {
    if (words[i].text[0] == '=' || words[i].text == "Connection") return {};  // a legend line
  }
  if (out.first == 0) return out;
  const std::string& before = words[out.first - 1].text;
  out.name = bare_name(before);
  if (out.name.empty() && out.first >= 2 && is_affinity(before)) {  // "GPU 0"
    const std::string& kind = words[out.first - 2].text;
    if (kind == "GPU" || kind == "NIC") out.name = kind + before;
  }
  if (out.name.empty() && !is_affinity(before) && before.find_first_not_of(".:)]") != std::string::npos) return {};
  return out;
}

// What stands behind the cells. Blank fields are kept when tabs, or the columns that tabs once made, tell them.
void read_tail(const std::vector<TopoWord>& words, const RowShape& shape, std::string_view line, TopoRow& row) {
  std::vector<std::string>& tail = row.tail;
  const std::size_t base = words[shape.first == 0 ? 0 : shape.first - 1].column;
  const bool tabs = line.find('\t', base) != std::string_view::npos;
  bool aligned = !tabs;
  for (std::size_t i = shape.first; i <= shape.last && aligned; ++i) {
    aligned = words[i].cell && (words[i].column - base) % 8 == (words[i].cell->relation == Relation::kSelf ? 1U : 0U);
  }
  for (std::size_t i = shape.last + 1; i < words.size(); ++i) {
    unsigned fields = std::max(1U, words[i].tabs);
    if (aligned) {
      const std::size_t end = words[i - 1].column + words[i - 1].text.size() - base;
      fields = static_cast<unsigned>(std::max<std::size_t>(1, (words[i].column - base) / 8 - end / 8));
    }
    for (unsigned blank = 1; blank < fields && tail.size() < 16; ++blank) tail.emplace_back();
    tail.push_back(words[i].text);
  }
  row.tail_placed = tabs || aligned;
}

// `expected` cells, 0 when not known: blank places between cells count only where cells are missing without them.
std::optional<TopoRow> read_row(std::string_view line, int number, std::size_t expected) {
  const std::vector<TopoWord> words = words_of(line);
  const auto shape = row_of(words);
  if (!shape) return {};
  TopoRow row;
  row.name = shape->name;
  row.line = number;
  const std::size_t solid = shape->last - shape->first + 1;
  for (std::size_t i = shape->first; i <= shape->last; ++i) {
    if (i > shape->first && solid < expected) {
      for (unsigned blank = 1; blank < words[i].tabs && row.cells.size() < expected; ++blank) row.cells.emplace_back();
    }
    row.cells.push_back(words[i].cell);
  }
  read_tail(words, *shape, line, row);
  return row;
}

struct Logical {
  std::string text;
  int number = 0;
  bool header = false;
};

// Puts wrapped lines together again.
class Unwrapper {
 public:
  // width: where a terminal broke lines, in bytes; 0: lines were broken between words.
  Unwrapper(const CaptureText& text, std::size_t width) : text_(text), width_(width) {}

  void run() {
    for (const CaptureLine& line : text_.lines) take(line);
  }

  std::vector<Logical> lines;
  std::vector<std::size_t> broken_lengths;
  std::optional<std::string> leftover;  // the last line that was nothing

 private:
  void take(const CaptureLine& line) {
    if (line.text.find_first_not_of(" \t") == std::string::npos || stopped_) return;
    const bool rows = std::any_of(lines.begin(), lines.end(), [](const Logical& l) { return !l.header; });
    if (const auto header = header_of(line.text, false)) {
      if (rows) {
        stopped_ = true;  // a second table
        return;
      }
      if (!lines.empty() && lines.back().header) {
        glue(line);
      } else {
        open(line, true);
        columns_ = header->devices.size();
      }
      return;
    }
    const auto row = read_row(line.text, line.number, columns_);
    if (row && !row->name.empty()) {
      named_ = true;
      open(line, false);
    } else if (continues(line, row)) {
      glue(line);
    } else if (row) {
      open(line, false);
    } else {
      leftover = line.text;
    }
  }

  bool continues(const CaptureLine& line, const std::optional<TopoRow>& row) const {
    if (lines.empty() || glued_ >= kMostBreaks) return false;
    const Logical& last = lines.back();
    if (last.header) return !row && (header_of(line.text, true) || header_of(last.text + line.text, false));
    const auto before = read_row(last.text, last.number, columns_);
    if (!before) return false;
    const bool open_cells = columns_ == 0 ? named_ : before->cells.size() < columns_;
    if (row) return open_cells && (named_ || before->name.empty() == row->name.empty());
    const std::vector<TopoWord> words = words_of(line.text);
    const bool affinities = !words.empty() && std::all_of(words.begin(), words.end(),
                                                          [](const TopoWord& w) { return is_affinity_piece(w.text); });
    if (affinities && words.size() <= 3 && before->tail.size() < 3) return true;
    return open_cells && broken_word(last.text, line.text);
  }

  // "…  NO" and "DE  SYS …": only together a cell.
  static bool broken_word(const std::string& before, const std::string& after) {
    const std::vector<TopoWord> left = words_of(before);
    const std::vector<TopoWord> right = words_of(after);
    if (left.empty() || right.empty() || after[0] == ' ' || after[0] == '\t') return false;
    return !left.back().cell && cell_of(left.back().text + right.front().text).has_value();
  }

  void open(const CaptureLine& line, bool header) {
    lines.push_back({line.text, line.number, header});
    last_length_ = line.text.size();
    glued_ = 0;
  }

  void glue(const CaptureLine& line) {
    Logical& last = lines.back();
    broken_lengths.push_back(last_length_);
    ++glued_;
    if (width_ != 0) {
      last.text.append(last_length_ < width_ ? width_ - last_length_ : 0, ' ');
    } else if (!broken_word(last.text, line.text) && !(last.header && !header_of(last.text + ' ' + line.text, false))) {
      last.text += last.text.find('\t') != std::string::npos ? '\t' : ' ';
    }
    last.text += line.text;
    last_length_ = line.text.size();
    if (last.header) {
      if (const auto header = header_of(last.text, false)) columns_ = header->devices.size();
    }
  }

  const CaptureText& text_;
  std::size_t width_;
  static constexpr std::size_t kMostBreaks = 64;  // of one row; keeps the work on garbage linear
  std::size_t columns_ = 0, last_length_ = 0, glued_ = 0;
  bool named_ = false, stopped_ = false;
};

// A terminal breaks every line at one width; a mail program breaks between words.
std::size_t terminal_width(const std::vector<std::size_t>& lengths) {
  if (lengths.size() < 2) return 0;
  const std::size_t widest = *std::max_element(lengths.begin(), lengths.end());
  const auto full = std::count(lengths.begin(), lengths.end(), widest);
  return static_cast<std::size_t>(full) * 2 > lengths.size() ? widest : 0;
}

void read_legend(const CaptureText& text, TopoRows& out) {
  for (const CaptureLine& line : text.lines) {
    if (line.text.find("Legend") != std::string::npos || line.text.find("= Connection") != std::string::npos) {
      out.has_legend = true;
    }
    for (std::size_t at = line.text.find("NIC"); at != std::string::npos; at = line.text.find("NIC", at + 3)) {
      std::size_t end = at + 3;
      while (end < line.text.size() && std::isdigit(static_cast<unsigned char>(line.text[end])) != 0) ++end;
      const std::string name = line.text.substr(at, end - at);
      while (end < line.text.size() && line.text[end] == ' ') ++end;
      if (name.size() < 4 || end >= line.text.size() || (line.text[end] != ':' && line.text[end] != '=')) continue;
      const std::size_t start = line.text.find_first_not_of(" \t", end + 1);
      if (start == std::string::npos) continue;
      const std::size_t stop = std::min(line.text.find_first_of(" \t,;", start), line.text.size());
      const std::string device = line.text.substr(start, stop - start);
      if (!is_device_name(device)) continue;
      out.has_nic_legend = true;
      out.legend.emplace(name, device);
    }
  }
}

void read_header(const Logical& line, TopoRows& out) {
  const auto header = header_of(line.text, false);
  if (!header) return;
  out.has_header = true;
  out.header = header->devices;
  out.header_shifted = header->shifted;
  out.has_cpu = header->after.find("CPU") != std::string::npos;
  out.has_gpu_numa = header->after.find("GPUN") != std::string::npos;
  const std::size_t numa = header->after.find("NUMA");
  out.has_numa = numa != std::string::npos && (numa < 3 || header->after.compare(numa - 3, 3, "GPU") != 0);
}

// Rows that lost the line breaks between them: a name with a cell behind it, after something of the table, begins a
// line; so does a legend.
CaptureText one_row_a_line(const CaptureText& text) {
  CaptureText out = text;
  out.lines.clear();
  for (const CaptureLine& line : text.lines) {
    const std::vector<TopoWord> words = words_of(line.text);
    std::size_t start = 0;
    bool table = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool row = i + 1 < words.size() && !words[i].cell && words[i + 1].cell && is_device_name(words[i].text);
      const bool legend = words[i].text.substr(0, 6) == "Legend";
      if (table && (row || legend)) {
        out.lines.push_back({line.text.substr(start, words[i].column - start), line.number});
        start = words[i].column;
      }
      table = table || words[i].cell || is_gpu_name(words[i].text);
    }
    out.lines.push_back({line.text.substr(start), line.number});
  }
  return out;
}

}  // namespace

TopoRows find_topo_rows(const CaptureText& pasted, const std::string& source) {
  const CaptureText text = one_row_a_line(pasted);
  Unwrapper soft(text, 0);
  soft.run();
  std::vector<Logical> lines = std::move(soft.lines);
  TopoRows out;
  out.wrapped = !soft.broken_lengths.empty();
  if (const std::size_t width = terminal_width(soft.broken_lengths); width != 0) {
    Unwrapper hard(text, width);
    hard.run();
    lines = std::move(hard.lines);
  }
  for (const Logical& line : lines) {
    if (line.header) {
      read_header(line, out);
    } else if (auto row = read_row(line.text, line.number, out.header.size())) {
      out.rows.push_back(std::move(*row));
    }
  }
  if (out.rows.empty()) {
    throw InputError(
        out.has_header
            ? fmt::format("{}: a topology header but no row below it; expected rows like \"GPU0 X NV12\"", source)
            : fmt::format("{}: no topology table; expected rows like \"GPU0 X NV12 PIX\"", source));
  }
  std::size_t widest = out.header.size();
  for (const TopoRow& row : out.rows) widest = std::max(widest, row.cells.size());
  if (widest > kMostDevices || out.rows.size() > 4 * kMostDevices) {
    throw InputError(fmt::format("{}: a table of {} columns and {} rows; expected at most {} devices", source, widest,
                                 out.rows.size(), kMostDevices));
  }
  for (const CaptureLine& line : text.lines) {
    out.narrow_x = out.narrow_x || line.text.find("\tX\t") != std::string::npos;
    const std::vector<TopoWord> words = words_of(line.text);
    if (std::none_of(words.begin(), words.end(), [](const TopoWord& w) { return w.cell.has_value(); })) continue;
    for (const TopoWord& word : words) out.glued = out.glued || word.glued;
    std::istringstream raw(line.text);
    for (std::string word; raw >> word;) out.elided = out.elided || is_elision(word);
  }
  if (soft.leftover && words_of(*soft.leftover).size() == 1) out.cut_name = words_of(*soft.leftover).front().text;
  read_legend(text, out);
  return out;
}

}  // namespace lk

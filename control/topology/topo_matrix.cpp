#include "control/topology/topo_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "control/topology/findings.hpp"
#include "control/topology/topo_rows.hpp"
#include "control/topology/topo_words.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Names of all columns, and for each row the column that it is.
class Columns {
 public:
  Columns(TopoRows& rows, const std::string& source) : rows_(rows), source_(source) {
    names_ = rows.header;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!index_.emplace(names_[i], i).second) {
        throw InputError(fmt::format("{}: header: column {} stands twice", source, names_[i]));
      }
    }
    for (const TopoRow& row : rows.rows) widest_ = std::max(widest_, row.cells.size());
    if (rows.has_header) {
      extend_header();
    } else {
      from_rows();
    }
    name_the_rest();
  }

  const std::vector<std::string>& names() const noexcept { return names_; }
  std::size_t of(const std::string& name) const noexcept {
    const auto it = index_.find(name);
    return it == index_.end() ? kNone : it->second;
  }
  std::size_t missing_in_header() const noexcept { return added_; }

 private:
  static std::size_t self_of(const TopoRow& row) noexcept {
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      if (row.cells[i] && row.cells[i]->relation == Relation::kSelf) return i;
    }
    return kNone;
  }

  void place(const std::string& name, std::size_t column, const TopoRow& row) {
    if (column >= names_.size()) names_.resize(column + 1);
    if (!names_[column].empty() && names_[column] != name) {
      throw InputError(
          fmt::format("{}:{}: row {}: its X stands in the column of {}", source_, row.line, name, names_[column]));
    }
    names_[column] = name;
    index_.emplace(name, column);
  }

  // A header that was cut has fewer names than the rows have cells: the rows say the rest.
  void extend_header() {
    const std::size_t known = names_.size();
    for (const TopoRow& row : rows_.rows) {
      const std::size_t self = self_of(row);
      if (row.name.empty() || index_.contains(row.name) || self == kNone || self < known) continue;
      place(row.name, self, row);
    }
    if (widest_ > names_.size()) names_.resize(widest_);
    added_ = names_.size() - known;
  }

  void from_rows() {
    names_.resize(widest_);
    for (const TopoRow& row : rows_.rows) {
      if (row.name.empty() || index_.contains(row.name)) continue;
      std::size_t column = self_of(row);
      if (column == kNone && is_gpu_name(row.name) && row.name.size() < 7) {  // cut before its X
        column = static_cast<std::size_t>(std::stoul(row.name.substr(3)));
        if (column >= kMostDevices) column = kNone;
      }
      if (column != kNone) place(row.name, column, row);
    }
  }

  bool has_nvlink(std::size_t column) const {
    return std::any_of(rows_.rows.begin(), rows_.rows.end(), [&](const TopoRow& row) {
      return column < row.cells.size() && row.cells[column] && row.cells[column]->relation == Relation::kNvlink;
    });
  }

  // Columns that nothing names: a GPU where NVLink leads to it or a GPU stands behind it, else a NIC.
  void name_the_rest() {
    std::size_t last_gpu = kNone;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (is_gpu_name(names_[i]) || (names_[i].empty() && has_nvlink(i))) last_gpu = i;
    }
    // A row without a name that has affinities behind its cells is a GPU's.
    for (TopoRow& row : rows_.rows) {
      const std::size_t self = self_of(row);
      if (row.name.empty() && self != kNone && !row.tail.empty() && (last_gpu == kNone || self > last_gpu)) {
        last_gpu = self;
      }
    }
    std::size_t nics = 0;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const bool gpu = last_gpu != kNone && i <= last_gpu;
      if (names_[i].empty()) {
        names_[i] = gpu ? fmt::format("GPU{}", i) : fmt::format("NIC?{}", nics);
        index_.emplace(names_[i], i);
      }
      nics += is_gpu_name(names_[i]) ? 0 : 1;
    }
    for (TopoRow& row : rows_.rows) {
      const std::size_t self = self_of(row);
      if (row.name.empty() && self != kNone && row.cells.size() <= names_.size()) row.name = names_[self];
    }
  }

  TopoRows& rows_;
  const std::string& source_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t widest_ = 0, added_ = 0;
};

class MatrixBuilder {
 public:
  MatrixBuilder(TopoRows rows, const std::string& source)
      : rows_(std::move(rows)), columns_(rows_, source), source_(source) {
    out_.kind = CaptureKind::kTopoMatrix;
    out_.source = source;
    out_.columns = columns_.names();
    add_devices();
    grid_.resize(out_.columns.size() * out_.columns.size());
    seen_.resize(out_.columns.size());
    drop_cut_cell();
    for (const TopoRow& row : rows_.rows) add_row(row);
    join_halves();
    find_cuts();
  }

  NodeTopology take() { return std::move(out_); }
  const TopoRows& rows() const noexcept { return rows_; }

 private:
  void add_devices() {
    const std::size_t n = out_.columns.size();
    out_.column_device.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (!is_gpu_name(out_.columns[i])) continue;
      out_.column_device[i] = out_.gpus.size();
      out_.gpus.emplace_back().name = out_.columns[i];
    }
    if (out_.gpus.empty())
      throw InputError(fmt::format("{}: no GPU in the table; expected rows GPU0, GPU1, …", source_));
    for (std::size_t i = 0; i < n; ++i) {
      if (is_gpu_name(out_.columns[i])) continue;
      out_.column_device[i] = out_.gpus.size() + out_.nics.size();
      NicFact& nic = out_.nics.emplace_back();
      nic.name = out_.columns[i];
      if (const auto it = rows_.legend.find(nic.name); it != rows_.legend.end())
        nic.device = it->second;
      else if (nic.name.substr(0, 3) != "NIC")
        nic.device = nic.name;
    }
    out_.has_cpu_column = rows_.has_cpu;
    out_.has_numa_column = rows_.has_numa;
    out_.has_gpu_numa_column = rows_.has_gpu_numa;
    if (rows_.has_header) return;
    std::size_t fields = 0;
    for (const TopoRow& row : rows_.rows) {
      const auto solid =
          std::count_if(row.tail.begin(), row.tail.end(), [](const std::string& f) { return !f.empty(); });
      const bool glued = solid == 1 && row.tail.back().size() > 3 && row.tail.back().ends_with("N/A");
      fields = std::max(fields, glued ? std::size_t{3} : static_cast<std::size_t>(solid));
    }
    out_.has_cpu_column = fields >= 1;
    out_.has_numa_column = fields >= 2;
    out_.has_gpu_numa_column = fields >= 3;
  }

  // How far a row's cells are moved against the columns: cells lost in front of its X move it to the left.
  std::size_t shift_of(const TopoRow& row, std::size_t column) const {
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      if (!row.cells[i] || row.cells[i]->relation != Relation::kSelf) continue;
      if (i == column) return 0;
      if (i > column || row.cells.size() + (column - i) > out_.columns.size()) {
        throw InputError(fmt::format("{}:{}: row {}: its X stands under {}, expected under {}", source_, row.line,
                                     row.name, i < out_.columns.size() ? out_.columns[i] : "no column",
                                     out_.columns[column]));
      }
      return column - i;
    }
    return 0;
  }

  // A text that ends in "NV1" may have been cut out of "NV12"; the last row of a whole table ends in X or in
  // affinities.
  void drop_cut_cell() {
    TopoRow& last = rows_.rows.back();
    if (!last.tail.empty() || !last.cells.back()) return;
    if (last.cells.back()->relation == Relation::kNvlink && last.cells.back()->links < 10) last.cells.pop_back();
  }

  void add_row(const TopoRow& row) {
    const std::size_t n = out_.columns.size();
    const std::size_t column = columns_.of(row.name);
    if (column == kNone) {
      throw InputError(fmt::format("{}:{}: row {}: not among the columns {} … {}", source_, row.line,
                                   row.name.empty() ? "without a name" : row.name, out_.columns.front(),
                                   out_.columns.back()));
    }
    if (row.cells.size() > n) {
      throw InputError(
          fmt::format("{}:{}: row {}: {} cells, expected {}", source_, row.line, row.name, row.cells.size(), n));
    }
    if (seen_[column]) return;  // the same table a second time
    seen_[column] = true;
    const std::size_t shift = shift_of(row, column);
    std::size_t good = 0;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const auto& cell = row.cells[i];
      if (!cell) continue;
      ++good;
      // In front of the X of a row that lost cells, no one can tell which were lost.
      if (shift != 0 && i + shift < column) continue;
      if (cell->relation != Relation::kSelf) grid_[column * n + i + shift] = *cell;
    }
    if (good * 2 < row.cells.size()) {
      throw InputError(
          fmt::format("{}:{}: row {}: only {} of {} cells can be read; expected X, NV#, PIX, PXB, PHB, NODE or SYS",
                      source_, row.line, row.name, good, row.cells.size()));
    }
    if (good < n) short_rows_.push_back(row.name);
    if (const std::size_t device = out_.column_device[column]; device < out_.gpus.size())
      add_tail(row, out_.gpus[device]);
  }

  static std::optional<std::string> field(const std::vector<std::string>& tail, std::size_t i) {
    if (i >= tail.size() || tail[i].empty() || tail[i] == "N/A" || tail[i] == "n/a" || tail[i] == "-") return {};
    return tail[i];
  }

  void add_tail(const TopoRow& row, GpuFact& gpu) const {
    std::vector<std::string> tail = unglued(row.tail);
    tail.erase(
        std::find_if(tail.begin(), tail.end(), [](const std::string& f) { return !f.empty() && !is_affinity(f); }),
        tail.end());
    std::vector<std::string> solid;
    std::copy_if(tail.begin(), tail.end(), std::back_inserter(solid), [](const std::string& f) { return !f.empty(); });
    const std::size_t wanted = std::size_t{out_.has_cpu_column} + out_.has_numa_column + out_.has_gpu_numa_column;
    std::size_t at = 0;
    const bool no_cpu =
        (row.tail_placed && !tail.empty() && tail[0].empty()) || (tail.size() < wanted && lone_numa(solid));
    if (out_.has_cpu_column && !no_cpu) gpu.cpu_affinity = field(solid, at++);
    // The driver puts two tabs in front of its last column, so of two fields only the order counts.
    const bool one_left = at + 1 == solid.size();
    const bool last_only = out_.has_gpu_numa_column && row.tail_placed && one_left && tail.size() >= 3;
    if (out_.has_numa_column && !last_only) gpu.numa_affinity = field(solid, at++);
    if (out_.has_gpu_numa_column) gpu.gpu_numa_id = field(solid, at);
  }

  // Fields that lost their places: a plain number first, fewer fields than columns: the CPU list is what is missing.
  static bool lone_numa(const std::vector<std::string>& solid) {
    return !solid.empty() && solid[0].find_first_of("-,") == std::string::npos && solid[0] != "N/A";
  }

  // "0-630N/A" is "0-63", "0", "N/A" when three fields are due.
  std::vector<std::string> unglued(std::vector<std::string> tail) const {
    const std::size_t wanted = std::size_t{out_.has_cpu_column} + out_.has_numa_column + out_.has_gpu_numa_column;
    if (tail.size() != 1 || wanted < 2) return tail;
    std::string text = tail[0];
    std::vector<std::string> behind;
    for (std::size_t at = text.rfind("N/A"); at != std::string::npos && at > 0 && at + 3 == text.size();
         at = text.rfind("N/A")) {
      text.resize(at);
      behind.insert(behind.begin(), "N/A");
    }
    if (behind.size() + 1 < wanted && text.size() > 3 && text[text.size() - 2] != '-' &&
        text.find('-') != std::string::npos) {
      behind.insert(behind.begin(), text.substr(text.size() - 1));
      text.pop_back();
    }
    behind.insert(behind.begin(), text);
    return behind;
  }

  // Each pair stands in two rows; one is enough, two must agree.
  void join_halves() {
    const std::size_t n = out_.columns.size();
    out_.size_relations();
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = a + 1; b < n; ++b) {
        const Cell upper = grid_[a * n + b];
        const Cell lower = grid_[b * n + a];
        Cell pair = upper.relation != Relation::kUnknown ? upper : lower;
        if (upper.relation != Relation::kUnknown && lower.relation != Relation::kUnknown && upper != lower) {
          if (upper.relation == Relation::kNvlink && lower.relation == Relation::kNvlink) {
            pair.links = std::min(upper.links, lower.links);
          }
          out_.note("rows-disagree", Severity::kWarn, {out_.columns[a], out_.columns[b]},
                    fmt::format("row {} says {}, row {} says {}", out_.columns[a], text_of(upper), out_.columns[b],
                                text_of(lower)));
        }
        out_.set_cell(out_.column_device[a], out_.column_device[b], pair);
      }
    }
  }

  void find_cuts() {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (!seen_[i]) missing.push_back(out_.columns[i]);
    }
    if (!missing.empty()) {
      out_.cut = true;
      out_.note("rows-missing", Severity::kWarn, missing,
                fmt::format("{} of {} rows are missing", missing.size(), seen_.size()));
    }
    if (rows_.elided) {
      out_.cut = true;
      out_.note("table-elided", Severity::kInfo, {}, "dots stand for a part of the table that was left out");
    }
    if (!short_rows_.empty()) {
      out_.cut = true;
      out_.note("cells-missing", Severity::kWarn, short_rows_, "cells are missing in these rows");
    }
    if (columns_.missing_in_header() != 0) {
      out_.note("header-cut", Severity::kInfo, {},
                fmt::format("the header lacks {} of the columns that the rows have", columns_.missing_in_header()));
    }
  }

  TopoRows rows_;
  Columns columns_;
  const std::string& source_;
  NodeTopology out_;
  std::vector<Cell> grid_;  // [row column][column], before the two halves are joined
  std::vector<bool> seen_;
  std::vector<std::string> short_rows_;
};

void note_layout(NodeTopology& out, const TopoRows& rows, const CaptureText& text) {
  const auto info = [&](bool there, const char* code, const char* words) {
    if (there) out.note(code, Severity::kInfo, {}, words);
  };
  info(text.fenced, "markdown-fence", "pasted inside a code fence");
  info(text.commented, "comment-prefix", "table lines begin with a comment sign");
  info(text.quoted, "quote-prefix", "table lines begin with a quote sign");
  info(rows.wrapped, "lines-wrapped", "rows were broken over several lines");
  info(rows.glued, "tabs-lost", "cells stand against each other: tabs were lost");
  info(rows.has_header && rows.header_shifted, "header-shifted", "the header lost the blanks in front of it");
  info(!rows.has_header, "header-missing", "no header: columns are named by the rows");
  info(rows.narrow_x, "narrow-x", "the diagonal is printed as a bare X");
  info(rows.has_header && !rows.has_numa, "column-missing", "no NUMA Affinity column (older driver)");
  const bool unnamed = std::any_of(out.nics.begin(), out.nics.end(), [](const NicFact& n) { return n.device.empty(); });
  info(unnamed, "nic-legend-missing", "no NIC legend: NIC columns cannot be mapped to device names");
}

}  // namespace

NodeTopology read_topo_matrix(std::string_view bytes, const std::string& source) {
  CaptureText text = plain_text(bytes);
  strip_signs(text);
  MatrixBuilder builder(find_topo_rows(text, source), source);
  NodeTopology out = builder.take();
  note_layout(out, builder.rows(), text);
  find_anomalies(out);
  return out;
}

}  // namespace lk

// TopoRows: the rows of an nvidia-smi topo -m table as they stand in a pasted text, before anything is made of them:
// header names, row names, cells and what follows the cells. Knows about wrapped lines, lost tabs, glued cells, prompts
// and missing headers; knows nothing about devices' meaning. Pure; InputError when there is no table or far too much of
// one. A "cell" is X, NV#, PIX, PXB, PHB, NODE or SYS (old SOC too).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/topology/capture_text.hpp"
#include "control/topology/model.hpp"

namespace lk {

struct TopoRow {
  std::string name;  // empty: the row has lost its name
  int line = 0;
  std::vector<std::optional<Cell>> cells;  // no value: a blank or unreadable place between cells
  std::vector<std::string> tail;           // what follows: affinity fields; blank fields kept where they can be told
  bool tail_placed = false;                // tabs or columns tell blank fields
};

struct TopoRows {
  std::vector<std::string> header;
  bool has_header = false, header_shifted = false;
  bool has_cpu = false, has_numa = false, has_gpu_numa = false;
  std::vector<TopoRow> rows;
  std::map<std::string, std::string> legend;  // NIC0 → mlx5_0
  bool has_nic_legend = false, has_legend = false;
  bool wrapped = false, narrow_x = false, glued = false, elided = false;
  std::string cut_name;  // a last line that is only the beginning of a row
};

inline constexpr std::size_t kMostDevices = 1024;

// The cell that a whole word is, without regard to case; none when it is no cell.
std::optional<Cell> cell_of(std::string_view word) noexcept;

TopoRows find_topo_rows(const CaptureText& text, const std::string& source);

}  // namespace lk

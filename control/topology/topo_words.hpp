// TopoWords: the words of one line of a topo -m table: cells, device names, the rest. The lowest layer of the matrix
// reader; undoes glued words (lost tabs). Pure, never fails. Column and tab counts let the row reader tell blank
// fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/topology/topo_rows.hpp"

namespace lk {

struct TopoWord {
  std::string text;
  std::optional<Cell> cell;
  std::size_t column = 0;  // first byte in the line
  unsigned tabs = 0;       // tabs between the word before and this one
  bool glued = false;      // stood against the word before it
};

// GPU0, NIC3, mlx5_0, rocep1s0, …: a letter first, a digit somewhere, no other signs than _ . -
bool is_device_name(std::string_view word) noexcept;
// 0-63,128-191 · 3 · N/A · 0x3f
bool is_affinity(std::string_view word) noexcept;
bool is_gpu_name(std::string_view word) noexcept;

// "..." where the poster left something out; words_of drops it.
bool is_elision(std::string_view word) noexcept;

std::vector<TopoWord> words_of(std::string_view line);
// GPU0GPU1NIC0 as its three names; one entry when nothing is glued.
std::vector<std::string> device_names_in(std::string_view word);
// The device name that a row's first word carries: "12:GPU0:" is GPU0; empty when there is none.
std::string bare_name(std::string_view word);

}  // namespace lk

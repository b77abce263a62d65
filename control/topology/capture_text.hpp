// CaptureText: text that a person pasted, made plain before a reader looks at it. Terminal colours, odd blanks, byte
// order marks, CR, NUL and UTF-16 are undone; code fences are dropped. What was undone is kept,
// so that a reading can say so. Pure; never fails on any bytes (a file that cannot be read or is too large:
// InputError).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lk {

struct CaptureLine {
  std::string text;
  int number = 0;  // in the file, from 1
};

struct CaptureText {
  std::vector<CaptureLine> lines;
  bool fenced = false;     // stood in a markdown code fence
  bool commented = false;  // table lines began with a comment sign
  bool quoted = false;     // or with a quote sign
};

// Reads a whole capture file; InputError when it cannot be read, is empty or is above 1 MiB.
std::string read_capture_file(const std::string& path);
CaptureText plain_text(std::string_view bytes);
// For line-based captures: drops quote, comment and list signs in front of lines, and makes table bars tabs.
void strip_signs(CaptureText& text);
// One text again, a '\n' after each line.
std::string joined(const CaptureText& text);

}  // namespace lk

#include "control/topology/capture_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::size_t kLargestFile = 1U << 20;

// UTF-16 with a byte order mark, cut down to its ASCII; what a console redirect on some systems writes.
std::string from_utf16(std::string_view bytes, bool little) {
  std::string out;
  for (std::size_t i = 2; i + 1 < bytes.size(); i += 2) {
    const auto low = static_cast<unsigned char>(bytes[little ? i : i + 1]);
    const auto high = static_cast<unsigned char>(bytes[little ? i + 1 : i]);
    out.push_back(high == 0 && low < 0x80 ? static_cast<char>(low) : ' ');
  }
  return out;
}

struct Replacement {
  std::string_view from, to;
};
// Blanks, quotes and signs that editors, chat programs and web pages put in place of the plain ones.
constexpr Replacement kReplacements[] = {
    {"&nbsp;", " "},        {"\xc2\xa0", " "},      {"\xe2\x80\x8b", ""},  {"\xe2\x80\x8c", ""},
    {"\xe2\x80\x8d", ""},   {"\xef\xbb\xbf", ""},   {"\xe2\x80\xaf", " "}, {"\xe3\x80\x80", " "},
    {"\xe2\x80\x9c", "\""}, {"\xe2\x80\x9d", "\""}, {"\xe2\x80\x90", "-"}, {"\xe2\x80\x91", "-"},
    {"\xe2\x80\x93", "-"},  {"\xe2\x80\x94", "-"},  {"\xe2\x94\x82", "|"}, {"\xe2\x86\xb5", ""},
};

// Length of a terminal control sequence at i ("\x1b[4m", or "[4m" whose escape was lost), else 0.
std::size_t control_sequence(std::string_view s, std::size_t i) {
  const bool escaped = s[i] == '\x1b';
  std::size_t at = escaped ? i + 1 : i;
  if (at >= s.size() || s[at] != '[') return escaped ? 1 : 0;
  ++at;
  const std::size_t digits = at;
  while (at < s.size() && (std::isdigit(static_cast<unsigned char>(s[at])) != 0 || s[at] == ';')) ++at;
  if (at >= s.size()) return escaped ? at - i : 0;
  if (escaped) return std::isalpha(static_cast<unsigned char>(s[at])) != 0 ? at + 1 - i : at - i;
  return at > digits && s[at] == 'm' ? at + 1 - i : 0;
}

std::string plain_bytes(std::string_view in) {
  std::string out;
  out.reserve(in.size());
  for (std::size_t i = 0; i < in.size();) {
    if (const std::size_t skip = in[i] == '\x1b' || in[i] == '[' ? control_sequence(in, i) : 0; skip != 0) {
      i += skip;
      continue;
    }
    const auto* found = std::find_if(std::begin(kReplacements), std::end(kReplacements),
                                     [&](const Replacement& r) { return in.substr(i, r.from.size()) == r.from; });
    if (found != std::end(kReplacements)) {
      out += found->to;
      i += found->from.size();
    } else if (in.substr(i, 2) == "\xe2\x80" && i + 2 < in.size()) {  // the other typographic blanks
      out += ' ';
      i += 3;
    } else if (in[i] == '\r') {
      if (i + 1 >= in.size() || (in[i + 1] != '\n' && in[i + 1] != '\r')) out += '\n';
      ++i;
    } else {
      const bool odd = static_cast<unsigned char>(in[i]) < 0x20 && in[i] != '\n' && in[i] != '\t';
      out += odd ? ' ' : in[i];
      ++i;
    }
  }
  return out;
}

// A line that only opens or closes a code block; text behind the sign, other than one word for the language, is kept.
bool is_fence(std::string_view line) {
  const std::size_t start = line.find_first_not_of(" \t>");
  if (start == std::string_view::npos) return false;
  line.remove_prefix(start);
  for (const std::string_view sign : {"```", "~~~", "[code]", "[/code]", "<pre>", "</pre>"}) {
    if (line.substr(0, sign.size()) != sign) continue;
    line.remove_prefix(sign.size());
    return line.find_first_of(" \t") == std::string_view::npos;
  }
  return false;
}

// Length of the sign at the front of s: comment, quote, list or diff. A '-' or '/' with something right behind it is no
// sign but the rest of a broken field ("-63", "/A").
std::size_t sign_length(std::string_view s) {
  if (s.empty()) return 0;
  if (std::string_view("#;%>*").find(s[0]) != std::string_view::npos) return 1;
  if (s.substr(0, 2) == "//" || s.substr(0, 2) == "--") return 2;
  const bool sign = s[0] == '+' || s[0] == '-';
  return sign && (s.size() == 1 || s[1] == ' ' || s[1] == '\t' || std::isalpha(static_cast<unsigned char>(s[1])) != 0)
             ? 1
             : 0;
}

// Drops one line's signs and remembers which kind it was. What stands behind them keeps its column.
void strip_line(std::string& line, CaptureText& text) {
  for (;;) {
    const std::size_t at = line.find_first_not_of(" \t");
    const std::size_t length = at == std::string::npos ? 0 : sign_length(std::string_view(line).substr(at));
    if (length == 0) return;
    (line[at] == '>' ? text.quoted : text.commented) = true;
    line.erase(0, at + length);
  }
}

bool is_utf16(std::string_view bytes) noexcept {
  return bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff");
}

}  // namespace

std::string read_capture_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes;
  bytes.resize(kLargestFile + 1);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.bad() || (in.gcount() == 0 && !in.eof())) {
    throw InputError(fmt::format("{}: cannot be read: {}; expected nvidia-smi topo -m text or NCCL topology XML", path,
                                 std::strerror(errno)));
  }
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  if (bytes.size() > kLargestFile) throw InputError(fmt::format("{}: more than 1 MiB; expected one capture", path));
  if (bytes.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw InputError(fmt::format("{}: empty; expected nvidia-smi topo -m text or NCCL topology XML", path));
  }
  // A few letters by chance look like a table: what is no text at all is not searched for one.
  const std::size_t zero = bytes.find('\0');
  if (zero != std::string::npos && !is_utf16(bytes)) {
    throw InputError(
        fmt::format("{}: no text, byte {} is 0; expected nvidia-smi topo -m text or NCCL topology XML", path, zero));
  }
  return bytes;
}

CaptureText plain_text(std::string_view bytes) {
  std::string decoded;
  if (is_utf16(bytes)) {
    decoded = from_utf16(bytes, bytes[0] == '\xff');
    bytes = decoded;
  }
  const std::string plain = plain_bytes(bytes);
  CaptureText text;
  int number = 0;
  for (std::size_t start = 0; start <= plain.size();) {
    const std::size_t end = std::min(plain.find('\n', start), plain.size());
    std::string line = plain.substr(start, end - start);
    start = end + 1;
    ++number;
    if (is_fence(line)) {
      text.fenced = true;
      continue;
    }
    text.lines.push_back({std::move(line), number});
  }
  return text;
}

void strip_signs(CaptureText& text) {
  for (CaptureLine& line : text.lines) {
    strip_line(line.text, text);
    std::replace(line.text.begin(), line.text.end(), '|', '\t');
  }
}

std::string joined(const CaptureText& text) {
  std::string out;
  for (const CaptureLine& line : text.lines) out += line.text + '\n';
  return out;
}

}  // namespace lk

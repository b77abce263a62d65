// Mangled paste. Each capture is damaged as terminals, mail, chat and editors damage it, and must read as before. Then
// random damage from a seed: the reader gives a reading or one line of InputError, and nothing else.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "control/topology/capture.hpp"
#include "control/topology/capture_text.hpp"
#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<fs::path> captures(const std::string& kind) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(LK_SOURCE_DIR "/tests/data/captures/" + kind)) {
    if (entry.path().extension() != ".json") out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

using Mangle = std::function<std::string(const std::string&)>;  // of one line, which may become several

std::string each_line(const std::string& text, const Mangle& mangle) {
  std::string out;
  for (const std::string& line : lines_of(text)) out += mangle(line) + "\n";
  return out;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string expanded(const std::string& line) {
  std::string out;
  for (const char c : line) {
    if (c == '\t')
      out.append(8 - out.size() % 8, ' ');
    else
      out += c;
  }
  return out;
}

std::string squeezed(const std::string& line) {
  std::string out;
  for (const char c : expanded(line)) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  return out;
}

std::string hard_wrapped(const std::string& line, std::size_t width) {
  std::string text = expanded(line);
  std::string out;
  while (text.size() > width) {
    out += text.substr(0, width) + "\n";
    text.erase(0, width);
  }
  return out + text;
}

std::string soft_wrapped(const std::string& line, std::size_t width) {
  std::string text = squeezed(line);
  std::string out;
  while (text.size() > width) {
    const std::size_t cut = text.rfind(' ', width);
    if (cut == std::string::npos || cut == 0) break;
    out += text.substr(0, cut) + "\n";
    text.erase(0, cut + 1);
  }
  return out + text;
}

bool is_table_line(const std::string& line) {
  const std::string bare = squeezed(line);
  return bare.rfind("GPU", 0) == 0 || bare.rfind("NIC", 0) == 0 || bare.rfind("mlx", 0) == 0;
}

// The table as `|` cells; the rest of the lines as they are.
std::string as_markdown(const std::string& text) {
  std::string out;
  bool first = true;
  for (const std::string& line : lines_of(text)) {
    if (!is_table_line(line) || line.find(':') != std::string::npos) {
      out += line + "\n";
      continue;
    }
    std::string row = "|";
    if (first) row += " |";  // above the row names
    std::string cell;
    const std::string bare =
        replaced(replaced(squeezed(line), "CPU Affinity", "CPU_Affinity"), "NUMA Affinity", "NUMA_Affinity");
    for (const char c : replaced(bare, "GPU NUMA ID", "GPU_NUMA_ID") + " ") {
      if (c != ' ') {
        cell += c == '_' && cell.find("mlx") == std::string::npos ? ' ' : c;
        continue;
      }
      if (!cell.empty()) row += " " + cell + " |";
      cell.clear();
    }
    out += row + "\n";
    if (first) out += "|---|:-:|---|\n";
    first = false;
  }
  return out;
}

std::string bare_table(const std::string& text) {  // without prompt, comment signs and indent
  std::string out;
  for (std::string line : lines_of(text)) {
    while (!line.empty() && line[0] == '#') line.erase(0, 1);
    if (line.rfind("    ", 0) == 0 && line.find("GPU Topology") == std::string::npos && line.find("        ") != 0)
      line.erase(0, 4);
    out += line + "\n";
  }
  return out;
}

std::string no_header(const std::string& text) {
  std::string out;
  for (const std::string& line : lines_of(text)) {
    const std::string bare = squeezed(line);
    const bool header = bare.find("GPU0") != std::string::npos &&
                        (bare.find("GPU1") != std::string::npos || bare.find("Affinity") != std::string::npos) &&
                        bare.find(" X ") == std::string::npos;
    if (!header) out += line + "\n";
  }
  return out;
}

json facts(const std::string& text, const std::string& name) {
  json out = lk::reading_to_json(lk::parse_capture(text, name));
  for (const char* words : {"anomalies", "capture"}) out.erase(words);
  return out;
}

struct Damage {
  const char* name;
  std::function<std::string(const std::string&)> apply;
  bool affinities = true;  // can be told after it
};

std::vector<Damage> damages() {
  const auto prefix = [](const std::string& sign) {
    return [sign](const std::string& t) { return each_line(t, [&](const std::string& l) { return sign + l; }); };
  };
  const auto wrap = [](std::size_t width) {
    return [width](const std::string& t) {
      return each_line(bare_table(t), [&](const std::string& l) { return hard_wrapped(l, width); });
    };
  };
  const auto soft = [](std::size_t width) {
    return [width](const std::string& t) {
      return each_line(bare_table(t), [&](const std::string& l) { return soft_wrapped(l, width); });
    };
  };
  return {
      {"crlf", [](const std::string& t) { return replaced(t, "\n", "\r\n"); }},
      {"byte order mark", [](const std::string& t) { return "\xef\xbb\xbf" + t; }},
      {"tabs expanded", [](const std::string& t) { return each_line(t, expanded); }},
      {"non-breaking blanks", [](const std::string& t) { return replaced(t, " ", "\xc2\xa0"); }},
      {"single blanks", [](const std::string& t) { return each_line(t, squeezed); }},
      {"trailing blanks",
       [](const std::string& t) { return each_line(t, [](const std::string& l) { return l + "   "; }); }},
      {"quoted", prefix("> ")},
      {"quoted twice", prefix(">> ")},
      {"commented", prefix("# ")},
      {"slashes", prefix("// ")},
      {"log prefix", prefix("node07: ")},
      {"blank lines between", [](const std::string& t) { return replaced(t, "\n", "\n\n"); }},
      {"colours", [](const std::string& t) { return replaced(t, "GPU", "\x1b[4mGPU\x1b[0m"); }},
      {"colours without escapes", [](const std::string& t) { return replaced(t, "GPU", "[4mGPU[0m"); }},
      {"fenced", [](const std::string& t) { return "Our box:\n\n```\n" + t + "```\nAny idea why NCCL is slow?\n"; }},
      {"old word for SYS", [](const std::string& t) { return replaced(t, "SYS", "SOC"); }},
      {"line numbers",
       [](const std::string& t) {
         int n = 0;
         return each_line(t, [&](const std::string& l) { return std::to_string(++n) + ": " + l; });
       }},
      {"line numbers and tab",
       [](const std::string& t) {
         int n = 0;
         return each_line(t, [&](const std::string& l) { return "   " + std::to_string(++n) + "\t" + l; });
       }},
      {"wrapped at 80", wrap(80)},
      {"wrapped at 100", wrap(100)},
      {"wrapped at 77", wrap(77)},
      {"wrapped between words at 72", soft(72)},
      {"wrapped between words at 60", soft(60)},
      {"markdown table", [](const std::string& t) { return as_markdown(bare_table(t)); }},
      {"twice", [](const std::string& t) { return t + "\n" + t; }},
      {"line breaks lost", [](const std::string& t) { return replaced(bare_table(t), "\n", " "); }},
      {"tabs lost", [](const std::string& t) { return replaced(t, "\t", ""); }, false},
  };
}

void same_facts(json want, json got, const Damage& damage, const std::string& capture) {
  if (!damage.affinities) {
    for (const char* column : {"cpu_affinity", "numa_affinity", "gpu_numa_id"}) {
      want.erase(column);
      got.erase(column);
    }
  }
  if (want == got) return;
  for (const auto& [key, value] : want.items()) {
    if (!got.contains(key) || got[key] != value) {
      BOOST_ERROR(capture << ", " << damage.name << ": " << key << " was " << value.dump().substr(0, 300) << ", now "
                          << (got.contains(key) ? got[key].dump().substr(0, 300) : "absent"));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(topology_mangled)

BOOST_AUTO_TEST_CASE(damaged_matrices_read_as_before) {
  for (const fs::path& path : captures("topo")) {
    const std::string name = path.filename().string();
    const std::string text = lk::read_capture_file(path.string());
    const json want = facts(text, name);
    for (const Damage& damage : damages()) {
      try {
        same_facts(want, facts(damage.apply(text), name), damage, name);
      } catch (const std::exception& error) {
        BOOST_ERROR(name << ", " << damage.name << ": " << error.what());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(without_header_the_rows_name_the_columns) {
  for (const fs::path& path : captures("topo")) {
    const std::string name = path.filename().string();
    if (name == "h100-8gpu-9nic-reversed-cut.txt") continue;  // its last columns have no rows to name them
    const std::string text = lk::read_capture_file(path.string());
    same_facts(facts(text, name), facts(no_header(text), name), {"no header", {}}, name);
  }
}

BOOST_AUTO_TEST_CASE(columns_without_name_are_numbered) {
  const json got = facts(
      "GPU0 X NV12 PXB SYS SYS SYS 0-31 0\n"
      "GPU1 NV12 X SYS PXB SYS SYS 0-31 0\n",
      "two rows");
  BOOST_TEST(got["columns"].dump() == R"(["GPU0","GPU1","NIC?0","NIC?1","NIC?2","NIC?3"])");
  BOOST_TEST(got["gpus"] == 2);
  BOOST_TEST(got["nics"] == 4);
  BOOST_TEST(got["relations"].size() == 9U);
  BOOST_TEST(got["nic_affinity"]["GPU1"].dump() == R"({"best":"PXB","nics":["NIC?1"]})");
  BOOST_TEST(got["numa_affinity"]["GPU1"] == "0");
  BOOST_TEST(got["verdict"] == "incomplete");
}

BOOST_AUTO_TEST_CASE(unreadable_text_is_one_line_with_place_and_reason) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      lk::parse_capture(text, "paste.txt");
    } catch (const lk::InputError& error) {
      return error.what();
    }
    return "read";
  };
  BOOST_TEST(message("hello\nworld\n") == "paste.txt: no topology table; expected rows like \"GPU0 X NV12 PIX\"");
  BOOST_TEST(message("\tGPU0\tGPU1\tCPU Affinity\n").find("no row below it") != std::string::npos);
  BOOST_TEST(message("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\t?\t?\nGPU9\tX\tNV4\n").find("paste.txt:4: row GPU9") ==
             0U);
  BOOST_TEST(
      message("\tGPU0\tGPU1\tGPU2\nGPU0\tNV4\tX\tNV4\n").find("paste.txt:2: row GPU0: its X stands under GPU1") == 0U);
  BOOST_TEST(message("GPU0\tX\t??\tERR\tERR\tPIX\n").find("paste.txt:1: row GPU0: only 2 of 5 cells") == 0U);
  BOOST_TEST(message("<?xml version=\"1.0\"?>").find("paste.txt: no XML element") == 0U);
}

BOOST_AUTO_TEST_CASE(damaged_xml_reads_as_before) {
  const auto numbered = [](const std::string& t) {
    int n = 0;
    return each_line(t, [&](const std::string& l) { return std::to_string(++n) + ": " + l; });
  };
  const auto quoted = [](const std::string& t) { return each_line(t, [](const std::string& l) { return "> " + l; }); };
  const auto pasted = [](const std::string& t) { return "$ cat topo.xml\n```xml\n" + t + "```\nthanks\n"; };
  const auto page = [](const std::string& t) {
    return replaced(replaced(replaced(replaced(t, "&", "&amp;"), "<", "&lt;"), ">", "&gt;"), "\"", "&quot;");
  };
  const auto crlf = [](const std::string& t) { return "\xef\xbb\xbf" + replaced(t, "\n", "\r\n"); };
  const auto smart = [](const std::string& t) { return replaced(t, "\"", "\xe2\x80\x9d"); };
  for (const fs::path& path : captures("nccl-xml")) {
    const std::string name = path.filename().string();
    const std::string text = lk::read_capture_file(path.string());
    for (const Damage& damage : {Damage{"line numbers", numbered}, Damage{"quoted", quoted}, Damage{"pasted", pasted},
                                 Damage{"page source", page}, Damage{"crlf", crlf}, Damage{"smart quotes", smart}}) {
      same_facts(facts(text, name), facts(damage.apply(text), name), damage, name);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_cut_never_makes_a_fault) {
  const auto faults = [](const std::string& text) {
    std::set<std::string> out;
    try {
      for (const lk::Anomaly& a : lk::parse_capture(text, "cut").anomalies) {
        if (a.severity == lk::Severity::kFault) out.insert(a.where.begin(), a.where.end());
      }
    } catch (const lk::InputError&) {
      out.clear();
    }
    return out;
  };
  for (const char* kind : {"topo", "nccl-xml"}) {
    for (const fs::path& path : captures(kind)) {
      const std::string text = lk::read_capture_file(path.string());
      const std::set<std::string> whole = faults(text);
      for (std::size_t length = 1; length < std::min<std::size_t>(text.size(), 6000); length += 13) {
        const std::set<std::string> cut = faults(text.substr(0, length));
        BOOST_REQUIRE_MESSAGE(std::includes(whole.begin(), whole.end(), cut.begin(), cut.end()),
                              path.filename().string() << " cut at " << length << ": false fault at " << *cut.begin());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(random_damage_is_read_or_refused) {
  std::vector<std::string> texts;
  for (const char* kind : {"topo", "nccl-xml"}) {
    for (const fs::path& path : captures(kind)) texts.push_back(lk::read_capture_file(path.string()));
  }
  std::size_t read = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    lk::Random random(seed);
    std::string text = texts[random.below(texts.size())];
    for (std::uint64_t edits = 1 + random.below(12); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random.below(text.size());
      const std::size_t length =
          std::min<std::size_t>(1 + random.below(random.chance(0.2) ? 400 : 8), text.size() - at);
      switch (random.below(5)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(random.below(text.size()), text.substr(at, length));
          break;
        case 2:
          text[at] = static_cast<char>(random.next());
          break;
        case 3:
          text.resize(at);
          break;
        default:
          text.insert(at, random.chance(0.5) ? "\n" : "\t");
          break;
      }
    }
    try {
      const json reading = lk::reading_to_json(lk::parse_capture(text, "damaged"));
      BOOST_REQUIRE(reading.contains("verdict"));
      BOOST_REQUIRE(!reading.dump(-1, ' ', false, json::error_handler_t::replace).empty());
      ++read;
    } catch (const lk::InputError& error) {
      BOOST_REQUIRE_MESSAGE(std::string(error.what()).find('\n') == std::string::npos, "seed " << seed);
      ++refused;
    }
  }
  BOOST_TEST(read > 1000U);
  BOOST_TEST(refused > 20U);
}

BOOST_AUTO_TEST_SUITE_END()

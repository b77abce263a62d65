// Every capture of tests/data/captures against the reading that an expert wrote beside it. The rules are those of the
// captures' README: every expected fact is there, null stays null, faults are named at the same places, no false
// faults.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "control/topology/capture.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::set<std::string> kWords = {"text", "why", "code", "capture", "anomalies", "note", "notes"};

std::string sort_key(const json& list) {
  std::vector<std::string> parts;
  for (const json& x : list) parts.push_back(x.dump());
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const std::string& p : parts) out += p + '\n';
  return out;
}

void compare(const json& want, const json& got, const std::string& path, std::vector<std::string>& out);

void compare_lists(const json& want, const json& got, const std::string& path, std::vector<std::string>& out) {
  if (!got.is_array() || want.size() != got.size()) {
    out.push_back(path + ": expected " + std::to_string(want.size()) + " entries, got " + got.dump().substr(0, 200));
    return;
  }
  const bool pairs = !want.empty() && std::all_of(want.begin(), want.end(), [](const json& x) { return x.is_array(); });
  if (!pairs) {
    for (std::size_t i = 0; i < want.size(); ++i) compare(want[i], got[i], path + "[" + std::to_string(i) + "]", out);
    return;
  }
  std::vector<std::string> wanted, gotten;
  for (const json& x : want) wanted.push_back(sort_key(x));
  for (const json& x : got) gotten.push_back(sort_key(x));
  std::sort(wanted.begin(), wanted.end());
  std::sort(gotten.begin(), gotten.end());
  if (wanted != gotten) out.push_back(path + ": the pairs differ");
}

void compare(const json& want, const json& got, const std::string& path, std::vector<std::string>& out) {
  if (want.is_object()) {
    if (!got.is_object()) {
      out.push_back(path + ": expected an object, got " + got.dump().substr(0, 100));
      return;
    }
    for (const auto& [key, value] : want.items()) {
      if (kWords.contains(key)) continue;
      if (got.contains(key))
        compare(value, got[key], fmt::format("{}.{}", path, key), out);
      else
        out.push_back(fmt::format("{}.{}: missing", path, key));
    }
  } else if (want.is_array()) {
    compare_lists(want, got, path, out);
  } else if (want != got) {
    out.push_back(path + ": expected " + want.dump() + ", got " + got.dump());
  }
}

std::vector<std::set<std::string>> faults_of(const json& reading) {
  std::vector<std::set<std::string>> out;
  for (const json& a : reading.at("anomalies")) {
    if (a.at("severity") == "fault") out.push_back(a.at("where").get<std::set<std::string>>());
  }
  return out;
}

bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& x) { return b.contains(x); });
}

void compare_faults(const json& want, const json& got, std::vector<std::string>& out) {
  const auto mine = faults_of(want);
  const auto theirs = faults_of(got);
  std::set<std::string> known;
  for (const auto& fault : mine) {
    known.insert(fault.begin(), fault.end());
    const bool told =
        std::any_of(theirs.begin(), theirs.end(), [&](const auto& f) { return fault.empty() || meet(fault, f); });
    if (!told) out.push_back("fault not reported: " + json(fault).dump());
  }
  for (const auto& fault : theirs) {
    if (mine.empty() || (!known.empty() && !fault.empty() && !meet(known, fault))) {
      out.push_back("false fault at " + json(fault).dump());
    }
  }
}

json load(const fs::path& path) {
  std::ifstream in(path);
  return json::parse(in);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(topology_captures)

BOOST_AUTO_TEST_CASE(every_capture_reads_as_an_expert_reads_it) {
  std::size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(LK_SOURCE_DIR "/tests/data/captures")) {
    const std::string kind = entry.path().parent_path().filename().string();
    if (!entry.path().string().ends_with(".expect.json") || (kind != "topo" && kind != "nccl-xml")) continue;
    ++count;
    const json want = load(entry.path());
    const fs::path capture = entry.path().parent_path() / want.at("capture").get<std::string>();
    std::vector<std::string> problems;
    try {
      const json got = lk::reading_to_json(lk::read_capture(capture.string()));
      compare(want, got, "", problems);
      compare_faults(want, got, problems);
    } catch (const std::exception& error) {
      problems.emplace_back(error.what());
    }
    for (const std::string& problem : problems) BOOST_ERROR(capture.filename().string() << ": " << problem);
  }
  BOOST_TEST(count >= 30U);
}

BOOST_AUTO_TEST_SUITE_END()

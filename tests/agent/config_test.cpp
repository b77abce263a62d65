#include "agent/config.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "dataplane/base/error.hpp"

using namespace lk;

namespace {

std::string error_of(const std::string& toml) {
  try {
    Config config;
    config.parse(toml, "x.toml");
    config.check();
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config_test)

BOOST_AUTO_TEST_CASE(spans_and_sizes_are_read_and_written) {
  BOOST_TEST(parse_span("1.029ms").value() == 1'029'000);  // not exact in binary
  BOOST_TEST(parse_span("50ms").value() == 50'000'000);
  BOOST_TEST(parse_span("1.5 s").value() == 1'500'000'000);
  BOOST_TEST(parse_span("2min").value() == 120'000'000'000);
  BOOST_TEST(parse_span("0ns").value() == 0);
  for (const char* bad : {"", "50", "50 parsecs", "ms", "-1ms", "0.5ns", "1e3s", "99999999999s"}) {
    BOOST_TEST(!parse_span(bad).has_value(), bad);
  }
  BOOST_TEST(parse_size("1MiB").value() == 1048576U);
  BOOST_TEST(parse_size("0.5KiB").value() == 512U);
  for (const char* bad : {"", "1", "1MB", "1M", "-1B", "0.3B"}) BOOST_TEST(!parse_size(bad).has_value(), bad);
  BOOST_TEST(span_text(50 * kMilli) == "50ms");
  BOOST_TEST(span_text(1500 * kMilli) == "1.5s");
  BOOST_TEST(span_text(90 * kSecond) == "90s");
  BOOST_TEST(span_text(120 * kSecond) == "2min");
  BOOST_TEST(span_text(0) == "0ns");
  BOOST_TEST(size_text(4 * kMiB) == "4MiB");
  BOOST_TEST(size_text(1536) == "1536B");
  BOOST_TEST(cores_text(parse_cores("5,0-2,2").value()) == "0-2,5");
  for (const char* bad : {"", "a", "1-", "3-1", "1,,2", "99999999999"}) BOOST_TEST(!parse_cores(bad).has_value(), bad);
}

BOOST_AUTO_TEST_CASE(a_file_sets_values_and_their_source) {
  Config config;
  config.parse(
      "[loopback]\nprofile = \"dgx1-v100\"\nnodes = 4\nrate_scale = 0.5\n\n[engine]\nstall_least = \"5ms\"\n"
      "chunk_most = \"1MiB\"\n[checksum]\nrdma = true\n[rung]\ntcp = \"never\"\n[reactor]\ncores = \"0-1\"\n",
      "x.toml");
  config.check();
  BOOST_TEST(config.values().loopback.profile == "dgx1-v100");
  BOOST_TEST(config.values().loopback.nodes == 4U);
  BOOST_TEST(config.values().loopback.rate_scale == 0.5);
  BOOST_TEST(config.values().engine.stall_least_ns == 5'000'000);
  BOOST_TEST(config.values().engine.chunk_most_bytes == 1048576U);
  BOOST_TEST(config.values().engine.checksum[4]);
  BOOST_TEST(config.values().rung[5] == "never");
  BOOST_TEST((config.values().reactor.cores == CoreList{0, 1}));
  BOOST_TEST(config.source("loopback.nodes") == "x.toml:3");
  BOOST_TEST(config.source("engine.heartbeat") == "default");
  config.set("loopback.nodes", "2", "command line");
  config.set("loopback.rate_scale", "auto", "command line");
  BOOST_TEST(config.values().loopback.nodes == 2U);
  BOOST_TEST(config.values().loopback.rate_scale == 0.0);
  BOOST_TEST(config.source("loopback.nodes") == "command line");
}

BOOST_AUTO_TEST_CASE(each_mistake_is_one_line_with_place_key_and_expectation) {
  BOOST_TEST(error_of("[engine]\nstall_leest = \"2ms\"\n") ==
             "x.toml:2: engine.stall_leest: unknown key, expected engine.stall_least");
  BOOST_TEST(error_of("[zebra]\nq = 1\n") == "x.toml:2: zebra.q: unknown key, expected one of `lanectl show config`");
  BOOST_TEST(error_of("[loopback]\nnodes = 0\n") ==
             "x.toml:2: loopback.nodes = 0: expected a whole number from 1 to 64");
  BOOST_TEST(error_of("[loopback]\nnodes = \"two\"\n") ==
             "x.toml:2: loopback.nodes = \"two\": expected a whole number from 1 to 64");
  BOOST_TEST(error_of("[engine]\n\nheartbeat = 50\n") ==
             "x.toml:3: engine.heartbeat = 50: expected a duration from \"1ms\" to \"10s\", with ns, us, ms, s or min");
  BOOST_TEST(
      error_of("[engine]\nchunk_most = \"1MB\"\n") ==
      "x.toml:2: engine.chunk_most = \"1MB\": expected a size from \"16KiB\" to \"16MiB\", with B, KiB, MiB or GiB");
  BOOST_TEST(error_of("[rung]\ntcp = \"nevr\"\n") == "x.toml:2: rung.tcp = \"nevr\": expected \"auto\" or \"never\"");
  BOOST_TEST(error_of("[checksum]\ntcp = 1\n") == "x.toml:2: checksum.tcp = 1: expected true or false");
  BOOST_TEST(error_of("[loopback]\nrate_scale = nan\n").find("x.toml:2: loopback.rate_scale") == 0U);
  BOOST_TEST(error_of("nodes = 2\n") == "x.toml:1: nodes: expected a key in a section, such as [loopback]");
  BOOST_TEST(error_of("[loopback\n").find("x.toml:1: ") == 0U);
  BOOST_TEST(error_of("[control]\ndead = \"100ms\"\n") ==
             "x.toml:2: control.dead = \"100ms\": expected at least control.suspect = \"250ms\" (default)");
  BOOST_TEST(error_of("[control]\nsuspect = \"3s\"\n") ==
             "x.toml:2: control.suspect = \"3s\": expected at most control.dead = \"2s\" (default)");
  BOOST_TEST(error_of("[engine]\nslots_per_flow = 8\nactive_chunks = 10\n") ==
             "x.toml:2: engine.slots_per_flow = 8: expected at least engine.active_chunks + 4 = 14");
  for (const std::string toml : {"[engine]\nstall_least = \"2\\n3\"\n", "[a]\n[a]\n", "x = [1,\n2]\n", "\xff\n"}) {
    BOOST_TEST(error_of(toml).find('\n') == std::string::npos, toml);
    BOOST_TEST(error_of(toml) != "no error");
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_there_is_one_line) {
  Config config;
  BOOST_CHECK_EXCEPTION(config.read_file("/nowhere/x.toml"), InputError, [](const InputError& e) {
    return std::string(e.what()) ==
           "/nowhere/x.toml: cannot be read: No such file or directory, expected a config file";
  });
}

BOOST_AUTO_TEST_CASE(the_table_agrees_with_itself) {
  Config config;
  config.check();
  std::set<std::string_view> keys;
  for (const ConfigRow& row : config_table()) {
    BOOST_TEST(keys.insert(row.key).second, row.key << " is twice there");
    BOOST_TEST(!row.help.empty(), row.key);
    // Each default is a value that its own row takes.
    std::string text = config_value_text(row, config.values());
    if (!text.empty() && text.front() == '"') text = text.substr(1, text.size() - 2);
    BOOST_CHECK_NO_THROW(config.set(row.key, text, "test"));
  }
}

BOOST_AUTO_TEST_CASE(the_shipped_file_is_the_table) {
  const std::string path = LK_SOURCE_DIR "/configs/lanekeeper.toml";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  BOOST_TEST(text.str() == config_template(), "`lanectl config template` prints what " << path << " should hold");
  // With the keys no longer commented out it says the same as nothing.
  std::string uncommented;
  for (std::string line; std::getline(text, line);) {
    if (line.rfind("# ", 0) == 0 && line.find(" = ") != std::string::npos) line.erase(0, 2);
    uncommented += line + "\n";
  }
  Config from_file, defaults;
  from_file.parse(uncommented, path);
  const auto a = from_file.entries(), b = defaults.entries();
  for (std::size_t i = 0; i < a.size(); ++i) BOOST_TEST(a[i].value == b[i].value, a[i].key);
}

BOOST_AUTO_TEST_CASE(the_lab_files_are_good) {
  for (const char* name : {"dgx-a100", "dgx1-v100", "hgx-h100", "gb200-nvl72", "pcie-8gpu", "mesh-4gpu"}) {
    Config config;
    config.read_file(std::string(LK_SOURCE_DIR "/configs/lab/") + name + ".toml");
    config.check();
    BOOST_TEST(config.values().loopback.profile == name);
    BOOST_TEST(config.values().loopback.nodes >= 2U);
  }
}

BOOST_AUTO_TEST_CASE(a_file_may_be_empty_but_must_be_one) {
  char folder[] = "/tmp/lk-test-XXXXXX";
  BOOST_REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/x.toml";
  const auto read_error = [](const std::string& file) -> std::string {
    try {
      Config config;
      config.read_file(file);
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  std::ofstream(path).flush();
  BOOST_TEST(read_error(path) == "no error");
  BOOST_TEST(read_error(path + "2") == path + "2: cannot be read: No such file or directory, expected a config file");
  BOOST_TEST(read_error(folder) == std::string(folder) + ": cannot be read: Is a directory, expected a config file");
  BOOST_TEST(read_error("/dev/zero") == "/dev/zero: more than 1 MiB, expected a config file");
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_SUITE_END()

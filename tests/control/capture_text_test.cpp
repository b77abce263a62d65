// What is read as the text of a capture, and what is refused before anybody looks for a table in it.
#include "control/topology/capture_text.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"

namespace fs = std::filesystem;

BOOST_AUTO_TEST_SUITE(capture_text)

// Bytes by chance hold a "GPU0 X" somewhere: what is no text is not searched for a table.
BOOST_AUTO_TEST_CASE(what_is_no_text_is_refused) {
  const auto error_of = [](const std::string& path) -> std::string {
    try {
      lk::read_capture_file(path);
    } catch (const lk::InputError& error) {
      return error.what();
    }
    return "no error";
  };
  char folder[] = "/tmp/lk-test-XXXXXX";
  BOOST_REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/capture.txt";
  lk::Random random(11);
  std::string noise = "GPU0 X\n";
  for (int i = 0; i < 100'000; ++i) noise += static_cast<char>(random.next());
  std::ofstream(path, std::ios::binary) << noise;
  BOOST_TEST(error_of(path).find(path + ": no text, byte ") == 0U);
  const std::string utf16(
      "\xff\xfe"
      "G\0P\0U\0",
      8);  // has zeros, and says why
  std::ofstream(path, std::ios::binary) << utf16;
  BOOST_TEST(error_of(path) == "no error");
  BOOST_TEST(error_of(folder).find(": cannot be read: Is a directory; expected") != std::string::npos);
  BOOST_TEST(error_of(path + "2").find(": cannot be read: No such file or directory; expected") != std::string::npos);
  fs::remove_all(folder);
}

BOOST_AUTO_TEST_SUITE_END()

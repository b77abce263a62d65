#include "agent/runtime_folder.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using lk::RuntimeFolder;
using lk::UniqueFd;

namespace {

namespace fs = std::filesystem;

struct Base {
  Base() {
    char name[] = "/tmp/lk-test-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Base() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  bool has(const std::string& name) const { return fs::exists(path + "/" + name); }
  std::string path;
};

// As DPDK's telemetry does.
UniqueFd listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  BOOST_REQUIRE_EQUAL(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  BOOST_REQUIRE_EQUAL(::listen(fd.get(), 1), 0);
  return fd;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(runtime_folder_test)

BOOST_AUTO_TEST_CASE(it_goes_with_its_owner) {
  const Base base;
  {
    const RuntimeFolder folder(base.path, "lk-1");
    const UniqueFd socket = listen_at(base / "lk-1/telemetry");
    BOOST_TEST(base.has("lk-1"));
  }
  BOOST_TEST(fs::is_empty(base.path));
}

BOOST_AUTO_TEST_CASE(what_a_killed_one_left_goes_at_the_next_start) {
  const Base base;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const RuntimeFolder folder(base.path, "lk-1");
    const UniqueFd socket = listen_at(base / "lk-1/telemetry");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  BOOST_REQUIRE(base.has("lk-1/telemetry"));
  fs::create_directory(base / "lk-2");  // as older agents left them
  const RuntimeFolder folder(base.path, "lk-3");
  BOOST_TEST(!base.has("lk-1"));
  BOOST_TEST(!base.has("lk-2"));
  BOOST_TEST(base.has("lk-3"));
}

BOOST_AUTO_TEST_CASE(what_is_in_use_or_not_ours_stays) {
  const Base base;
  const RuntimeFolder living(base.path, "lk-living");
  fs::create_directory(base / "lk-older");  // of an agent that holds no lock
  const UniqueFd socket = listen_at(base / "lk-older/telemetry");
  fs::create_directory(base / "lk-files");
  std::ofstream(base / "lk-files/precious") << "x";
  fs::create_directory(base / "rte");  // another program's
  fs::create_directory(base / "target");
  fs::create_directory_symlink(base / "target", base / "lk-link");
  const RuntimeFolder folder(base.path, "lk-new");
  for (const char* name : {"lk-living", "lk-older/telemetry", "lk-files/precious", "rte", "target", "lk-link"}) {
    BOOST_TEST(base.has(name), name);
  }
}

BOOST_AUTO_TEST_CASE(where_nothing_can_be_written_it_does_nothing) {
  const RuntimeFolder folder("/proc/lk-none", "lk-1");
  BOOST_TEST(!fs::exists("/proc/lk-none"));
}

BOOST_AUTO_TEST_SUITE_END()

#include "agent/control_server.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "dataplane/base/error.hpp"

using namespace lk;
using nlohmann::json;

namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/lk-test-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

json answer(const std::string& command, const json& args) {
  if (command == "echo") return args;
  if (command == "big") return std::string(1 << 20, 'x');
  if (command == "broken") throw std::runtime_error("inside");
  throw InputError("command \"" + command + "\": unknown");
}

UniqueFd connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{30, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return UniqueFd();
  return fd;
}

void send_text(const UniqueFd& fd, const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(fd.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

std::string read_line(const UniqueFd& fd) {
  std::string line;
  for (char c = 0; ::recv(fd.get(), &c, 1, 0) == 1;) {
    if (c == '\n') return line;
    line += c;
  }
  return "closed";
}

class Running {
 public:
  explicit Running(const std::string& path) : server(io, path, 0600, answer), thread([this] { io.run(); }) {}
  ~Running() {
    io.stop();
    thread.join();
  }
  boost::asio::io_context io;
  ControlServer server;
  std::thread thread;
};

std::string error_of(const std::string& path) {
  try {
    ListenSocket socket(path, SOCK_STREAM, 0600);
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(control_server_test)

BOOST_AUTO_TEST_CASE(each_line_is_answered_by_a_line) {
  const Folder folder;
  const Running running(folder / "a.sock");
  const UniqueFd fd = connect_to(folder / "a.sock");
  BOOST_REQUIRE(fd);
  send_text(fd, "{\"command\":\"echo\",\"args\":{\"x\":[1,2]}}\n{\"command\":\"echo\"}\n");
  BOOST_TEST(read_line(fd) == R"({"ok":true,"result":{"x":[1,2]}})");
  BOOST_TEST(read_line(fd) == R"({"ok":true,"result":{}})");
  send_text(fd, "{\"command\":\"big\"}\n");
  BOOST_TEST(read_line(fd).size() > (1U << 20));
}

BOOST_AUTO_TEST_CASE(wrong_requests_get_a_reason_and_harm_nobody) {
  const Folder folder;
  const Running running(folder / "a.sock");
  const UniqueFd fd = connect_to(folder / "a.sock");
  for (const char* line : {"", "nonsense", "[]", "{\"command\":7}", "{\"command\":\"echo\",\"args\":3}", "\xff\xfe"}) {
    send_text(fd, std::string(line) + "\n");
    BOOST_TEST(read_line(fd).find("\"ok\":false") != std::string::npos, line);
  }
  send_text(fd, "{\"command\":\"dance\"}\n");
  BOOST_TEST(json::parse(read_line(fd))["error"] == "command \"dance\": unknown");
  send_text(fd, "{\"command\":\"broken\"}\n");
  BOOST_TEST(json::parse(read_line(fd))["error"] == "the agent could not answer, see its log");

  const UniqueFd endless = connect_to(folder / "a.sock");
  send_text(endless, std::string(100'000, 'x'));
  BOOST_TEST(read_line(endless) == "closed");
  send_text(fd, "{\"command\":\"echo\"}\n");
  BOOST_TEST(read_line(fd) == R"({"ok":true,"result":{}})");
}

BOOST_AUTO_TEST_CASE(the_socket_is_its_owners_alone_and_goes_with_it) {
  const Folder folder;
  {
    const ListenSocket socket(folder / "a.sock", SOCK_STREAM, 0600);
    struct stat found {};
    BOOST_REQUIRE_EQUAL(::stat((folder / "a.sock").c_str(), &found), 0);
    BOOST_TEST((found.st_mode & 0777U) == 0600U);
    BOOST_TEST(error_of(folder / "a.sock") ==
               folder / "a.sock" + ": in use by another agent, expected a path of its " + "own for each agent");
  }
  BOOST_TEST(std::filesystem::is_empty(folder.path));
  BOOST_TEST(error_of(folder / "a.sock") == "no error");
}

BOOST_AUTO_TEST_CASE(what_a_killed_agent_left_is_replaced_at_once) {
  const Folder folder;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const ListenSocket socket(folder / "a.sock", SOCK_STREAM, 0600);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  BOOST_REQUIRE(std::filesystem::exists(folder / "a.sock"));
  BOOST_TEST(error_of(folder / "a.sock") == "no error");
}

BOOST_AUTO_TEST_CASE(a_path_that_cannot_be_is_one_line) {
  const Folder folder;
  const std::string longest(200, 'x');
  BOOST_TEST(error_of("/tmp/" + longest) == "socket path \"/tmp/" + longest + "\": 205 bytes, expected 1 to 107");
  BOOST_TEST(error_of("") == "socket path \"\": 0 bytes, expected 1 to 107");
  std::ofstream(folder / "file") << "precious";
  BOOST_TEST(error_of(folder / "file") == folder / "file" + ": is there and no socket, expected a path that is free");
  BOOST_TEST(std::filesystem::file_size(folder / "file") == 8U);
  BOOST_TEST(!std::filesystem::exists(folder / "file.lock"));  // what is refused leaves nothing behind
  BOOST_TEST(error_of(folder / "no/a.sock").find("no/a.sock.lock: open: No such file or directory, expected") !=
             std::string::npos);
}

// The lock beside the socket is an empty file that is removed at the end. Somebody's file of that name is not ours.
BOOST_AUTO_TEST_CASE(a_file_in_the_place_of_the_lock_is_not_touched) {
  const Folder folder;
  std::ofstream(folder / "a.sock.lock") << "precious";
  BOOST_TEST(error_of(folder / "a.sock") ==
             folder / "a.sock.lock" + ": is there and no lock of an agent, expected a path that is free");
  BOOST_TEST(std::filesystem::file_size(folder / "a.sock.lock") == 8U);
  BOOST_TEST(!std::filesystem::exists(folder / "a.sock"));
  std::filesystem::create_symlink(folder / "elsewhere", folder / "b.sock.lock");
  BOOST_TEST(error_of(folder / "b.sock").find("b.sock.lock: open: ") != std::string::npos);
  BOOST_TEST(!std::filesystem::exists(folder / "elsewhere"));
}

BOOST_AUTO_TEST_CASE(who_holds_connections_open_locks_nobody_out) {
  const Folder folder;
  const Running running(folder / "a.sock");
  std::vector<UniqueFd> held;
  for (int i = 0; i < 300; ++i) {
    held.push_back(connect_to(folder / "a.sock"));
    BOOST_REQUIRE(held.back());
  }
  const UniqueFd fd = connect_to(folder / "a.sock");
  send_text(fd, "{\"command\":\"echo\"}\n");
  BOOST_TEST(read_line(fd) == R"({"ok":true,"result":{}})");
  BOOST_TEST(read_line(held.front()) == "closed");  // the one that has said nothing for longest
}

BOOST_AUTO_TEST_SUITE_END()

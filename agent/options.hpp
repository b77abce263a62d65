// Options: what may be said when a program of ours is started: words, numbers and flags, each with one line of help.
// --help, and one line for a mistake, with exit code 2. Set-up only, one thread.
// CLI11 is behind it: its templates take a compiler 15 seconds, here once instead of once a program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace lk {

class Options {
 public:
  Options(std::string program, const std::string& what);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // Values live longer than the parsing, and keep what they have when nothing is said.
  void text(const char* name, std::string& value, const char* help, bool required = false);
  void text(const char* name, std::optional<std::string>& value, const char* help);
  void number(const char* name, unsigned& value, const char* help, unsigned least, unsigned most);
  void number(const char* name, std::uint64_t& value, const char* help, std::uint64_t least = 0);
  void number(const char* name, double& value, const char* help, double least, double most);
  void flag(const char* name, bool& value, const char* help);
  void version(const std::string& text);

  std::optional<int> parse(int count, char** words);  // with a value: all is said, it is the exit code
  bool said(const char* name) const;                  // after that: it stood on the command line

 private:
  std::string program_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lk

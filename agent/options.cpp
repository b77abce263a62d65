#include "agent/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <utility>

namespace lk {

Options::Options(std::string program, const std::string& what)
    : program_(std::move(program)), app_(std::make_unique<CLI::App>(what)) {}

Options::~Options() = default;

void Options::text(const char* name, std::string& value, const char* help, bool required) {
  app_->add_option(name, value, help)->required(required);
}

void Options::text(const char* name, std::optional<std::string>& value, const char* help) {
  app_->add_option(name, value, help);
}

void Options::number(const char* name, unsigned& value, const char* help, unsigned least, unsigned most) {
  app_->add_option(name, value, help)->check(CLI::Range(least, most));
}

void Options::number(const char* name, std::uint64_t& value, const char* help, std::uint64_t least) {
  app_->add_option(name, value, help)->check(CLI::Range(least, std::numeric_limits<std::uint64_t>::max()));
}

void Options::number(const char* name, double& value, const char* help, double least, double most) {
  app_->add_option(name, value, help)->check(CLI::Range(least, most));
}

void Options::flag(const char* name, bool& value, const char* help) { app_->add_flag(name, value, help); }

void Options::version(const std::string& text) { app_->set_version_flag("--version", text); }

std::optional<int> Options::parse(int count, char** words) {
  try {
    app_->parse(count, words);
  } catch (const CLI::Success& e) {  // --help, --version
    return app_->exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "{}: {}, see --help\n", program_, e.what());
    return 2;
  }
  return std::nullopt;
}

bool Options::said(const char* name) const { return app_->get_option(name)->count() > 0; }

}  // namespace lk

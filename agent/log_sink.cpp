#include "agent/log_sink.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace lk {
namespace {

constexpr std::size_t kMostBytes = 4096;  // PIPE_BUF: whole or not at all

// False: it would have to wait.
bool write_now(std::string line) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1) return false;
  if (line.size() > kMostBytes) {
    line.resize(kMostBytes);
    line.back() = '\n';
  }
  return ::write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace

void StderrSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t text;
  formatter_->format(message, text);
  if (dropped_ != 0 && write_now(fmt::format("{} log lines were dropped, nobody read them\n", dropped_))) dropped_ = 0;
  if (dropped_ != 0 || !write_now(std::string(text.data(), text.size()))) ++dropped_;
}

}  // namespace lk

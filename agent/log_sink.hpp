// StderrSink: the agent's log lines on standard error, never waiting for who reads it. A pager that is not paged on, or
// a terminal that was stopped, would else stop the thread that logs, and that is the control thread: its node would be
// taken for dead. Lines that find no room are dropped, and the next that finds some says how many. One write a line,
// cut at 4096 bytes, which a pipe with room takes at once. Any thread.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>

namespace lk {

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  std::uint64_t dropped_ = 0;
};

}  // namespace lk

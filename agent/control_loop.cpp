#include "agent/control_loop.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <csignal>
#include <string>

namespace lk {
namespace {

constexpr Nanos kDrainLimit = 5 * kSecond;

unsigned mode_of(const AgentConfig& config) {
  return static_cast<unsigned>(std::stoul(config.socket_mode, nullptr, 8));
}

}  // namespace

ControlLoop::ControlLoop(Lab& lab, const Config& config)
    : lab_(lab),
      signals_(io_, SIGTERM, SIGINT),
      bell_(io_, ::dup(lab.bell())),
      sessions_(io_, socket_path(config.values()), mode_of(config.values()), lab),
      commands_(lab, sessions_, config),
      server_(
          io_, socket_path(config.values()), mode_of(config.values()),
          [this](const std::string& command, const nlohmann::json& args) { return commands_.answer(command, args); }) {
  signals_.async_wait([this](auto error, int number) {
    if (error) return;
    spdlog::info("signal {}: stopping", number);
    stopping_ = true;
  });
  listen_bell();
}

void ControlLoop::listen_bell() {
  bell_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](auto error) {
    if (error) return;
    lab_.quiet_bell();
    listen_bell();
  });
}

void ControlLoop::stop() {
  boost::asio::post(io_, [this] { stopping_ = true; });
}

void ControlLoop::turn() {
  sessions_.step(lab_.now());
  lab_.turn();
}

// For handlers, or until the control planes want to be stepped.
void ControlLoop::wait(Nanos most) {
  const Nanos span = std::clamp<Nanos>(lab_.next_time() - lab_.now(), 0, most);
  io_.run_one_for(std::chrono::nanoseconds(span));
  io_.poll();
}

void ControlLoop::run() {
  while (!stopping_) {
    turn();
    wait(kSecond);
  }
  drain();
  lab_.stop();
}

void ControlLoop::drain() {
  sessions_.stop();
  const Nanos begin = lab_.now();
  while (!sessions_.empty() && lab_.now() - begin < kDrainLimit) {
    turn();
    wait(10 * kMilli);
  }
  if (!sessions_.empty()) spdlog::warn("some clients' ops did not end within {} s", kDrainLimit / kSecond);
}

}  // namespace lk

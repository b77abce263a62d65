// lanekeeperd: the agent. This far it runs emulated nodes (--loopback). Exit code: 0 ended as asked, 1 it could not
// run, 2 it was told something wrong.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "agent/control_loop.hpp"
#include "agent/eal.hpp"
#include "agent/launch.hpp"
#include "agent/log_sink.hpp"
#include "agent/options.hpp"
#include "dataplane/base/error.hpp"

namespace {

struct Arguments {
  std::string loopback, config_file;
  std::optional<std::string> nodes, gpu, nic, socket, rate_scale, log_level;
  bool check = false;
};

void set_up_log(const std::string& level) {
  auto log = std::make_shared<spdlog::logger>("lanekeeperd", std::make_shared<lk::StderrSink>());
  log->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  log->set_level(level == "warning" ? spdlog::level::warn : spdlog::level::from_str(level));
  spdlog::set_default_logger(log);
}

lk::Config read_config(const Arguments& o) {
  lk::Config config;
  if (!o.config_file.empty()) config.read_file(o.config_file);
  lk::read_loopback(config, o.loopback);
  const auto set = [&config](const char* key, const char* option, const std::optional<std::string>& value) {
    if (value) config.set(key, *value, option);
  };
  set("loopback.nodes", "--nodes", o.nodes);
  set("loopback.gpu", "--gpu", o.gpu);
  set("loopback.nic", "--nic", o.nic);
  set("loopback.rate_scale", "--rate-scale", o.rate_scale);
  if (o.socket && o.socket->empty()) throw lk::InputError("--socket \"\": expected a path");
  set("agent.socket", "--socket", o.socket);
  set("agent.log_level", "--log-level", o.log_level);
  config.check();
  return config;
}

// Threads that DPDK makes inherit this; the control thread takes it back for itself.
void block_signals(bool block) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, nullptr);
}

// Each client takes five descriptors; the usual soft limit of 1024 is for programs that use select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The run loops end before the threads that DPDK gave them, whatever happens.
struct StopLab {
  lk::Lab& lab;
  ~StopLab() { lab.stop(); }
};

void log_plan(const lk::ClusterSpec& cluster, double scale, const lk::CorePlan& cores) {
  spdlog::info("lanekeeperd {}: loopback, {} node{} of {}, {} GPUs, {} links, {} lanes", LK_VERSION,
               cluster.nodes.size(), cluster.nodes.size() == 1 ? "" : "s", cluster.profile, cluster.gpus.size(),
               cluster.links.size(), cluster.lanes.size());
  for (const std::string& line : cluster.assumed) spdlog::info("assumed: {}", line);
  spdlog::info("all rates are scaled by {:.3g}", scale);
  for (const std::string& line : lk::core_plan_lines(cores)) spdlog::info("{}", line);
}

int run(const Arguments& o) {
  lk::Config config = read_config(o);
  set_up_log(config.values().log_level);
  raise_descriptor_limit();
  const lk::ControlOptions control = lk::control_of(config);
  const lk::AgentConfig& values = config.values();
  const lk::ClusterSpec whole = lk::cluster_of(values.loopback);
  const double scale = values.loopback.rate_scale > 0 ? values.loopback.rate_scale : lk::fitting_scale(whole);
  const lk::ClusterSpec cluster = lk::scaled(whole, scale);
  const auto nodes = static_cast<unsigned>(cluster.nodes.size());
  const lk::CorePlan cores =
      lk::plan_cores(lk::read_machine_cores(), nodes, values.loopback.reactors, values.reactor.cores);
  log_plan(cluster, scale, cores);
  if (o.check) return 0;

  std::random_device device;
  const std::uint64_t seed = (std::uint64_t{device()} << 32) | device();
  lk::Lab lab(cluster, {values, control, cores, scale, seed});
  lk::ControlLoop loop(lab, config);  // has the sockets before anything runs
  block_signals(true);
  ::signal(SIGPIPE, SIG_IGN);
  lk::Eal eal(cores, {lk::socket_path(values), values.reactor.memory_bytes,
                      [](const std::string& line) { spdlog::warn("{}", line); }});
  block_signals(false);
  lab.start(
      {[&eal](unsigned lcore, void (*call)(void*) noexcept, void* argument) { eal.launch(lcore, call, argument); },
       [&eal](unsigned lcore) { eal.wait(lcore); }});
  spdlog::info("ready: lanectl --socket {}", lk::socket_path(values));
  loop.run();
  spdlog::info("ended");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  Arguments o;
  lk::Options options("lanekeeperd",
                      "lanekeeperd: the node agent of Lanekeeper.\nExample: lanekeeperd --loopback "
                      "configs/lab/dgx-a100.toml --socket /tmp/lk.sock");
  options.text("--loopback", o.loopback, "emulate nodes: a config (.toml), a capture (.txt, .xml) or a profile's name",
               true);
  options.text("--config", o.config_file, "config file that is read first; see lanectl config template");
  options.flag("--check", o.check, "read everything, print the plan, start nothing");
  options.text("--nodes", o.nodes, "emulated nodes");
  options.text("--gpu", o.gpu, "GPU board where the capture does not say, such as a100");
  options.text("--nic", o.nic, "NIC generation where the capture does not say, such as hdr");
  options.text("--rate-scale", o.rate_scale, "every rate times this; auto fits this machine's memory");
  options.text("--socket", o.socket, "path of the control socket");
  options.text("--log-level", o.log_level, "debug, info, warning or error");
  options.version(std::string("lanekeeperd ") + LK_VERSION);
  if (const auto code = options.parse(count, words)) return *code;
  try {
    return run(o);
  } catch (const lk::InputError& e) {
    fmt::print(stderr, "lanekeeperd: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "lanekeeperd: {}\n", e.what());
    return 1;
  }
}

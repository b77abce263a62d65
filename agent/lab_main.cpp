// lanekeeper-lab: what scripts/lab runs once all is built: real gradients and every fault scenario on real threads, and
// the simulator's figures of the same files. Exit code: 0 every result is right, 1 one is not, 2 wrong use.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "agent/eal.hpp"
#include "agent/lab_play.hpp"
#include "agent/launch.hpp"
#include "agent/options.hpp"
#include "control/topology/machines.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

struct Arguments {
  std::string only, faults = config_folder() + "/lab/faults", gradients = config_folder() + "/../tests/data/gradients";
  double scale = 0;
  bool json = false, no_sim = false;
};

// Live only where a person watches; it never mixes with a log line.
class ProgressLine {
 public:
  void show(const std::string& text) {
    if (!tty_) return;
    fmt::print(stderr, "\r{:.118}\x1b[K", text);
    std::fflush(stderr);
  }
  void wipe() { show(""); }

 private:
  bool tty_ = ::isatty(STDERR_FILENO) == 1;
};

// The simulator's figures, beside the lab: on a thread that gets what the lab leaves of the machine.
class Figures {
 public:
  explicit Figures(const std::vector<LabStory>& stories) : stories_(stories), rows_(stories.size()) {}
  ~Figures() {
    next_ = stories_.size();
    finish();
  }
  Figures(const Figures&) = delete;
  Figures& operator=(const Figures&) = delete;

  // Once; again, when the lab no longer needs the machine.
  void start() {
    threads_.emplace_back([this] { work(); });
  }
  void finish() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  const LabRow& row(std::size_t i) const noexcept { return rows_[i]; }

 private:
  void work() {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);  // refused: no matter
    for (std::size_t i = next_++; i < stories_.size(); i = next_++) {
      try {
        add_figures(rows_[i], stories_[i].scenario);
      } catch (const std::exception& e) {
        rows_[i].why = std::string("simulator: ") + e.what();
      }
    }
  }

  const std::vector<LabStory>& stories_;
  std::vector<LabRow> rows_;
  std::vector<std::thread> threads_;
  std::atomic<std::size_t> next_{0};
};

void join_figures(LabRow& row, const LabRow& figures) {
  row.simulated = figures.simulated;
  row.bound_fraction = figures.bound_fraction;
  row.failover_p99_ns = figures.failover_p99_ns;
  row.wrong_bits += figures.wrong_bits;
  row.lost_ops += figures.lost_ops;
  row.hung_ops += figures.hung_ops;
  if (row.why.empty()) row.why = figures.why;
}

void log_row(const LabRow& r, double seconds) {
  spdlog::info("{} ({}): {} ops, {} MiB in {:.1f} s, {}{}", r.name, r.profile, r.ops, r.payload_bytes / kMiB, seconds,
               r.why.empty() ? "right" : "WRONG: ", r.why);
}

std::vector<LabRow> play_all(const Arguments& a, LabSetting& setting, LabGradients& gradients,
                             const std::vector<LabStory>& stories, ProgressLine& line) {
  Figures figures(stories);
  if (!a.no_sim) figures.start();
  std::vector<LabRow> rows;
  const std::size_t total = stories.size() + 1;
  const MonotonicClock clock;
  setting.progress = [&](const std::string& what, const LabReport& r) {
    line.show(fmt::format("[{}/{}] {}: {} ops, {:.1f} s", rows.size() + 1, total, what, r.ops,
                          static_cast<double>(r.took_ns) * 1e-9));
  };
  const auto add = [&](auto play) {
    const Nanos begin = clock.now();
    LabRow row = play();
    line.wipe();
    log_row(row, static_cast<double>(clock.now() - begin) * 1e-9);
    rows.push_back(std::move(row));
  };
  if (a.only.empty()) add([&] { return play_gradients(setting, gradients); });
  const std::size_t first = rows.size();
  for (const LabStory& s : stories) add([&] { return play_story(setting, gradients, s); });
  if (a.no_sim) return rows;
  line.show("the simulator's figures");
  figures.start();
  figures.finish();
  line.wipe();
  for (std::size_t i = 0; i < stories.size(); ++i) join_figures(rows[first + i], figures.row(i));
  return rows;
}

int run(const Arguments& a) {
  const std::vector<LabStory> stories = lab_stories(a.faults, a.only);
  LabGradients gradients(a.gradients);
  Config config;
  LabSetting setting;
  setting.control = control_of(config);
  setting.config = config.values();
  setting.machine = read_machine_cores();
  const GBps memory = memory_rate();
  setting.scale = a.scale > 0 ? a.scale : lab_scale(stories, memory);
  setting.config.engine.op_deadline_ns = lab_deadline(setting.config.engine.op_deadline_ns, setting.scale);
  unsigned nodes = 2;
  for (const LabStory& s : stories) nodes = std::max(nodes, s.scenario.node_count());
  const CorePlan cores = plan_cores(setting.machine, nodes, 0, {});
  spdlog::info("memory copies {:.1f} GB/s; all rates are scaled by {:.3g}", memory, setting.scale);
  for (const std::string& l : core_plan_lines(cores)) spdlog::debug("{}", l);
  Eal eal(cores, {fmt::format("lab-{}", ::getpid()), setting.config.reactor.memory_bytes,
                  [](const std::string& l) { spdlog::warn("{}", l); }});
  setting.threads = {
      [&eal](unsigned lcore, void (*call)(void*) noexcept, void* argument) { eal.launch(lcore, call, argument); },
      [&eal](unsigned lcore) { eal.wait(lcore); }};
  ProgressLine line;
  const std::vector<LabRow> rows = play_all(a, setting, gradients, stories, line);
  const ClusterSpec shown = a.only.empty() ? build_profile("dgx-a100", 2) : stories.front().cluster;
  if (a.json)
    fmt::print("{}\n", lab_json(rows, shown.nodes.size(), shown.nodes.front().gpu_count).dump());
  else
    fmt::print("{}", lab_table(rows));
  return all_right(rows) ? 0 : 1;
}

}  // namespace
}  // namespace lk

int main(int count, char** words) {
  auto log = spdlog::stderr_logger_mt("lab");
  log->set_pattern("%H:%M:%S %l %v");
  spdlog::set_default_logger(log);
  try {
    lk::Arguments a;
    lk::Options options("lanekeeper-lab",
                        "lanekeeper-lab: real gradients and every fault scenario on real threads.\nExample: "
                        "lanekeeper-lab --only rail-cut");
    options.flag("--json", a.json, "one JSON object on stdout instead of the table");
    options.text("--only", a.only, "this scenario alone: its name, or its file's without .toml");
    options.flag("--no-sim", a.no_sim, "no figures from the simulator: no share of the bound, no failover time");
    options.number("--scale", a.scale, "every rate times this, instead of what fits this machine's memory", 1e-6, 1.0);
    options.text("--faults", a.faults, "folder of scenario files");
    options.text("--gradients", a.gradients, "folder of safetensors files");
    if (const auto code = options.parse(count, words)) return *code;
    return lk::run(a);
  } catch (const lk::InputError& e) {
    fmt::print(stderr, "lanekeeper-lab: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "lanekeeper-lab: {}\n", e.what());
    return 1;
  }
}

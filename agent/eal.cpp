#include "agent/eal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "dataplane/base/crc32c.hpp"
#include "dataplane/base/error.hpp"
#include "dataplane/base/unique_fd.hpp"

namespace lk {

// A stdio stream whose lines go to the agent's log; while DPDK starts they are kept.
struct Eal::Log {
  std::function<void(const std::string&)> sink;
  std::string partial = {};
  std::vector<std::string> kept = {};
  bool starting = true;
  std::FILE* stream = nullptr;

  void take(const std::string& line) {
    if (line.empty()) return;
    if (starting) {
      kept.push_back(line);
    } else if (sink) {
      sink(line);
    }
  }

  static ssize_t write(void* cookie, const char* text, std::size_t size) {
    auto& log = *static_cast<Log*>(cookie);
    for (std::size_t i = 0; i < size; ++i) {
      if (text[i] != '\n') {
        log.partial += text[i];
        continue;
      }
      log.take(log.partial);
      log.partial.clear();
    }
    return static_cast<ssize_t>(size);
  }
};

namespace {

// How many calls on lcores are over. DPDK orders what they did before wait() returns, in code that no sanitizer sees.
std::atomic<unsigned> calls_over{0};

bool writable(const char* folder) { return folder != nullptr && *folder != '\0' && ::access(folder, W_OK | X_OK) == 0; }

// DPDK's choice of a folder for its sockets, where it can be written; else the first of ours; else empty.
std::string runtime_folder() {
  const char* systemd = std::getenv("RUNTIME_DIRECTORY");
  if (writable(systemd)) return systemd;
  if (::geteuid() == 0 && writable("/var/run")) return "/var/run";
  const char* user = std::getenv("XDG_RUNTIME_DIR");
  if (writable(user)) return user;
  return writable("/tmp") ? "/tmp" : "";
}

// While it lives, what anybody prints goes nowhere: DPDK answers a bad start with pages of help on our output.
class OutputAway {
 public:
  OutputAway() {
    std::fflush(nullptr);
    const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    for (int fd = 0; fd < 2; ++fd) {
      saved_[fd] = UniqueFd(::fcntl(fd + 1, F_DUPFD_CLOEXEC, 3));
      if (nowhere && saved_[fd]) ::dup2(nowhere.get(), fd + 1);
    }
  }
  ~OutputAway() {
    std::fflush(nullptr);
    for (int fd = 0; fd < 2; ++fd) {
      if (saved_[fd]) ::dup2(saved_[fd].get(), fd + 1);
    }
  }
  OutputAway(const OutputAway&) = delete;
  OutputAway& operator=(const OutputAway&) = delete;

 private:
  UniqueFd saved_[2];
};

std::string eal_prefix(const EalOptions& options) {
  return fmt::format("lk-{:08x}", crc32c(0, options.instance.data(), options.instance.size()));
}

// DPDK ends the process without a word when a thread of its own cannot be made. It makes two beside the lcores.
void check_threads(std::size_t wanted) {
  std::vector<std::thread> threads;
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::string error;
  try {
    while (threads.size() < wanted) threads.emplace_back([ended] { ended.wait(); });
  } catch (const std::system_error& e) {
    error = e.what();
  }
  end.set_value();
  const std::size_t made = threads.size();
  for (std::thread& t : threads) t.join();
  if (!error.empty()) {
    throw SystemError(fmt::format("threads: only {} of {} can be made: {}; ulimit -u?", made, wanted, error));
  }
}

int start(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size());
  for (std::string& w : words) arguments.push_back(w.data());
  const OutputAway away;
  return rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

std::vector<std::string> eal_arguments(const CorePlan& plan, const EalOptions& options) {
  std::string lcores = fmt::format("0@({})", cores_text(plan.control_cores));
  for (const ReactorPlace& r : plan.reactors) lcores += fmt::format(",{}@{}", r.lcore, r.core);
  return {"--no-huge",
          "--no-shconf",
          "--no-pci",
          "--file-prefix",
          eal_prefix(options),
          "-m",
          std::to_string(options.memory_bytes / kMiB),
          "--lcores",
          lcores,
          "--main-lcore",
          "0",
          "--log-level",
          "warning",
          "--log-level",
          "lib.telemetry:error",
          "--iova-mode",
          "va"};
}

Eal::Eal(const CorePlan& plan, const EalOptions& options) : log_(new Log{.sink = options.log}) {
  if (plan.reactors.size() + 1 > RTE_MAX_LCORE) {
    throw InputError(fmt::format("{} reactors: expected at most {}", plan.reactors.size(), RTE_MAX_LCORE - 1));
  }
  check_threads(plan.reactors.size() + 3);
  // The stream lives as long as the process: DPDK's own threads may log until then.
  log_->stream = ::fopencookie(log_, "w", {.read = nullptr, .write = &Log::write, .seek = nullptr, .close = nullptr});
  if (log_->stream == nullptr) throw SystemError("fopencookie: no memory for DPDK's log");
  std::setvbuf(log_->stream, nullptr, _IOLBF, 4096);
  rte_openlog_stream(log_->stream);
  rte_log_set_global_level(RTE_LOG_WARNING);

  std::vector<std::string> words = eal_arguments(plan, options);
  words.insert(words.begin(), "lanekeeperd");
  const std::string folder = runtime_folder();
  if (folder.empty()) {
    words.emplace_back("--no-telemetry");
  } else {
    ::setenv("RUNTIME_DIRECTORY", folder.c_str(), 1);
    folder_ = std::make_unique<RuntimeFolder>(folder + "/dpdk", eal_prefix(options));
  }
  const bool started = start(words) >= 0;
  const int reason = rte_errno;
  std::fflush(log_->stream);
  log_->starting = false;
  if (!started) {
    throw SystemError(fmt::format("DPDK does not start: {}{}{}", rte_strerror(reason), log_->kept.empty() ? "" : "; ",
                                  log_->kept.empty() ? "" : log_->kept.back()));
  }
  for (const std::string& line : log_->kept) log_->take(line);
}

Eal::~Eal() {
  rte_eal_cleanup();
  folder_.reset();
  std::fflush(log_->stream);
}

void Eal::launch(unsigned lcore, void (*call)(void*) noexcept, void* argument) {
  struct Launch {
    void (*call)(void*) noexcept;
    void* argument;
  };
  auto* launch = new Launch{call, argument};
  const auto run = [](void* raw) -> int {
    const std::unique_ptr<Launch> mine(static_cast<Launch*>(raw));
    mine->call(mine->argument);
    calls_over.fetch_add(1, std::memory_order_release);
    return 0;
  };
  const int result = rte_eal_remote_launch(run, launch, lcore);
  if (result != 0) {
    delete launch;
    throw SystemError(fmt::format("DPDK lcore {}: {}", lcore, rte_strerror(-result)));
  }
}

void Eal::wait(unsigned lcore) noexcept {
  rte_eal_wait_lcore(lcore);
  calls_over.load(std::memory_order_acquire);
}

}  // namespace lk

// Eal: DPDK's environment of this process: its threads, pinned, one a reactor. The only place that starts it.
// Works for a plain user, in a container, without hugepages; opens no device and keeps no file that outlives it.
// Started once in a process, by the thread that becomes the control thread (lcore 0). Fails: SystemError, one line,
// when DPDK refuses to start; its own log goes to `log`, at warning or worse.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/core_plan.hpp"
#include "agent/runtime_folder.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct EalOptions {
  std::string instance;  // what tells this agent from others on the machine: its socket's path
  Bytes memory_bytes = 64 * kMiB;
  std::function<void(const std::string& line)> log;  // during start and end only on this thread, later on any
};

class Eal {
 public:
  Eal(const CorePlan& plan, const EalOptions& options);
  ~Eal();  // every launched function has returned before
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;

  // Runs call(argument) on the thread of `lcore`, which must be idle.
  void launch(unsigned lcore, void (*call)(void*) noexcept, void* argument);
  void wait(unsigned lcore) noexcept;

 private:
  struct Log;
  Log* log_;
  std::unique_ptr<RuntimeFolder> folder_;
};

// The arguments for DPDK, without the program's name.
std::vector<std::string> eal_arguments(const CorePlan& plan, const EalOptions& options);

}  // namespace lk

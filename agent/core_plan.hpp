// CorePlan: which reactor runs on which core and polls which nodes. Made once at start, printed, then fixed.
// Never outside of the cores that this process may use (its cgroup's cpuset, its affinity). Any thread.
// Fails: InputError that names the key reactor.cores and the cores that may be used; SystemError when the machine does
// not say which there are.
#pragma once

#include <string>
#include <vector>

#include "agent/config_value.hpp"
#include "dataplane/base/ids.hpp"

namespace lk {

struct MachineCores {
  struct Core {
    unsigned core = 0;  // as the kernel numbers them
    unsigned socket = 0;
  };
  std::vector<Core> allowed;  // ascending
};

// What this process may use. Sockets are 0 where the machine does not tell them.
MachineCores read_machine_cores();

struct ReactorPlace {
  unsigned lcore = 0;  // DPDK's number of the thread, from 1; 0 is the control thread
  unsigned core = 0;
  bool shared = false;  // another reactor is on the same core
  std::vector<NodeId> nodes;
};

struct CorePlan {
  CoreList control_cores;  // the control thread floats over all that are allowed
  std::vector<ReactorPlace> reactors;
};

// `reactors` and `wanted`: 0 and empty to choose: one reactor a node; up to two cores, one a socket first, no more than
// nodes. More reactors than cores share them in turn.
CorePlan plan_cores(const MachineCores& machine, unsigned nodes, unsigned reactors, const CoreList& wanted);

// One line a reactor, for the log at start.
std::vector<std::string> core_plan_lines(const CorePlan& plan);

}  // namespace lk

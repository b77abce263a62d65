// EngineOptions: the numbers of a data path's rules: which rungs carry a checksum, when a chunk is late, how much may
// be under way. Defaults as documented in configs/lanekeeper.toml; times in ns.
#pragma once

#include <array>

#include "dataplane/api/cluster.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

inline constexpr unsigned kAtOnceSlots = 4;  // of a flow's slots, kept for chunks that the receiver consumes at once

struct EngineOptions {
  // by LaneKind: nvlink, pcie, relay, host, rdma, tcp. rdma has its own ICRC, nvlink and pcie their link CRC.
  std::array<bool, 6> checksum = {false, false, true, true, false, true};
  Nanos stall_least_ns = 2 * kMilli;  // a chunk later than max(this, stall_factor × expected) is a stall
  double stall_factor = 8;
  Nanos heartbeat_ns = 50 * kMilli;
  Nanos op_deadline_ns = 30 * kSecond;
  Nanos fence_retry_ns = 20 * kMilli;
  Nanos probe_first_ns = 50 * kMilli;   // first probe after a failure
  Nanos probe_most_ns = 2 * kSecond;    // back-off is capped here
  Nanos flap_window_ns = 10 * kSecond;  // a lane that fails again within this is held down longer each time
  unsigned flap_limit = 3;              // failures in the window before it is called flapping
  Nanos flap_hold_ns = 2 * kSecond;     // first hold of a flapping lane; doubles
  Nanos flap_hold_most_ns = 60 * kSecond;
  // Landing slots granted to one sending rank for one receiving rank. active_chunks of them are kept for the oldest op,
  // so an op that waits for others can never fill the slots that those others need.
  unsigned slots_per_flow = 28;
  unsigned active_ops = 4;       // ops of one group that move data at once
  unsigned active_chunks = 16;   // chunks that one owner has under way in one op
  unsigned transfers = 32768;    // chunk transfers of one engine under way at once
  unsigned relay_buffers = 512;  // of one neighbour; a relay without one refuses
  Bytes chunk_most_bytes = 4 * kMiB;
  bool payload = true;
};

}  // namespace lk

// SimRun: ops on a simulated cluster, checked. It is the cluster's only client: it enters ops for every rank in order,
// a few ahead, compares every result with the reference bits, and after a loss goes on with the ranks that are left
// from the op that the survivors agreed on. Every op of every rank must end in exactly one result. Owner: one thread.
// The same job gives the same report and the same log.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/sim_cluster.hpp"
#include "agent/workload.hpp"

namespace lk {

struct SimJob {
  SimOptions options;
  std::vector<PlannedOp> ops;
  unsigned depth = 3;  // ops that a rank has entered and not got back
  std::uint64_t seed = 1;
  FaultRows faults;           // times count from the start of op `fault_op`
  unsigned fault_op = 1;      // from 1
  unsigned mark_op = 0;       // from this op on (from 1) lane_bytes are counted; 0: not
  Status lost = Status::kOk;  // how an op may end besides ok
};

struct SimReport {
  bool ok = false;
  std::string why;  // of the first thing that is not right
  unsigned ops = 0;
  std::uint64_t payload_bytes = 0;  // reduced or broadcast, of all ranks
  std::uint64_t wrong_bits = 0;
  unsigned lost_ops = 0, hung_ops = 0, ended_ops = 0;  // ended: with the error that a loss of nodes allows
  unsigned shrinks = 0;
  Nanos ended_at = 0, fault_at = -1;
  std::vector<Nanos> started, finished;  // by op, when the first rank entered and the last had its result; -1: never
  std::vector<Nanos> failovers;          // from a fault's begin to the first chunk that was sent again
  std::vector<Bytes> lane_bytes;         // by lane × 2 + direction: payload since mark_op
  std::uint64_t events = 0;
};

class SimRun {
 public:
  SimRun(const ClusterSpec& cluster, const SimJob& job);
  ~SimRun();
  // `log` gets one line for every event of every engine.
  SimReport run(std::string* log = nullptr);
  SimCluster& sim() noexcept { return sim_; }

 private:
  struct RankState {
    EndpointId endpoint = 0;
    bool gone = false;
    unsigned next = 0;      // op to enter
    unsigned returned = 0;  // ops that came back; young ones may do so before old ones
    bool failing = false;   // an op failed: waits for the new membership
  };
  struct LiveOp {
    std::unique_ptr<OpMemory> memory;
    std::set<Rank> got;  // ranks with their result
  };

  bool make_group();
  void enter_ready();
  void enter(RankState& r, Rank rank);
  void take_results(NodeId n);
  void take_result(const OpResult& result);
  void take_failure(const OpResult& result, unsigned i);
  void take_log(std::string* log);
  void follow_membership();
  void release_faults();
  void take_snapshots(int sign);
  bool done() const;
  void fail(const std::string& why);
  const GroupRecord* record() const;
  bool takes_ops(NodeId node);  // its engine has the membership that the ranks follow
  std::size_t alive() const;

  SimJob job_;
  SimCluster sim_;
  SimReport report_;
  GroupSpec spec_;
  GroupId group_ = 0;
  std::vector<RankState> ranks_;      // by first rank
  std::vector<unsigned> first_rank_;  // by rank of the present membership
  unsigned base_ = 0;                 // op index of spec_.first_op
  // By membership and op index. Those of a membership that is over stay: engines may hold them, results may come yet.
  std::map<std::pair<std::uint16_t, unsigned>, LiveOp> live_;
  std::vector<Nanos> not_before_;
  bool released_ = false, partitioned_ = false;
  std::vector<Nanos> fault_begins_;
  std::vector<bool> fault_answered_;
};

}  // namespace lk

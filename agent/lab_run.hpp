// LabRun: ops on a lab of real threads, checked. It is the lab's only client, in the place of sessions: it enters ops
// for every rank in order, a few ahead, lets the faults loose, compares every result with the reference bits, and
// after a loss goes on with the ranks that are left from the op that the survivors agreed on. Every op of every rank
// must end in exactly one result. Owner: the lab's control thread. The lab is stopped at the end: its engines have the
// memory of the ops until then. Nothing throws but what Lab throws; what goes wrong is in the report. Times in ns.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/lab.hpp"
#include "agent/lab_gradients.hpp"

namespace lk {

struct LabJob {
  std::vector<PlannedOp> ops;        // count: filled in from the gradients' sizes
  std::vector<EndpointId> members;   // empty: all GPUs
  unsigned depth = 2;                // ops that a rank has entered and not got back
  FaultRows faults;                  // times count from the start of op `fault_op`
  unsigned fault_op = 1;             // from 1; 0: from the start, and all payload is counted
  unsigned least_ops = 1;            // entered in any case
  Nanos box_ns = 10 * kSecond;       // then no more ops are entered
  Nanos patience_ns = 40 * kSecond;  // without any result: hung
  Status lost = Status::kOk;         // how an op may end besides ok
};

struct LabReport {
  bool ok = false;
  std::string why;                   // of the first thing that is not right
  std::vector<std::string> journal;  // of all nodes until then, when something is not right
  unsigned ops = 0;
  std::uint64_t payload_bytes = 0;  // of the results of all ranks
  std::uint64_t wrong_bits = 0;
  unsigned lost_ops = 0, hung_ops = 0, ended_ops = 0;  // ended: with the error that a loss of nodes allows
  unsigned shrinks = 0;
  Nanos took_ns = 0;
  std::vector<Bytes> lane_bytes;  // by lane × 2 + direction: payload since the faults were there
};

class LabRun {
 public:
  LabRun(Lab& lab, LabGradients& gradients, LabJob job);
  ~LabRun();
  LabRun(const LabRun&) = delete;
  LabRun& operator=(const LabRun&) = delete;

  // The lab runs. `watch` is called now and then.
  LabReport run(const std::function<void(const LabReport&)>& watch = {});

 private:
  struct RankState {
    EndpointId endpoint = 0;
    bool gone = false;
    bool failing = false;   // an op failed: waits for the new membership
    unsigned next = 0;      // op to enter
    unsigned returned = 0;  // ops that came back; young ones may do so before old ones
  };
  struct LiveOp {
    std::unique_ptr<LabOpMemory> memory;
    std::set<Rank> got;  // ranks with their result
  };

  bool make_group();
  void work();
  void turn();
  void wait();
  void enter_ready();
  void enter(RankState& r, Rank rank);
  void take_result(const OpResult& result);
  void take_failure(const OpResult& result, unsigned i);
  void follow_membership();
  void release_faults();
  void kill_due();
  void close_entry();
  void count_lanes(int sign);
  bool faults_are_there() const;
  bool done() const;
  void count_hung();
  void fail(const std::string& why);
  const GroupRecord* record() const;
  NodeId node_of(EndpointId e) const noexcept { return lab_.cluster().gpus[e].node; }
  std::unique_ptr<LabOpMemory> free_memory();

  Lab& lab_;
  LabGradients& gradients_;
  LabJob job_;
  LabReport report_;
  Nanos began_ = 0, moved_ = 0, next_entry_ = kNever;
  GroupSpec spec_;
  GroupId group_ = 0;
  unsigned end_ = 0;                  // ops that are entered in all
  unsigned base_ = 0;                 // op index of spec_.first_op
  std::vector<RankState> ranks_;      // by first rank
  std::vector<unsigned> first_rank_;  // by rank of the present membership
  std::vector<Nanos> started_;        // by op index; -1: not
  std::vector<bool> finished_;
  // By membership and op index. Those of a membership that is over stay: engines may hold them, results may come yet.
  std::map<std::pair<std::uint16_t, unsigned>, LiveOp> live_;
  std::vector<std::unique_ptr<LabOpMemory>> free_;
  std::vector<std::pair<Nanos, NodeId>> deaths_;
  bool released_ = false, counted_ = false;
  Nanos there_at_ = 0;  // when all faults have begun
};

// The lab's mixture: mostly sums of F32 in and out of place, averages, half types, broadcasts.
std::vector<PlannedOp> gradient_ops(unsigned ops, Nanos gap_ns);

}  // namespace lk

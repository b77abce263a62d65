// GroupTable: the groups of this node, by id, and how one comes to be. The node of rank 0 creates it:
//   Offer (description, plan) → every node accepts, or refuses with a reason
//   Install                   → every node gives it to its engine and says so
//   Ready                     → ops may be entered anywhere
// A refusal, a death or the deadline ends it everywhere, with a line that names the node. Ids are spread over creators
// (a node's ids are equal to its number modulo the count of nodes) and are not used again while they can be avoided.
// Owner: the control thread. Fails: create() throws InputError for a list or a name that cannot be; all later failures
// are the group's `error`.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "control/peers/group_record.hpp"
#include "dataplane/api/op.hpp"
#include "dataplane/base/random.hpp"

namespace lk {

struct GroupOptions {
  std::string owner = "unknown";  // who asks, as shown to the next who wants the name
  Bytes chunk_most_bytes = 4 * kMiB;
  Nanos deadline_ns = 0;  // 0: the threshold's
};

class GroupTable {
 public:
  GroupTable(const GroupContext& context, std::uint64_t seed) : context_(context), random_(seed) {}

  GroupId create(const std::string& name, std::span<const EndpointId> members, const GroupOptions& options, Nanos now);
  void destroy(GroupRecord& group, Nanos now);  // everywhere; its ops end as cancelled

  GroupRecord* find(GroupId id) noexcept;
  const GroupRecord* find(GroupId id) const noexcept;
  GroupRecord* find(GroupId id, std::uint64_t uuid_lo) noexcept;         // not ended
  const GroupRecord* find_name(const std::string& name) const noexcept;  // not ended
  std::map<GroupId, std::unique_ptr<GroupRecord>>& all() noexcept { return groups_; }
  const std::map<GroupId, std::unique_ptr<GroupRecord>>& all() const noexcept { return groups_; }

  void note_result(const OpResult& result);

  // Records of creation and end; true if it was one.
  bool take(NodeId from, const Record& record, Nanos now);
  void node_lost(NodeId node, Nanos now);  // for groups that are not live yet
  void tick(Nanos now);
  Nanos next_time() const noexcept;

  // Ends it here, and tells its other nodes if asked.
  void end(GroupRecord& group, Status status, NodeId lost, const std::string& why, bool tell, Nanos now);
  std::uint64_t changes() const noexcept { return changes_; }  // grows when a group comes, goes or changes plan
  void note_change() noexcept { ++changes_; }

 private:
  GroupId draw_id();
  GroupRecord& add(const GroupSpec& spec, const PlanSpec& plan, const std::string& owner, NodeId creator, Nanos now);
  std::string why_not(const GroupSpec& spec, Nanos now) const;
  void offer(NodeId from, RecordReader& in, Nanos now);
  void refuse(NodeId to, GroupId id, std::uint64_t uuid_lo, const std::string& why);
  void answered(GroupRecord& group, NodeId from, bool installed, Nanos now);
  void install(GroupRecord& group);
  void all_accepted(GroupRecord& group, Nanos now);
  void all_installed(GroupRecord& group, Nanos now);
  void forget_old(Nanos now);

  GroupContext context_;
  Random random_;
  std::map<GroupId, std::unique_ptr<GroupRecord>> groups_;
  std::uint32_t drawn_ = 0;
  std::uint64_t changes_ = 1;
};

}  // namespace lk

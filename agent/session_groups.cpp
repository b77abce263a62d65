#include "agent/session_groups.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "agent/lab.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

constexpr std::uint16_t kMostRanks = 1024;
constexpr std::size_t kMostGroups = 1024;  // of all clients together, in the process of forming too

std::string age_text(Nanos span) { return fmt::format("{} s", std::max<Nanos>(span, 0) / kSecond); }

bool is_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

SessionGroups::Joined SessionGroups::join(const RankOwner& owner, const std::string& name, Rank rank,
                                          std::uint16_t ranks, EndpointId wanted, Nanos now) {
  if (!is_name(name)) throw InputError("group name: expected 1 to 63 printable characters without spaces");
  if (ranks == 0 || ranks > kMostRanks || rank >= ranks) {
    throw InputError(
        fmt::format("rank {} of {}: expected 1 to {} ranks and a rank below that", rank, ranks, kMostRanks));
  }
  if (ranks > lab_.cluster().gpus.size()) {
    throw InputError(fmt::format("group {}: {} ranks, expected at most {}, one for each GPU here", name, ranks,
                                 lab_.cluster().gpus.size()));
  }
  Group& group = forming(owner, name, ranks, now);
  if (group.phase != Phase::kForming) return join_again(group, owner, rank, now);
  Member& member = group.members[rank];
  if (member.here) throw InputError(fmt::format("group {}: rank {} is taken by {}", name, rank, member.owner.name));
  try {
    member.endpoint = choose_endpoint(group, rank, wanted);
  } catch (const InputError&) {
    forget_empty();  // what it would have begun must not bind those who come after it
    throw;
  }
  member.owner = owner;
  member.number = group.members.front().number;
  member.here = true;
  return {member.number, member.endpoint};
}

// The group of that name; a new one if there is none.
SessionGroups::Group& SessionGroups::forming(const RankOwner& owner, const std::string& name, std::uint16_t ranks,
                                             Nanos now) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const auto& g) { return g->name == name && g->phase != Phase::kEnded; });
  if (found == groups_.end()) {
    if (groups_.size() >= kMostGroups) {
      throw InputError(
          fmt::format("group {}: there are {} groups already, the most that there may be", name, kMostGroups));
    }
    auto group = std::make_unique<Group>();
    group->name = name;
    group->owner = owner.name;
    group->since = now;
    group->members.resize(ranks);
    const std::uint16_t number = new_number();
    for (Member& m : group->members) m.number = number;
    groups_.push_back(std::move(group));
    return *groups_.back();
  }
  Group& group = **found;
  if (group.phase == Phase::kForming && group.members.size() != ranks) {
    throw InputError(fmt::format("group {}: has {} ranks as {} joined it, expected the same of all", name,
                                 group.members.size(), group.owner));
  }
  return group;
}

// After a loss: the same client, the same rank, a new number.
SessionGroups::Joined SessionGroups::join_again(Group& group, const RankOwner& owner, Rank rank, Nanos now) {
  Member* member = rank < group.members.size() ? &group.members[rank] : nullptr;
  const bool may = member != nullptr && member->owner.client == owner.client && !member->left && !member->ended &&
                   !member->told && group.phase == Phase::kReady;
  if (!may) {
    throw InputError(
        fmt::format("group {}: the name is in use by {} for {}", group.name, group.owner, age_text(now - group.since)));
  }
  member->number = new_number();
  member->here = true;
  return {member->number, member->endpoint};
}

EndpointId SessionGroups::choose_endpoint(const Group& group, Rank rank, EndpointId wanted) const {
  const std::size_t gpus = lab_.cluster().gpus.size();
  const std::size_t endpoint = wanted == kNoId16 ? rank : wanted;
  if (endpoint >= gpus) {
    throw InputError(
        fmt::format("group {}: GPU {} for rank {}, expected one of the {} here", group.name, endpoint, rank, gpus));
  }
  for (std::size_t r = 0; r < group.members.size(); ++r) {
    if (group.members[r].here && group.members[r].endpoint == endpoint) {
      throw InputError(
          fmt::format("group {}: GPU {} has rank {} already, expected one rank a GPU", group.name, endpoint, r));
    }
  }
  return static_cast<EndpointId>(endpoint);
}

std::uint16_t SessionGroups::new_number() {
  const auto used = [this](std::uint16_t n) {
    return std::any_of(groups_.begin(), groups_.end(), [n](const auto& g) {
      return std::any_of(g->members.begin(), g->members.end(), [n](const Member& m) { return m.number == n; });
    });
  };
  do {
    ++last_number_;
  } while (last_number_ == kNoId16 || used(last_number_));
  return last_number_;
}

const GroupRecord* SessionGroups::record_of(const Group& group, const Member& member) const {
  return lab_.node(lab_.cluster().gpus[member.endpoint].node).plane().group(group.id);
}

void SessionGroups::client_left(std::uint64_t client, bool in_flight, Nanos now) {
  for (const auto& group : groups_) {
    bool in_it = false;
    for (Member& m : group->members) {
      if (m.owner.client != client || m.left) continue;
      in_it = true;
      if (group->phase == Phase::kForming) {
        const std::uint16_t number = m.number;
        m = Member{};
        m.number = number;
        continue;
      }
      m.left = true;
      m.told = true;
      for (const SessionRank& r : m.owner.session->ranks()) {
        if (r.number == m.number) m.entered = std::max(m.entered, r.next_op - 1);
      }
      m.owner.session = nullptr;
    }
    if (in_it && in_flight && group->phase != Phase::kForming) end_everywhere(*group, now);
  }
  forget_empty();
}

void SessionGroups::forget_empty() {
  std::erase_if(groups_, [](const auto& g) {
    return g->phase == Phase::kForming &&
           std::none_of(g->members.begin(), g->members.end(), [](const Member& m) { return m.here; });
  });
}

void SessionGroups::note_result(const OpResult& result) {
  for (const auto& group : groups_) {
    if (group->id != result.group || group->phase != Phase::kReady) continue;
    for (Member& m : group->members) {
      const GroupRecord* record = record_of(*group, m);
      if (record == nullptr || result.membership != record->spec.membership) continue;  // of other ranks
      if (result.rank >= record->spec.members.size()) continue;
      if (record->spec.members[result.rank] == m.endpoint) m.done = std::max(m.done, result.number);
    }
  }
}

void SessionGroups::step(Nanos now, std::vector<RankNews>& news) {
  for (const auto& group : groups_) {
    switch (group->phase) {
      case Phase::kForming:
        if (std::all_of(group->members.begin(), group->members.end(), [](const Member& m) { return m.here; })) {
          create(*group, now, news);
        }
        break;
      case Phase::kCreating:
        watch_creation(*group, news);
        break;
      case Phase::kReady:
        watch_ready(*group, now, news);
        break;
      case Phase::kEnded:
        break;
    }
  }
  std::erase_if(groups_, [](const auto& g) { return g->phase == Phase::kEnded; });
}

void SessionGroups::create(Group& group, Nanos now, std::vector<RankNews>& news) {
  std::vector<EndpointId> endpoints;
  for (const Member& m : group.members) endpoints.push_back(m.endpoint);
  GroupOptions options;
  options.owner = group.owner;
  options.chunk_most_bytes = lab_.chunk_most_bytes();
  try {
    Node& first = lab_.node(lab_.cluster().gpus[endpoints.front()].node);
    group.id = first.plane().create_group(group.name, endpoints, options, now);
    group.phase = Phase::kCreating;
  } catch (const InputError& e) {
    fail(group, Status::kInvalid, e.what(), news);
  }
}

void SessionGroups::watch_creation(Group& group, std::vector<RankNews>& news) {
  bool all = true;
  for (const Member& m : group.members) {
    const GroupRecord* record = record_of(group, m);
    if (record != nullptr && record->state == GroupState::kEnded) {
      return fail(group, record->end_status == Status::kOk ? Status::kCancelled : record->end_status, record->error,
                  news);
    }
    all = all && record != nullptr && record->state == GroupState::kReady;
  }
  if (!all) return;
  group.phase = Phase::kReady;
  for (Member& m : group.members) tell_ready(group, m, *record_of(group, m), news);
}

void SessionGroups::tell_ready(Group& group, Member& m, const GroupRecord& record, std::vector<RankNews>& news) {
  m.told = true;
  if (m.left) return;
  const auto& members = record.spec.members;
  const auto place = std::find(members.begin(), members.end(), m.endpoint);
  SessionCommand command{.kind = SessionCommand::Kind::kAddRank, .session = m.owner.session};
  const auto client_rank = static_cast<Rank>(&m - group.members.data());
  command.rank = {.number = m.number,
                  .client_rank = client_rank,
                  .group = group.id,
                  .rank = static_cast<Rank>(place - members.begin()),
                  .node = lab_.cluster().gpus[m.endpoint].node,
                  .membership = record.spec.membership,
                  .next_op = record.spec.first_op};
  m.entered = m.done = record.spec.first_op - 1;
  lab_.send(command);
  news.push_back({m.owner.client, m.number, client_rank, Status::kOk, record.spec.first_op, record.spec.uuid_hi,
                  record.spec.uuid_lo, ""});
}

// Who left, what the control planes say about it, who joined anew.
void SessionGroups::watch_ready(Group& group, Nanos now, std::vector<RankNews>& news) {
  bool anybody = false, over = false;
  OpNumber last = 0, least_done = ~OpNumber{0};
  for (Member& m : group.members) {
    if (m.left) {
      over = true;
      last = std::max(last, m.entered);
    }
    if (m.left || m.ended) continue;
    const GroupRecord* record = record_of(group, m);
    if (record == nullptr || record->state == GroupState::kEnded) {
      const bool known = record != nullptr && record->end_status != Status::kOk;
      const Status status = known ? record->end_status : Status::kCancelled;
      if (m.here && !m.told) {  // joined anew, in vain
        news.push_back({m.owner.client, m.number, static_cast<Rank>(&m - group.members.data()), status, 1, 0, 0,
                        record != nullptr ? record->error : "the group is gone"});
      }
      end_member(m, status);
      m.ended = true;
      continue;
    }
    anybody = true;
    if (record->spec.membership > group.membership) {
      group.membership = record->spec.membership;
      end_members(group, Status::kNodeLost);
    }
    if (!m.told && m.here && record->state == GroupState::kReady) tell_ready(group, m, *record, news);
    least_done = std::min(least_done, m.done);
  }
  if (!anybody || (over && least_done >= last)) end_everywhere(group, now);
}

// What its client joined before is no longer good: ops under that number end so.
void SessionGroups::end_member(Member& m, Status status) {
  SessionCommand command{.kind = SessionCommand::Kind::kEndGroup, .number = m.number, .session = m.owner.session};
  command.rank.end = status;
  lab_.send(command);
  m.told = m.here = false;
}

void SessionGroups::end_members(Group& group, Status status) {
  for (Member& m : group.members) {
    if (!m.left && !m.ended) end_member(m, status);
  }
}

void SessionGroups::end_everywhere(Group& group, Nanos now) {
  for (const Member& m : group.members) {
    const GroupRecord* record = record_of(group, m);
    if (record == nullptr || record->state == GroupState::kEnded) continue;
    lab_.node(lab_.cluster().gpus[m.endpoint].node).plane().end_group(group.id, now);
  }
  end_members(group, Status::kCancelled);
  group.phase = Phase::kEnded;
}

void SessionGroups::fail(Group& group, Status status, const std::string& why, std::vector<RankNews>& news) {
  for (std::size_t r = 0; r < group.members.size(); ++r) {
    const Member& m = group.members[r];
    if (!m.left) news.push_back({m.owner.client, m.number, static_cast<Rank>(r), status, 1, 0, 0, why});
  }
  group.phase = Phase::kEnded;
}

}  // namespace lk

// EventTally: the engine's events of one turn put into few lines of the journal: lanes that went down together are one
// line, a stream of corrupt chunks is one line a second.
// Owner: the control thread. Nothing fails.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "control/journal/journal.hpp"
#include "dataplane/api/cluster.hpp"
#include "dataplane/api/event.hpp"

namespace lk {

class EventTally {
 public:
  explicit EventTally(const ClusterSpec& cluster) : cluster_(cluster) {}

  void add(const Event& event);
  void write(Journal& journal, Nanos now);  // what was added since, if its time has come
  Nanos next_time() const noexcept;         // when something that waits is due
  std::uint64_t resent_chunks() const noexcept { return resent_chunks_; }
  Nanos longest_failover_ns() const noexcept { return longest_failover_ns_; }

 private:
  struct Key {
    EventKind kind;
    Cause cause;
    std::uint64_t detail;  // of kRungStep: from and to
    bool operator<(const Key& other) const noexcept {
      return std::tie(kind, cause, detail) < std::tie(other.kind, other.cause, other.detail);
    }
  };
  struct Sum {
    std::uint64_t count = 0;
    Event first;
  };

  std::string line(const Key& key, const Sum& sum) const;
  std::string lane_text(const Event& event) const;

  const ClusterSpec& cluster_;
  std::map<Key, Sum> sums_;
  std::map<EventKind, Nanos> quiet_until_;
  std::uint64_t resent_chunks_ = 0;
  Nanos longest_failover_ns_ = 0;
};

}  // namespace lk

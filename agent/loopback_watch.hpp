// LoopbackWatch: what a monitor would read of an emulated node's links: the rate that faults have left them, and
// whether their ports are up. It stands between the fault decorator and the emulated port, and is the control plane's
// LinkWatch. Threads: set_rate() is the reactor's; read() and fault() are the control thread's. Nothing fails.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "control/watch/link_watch.hpp"
#include "dataplane/api/cluster.hpp"
#include "dataplane/lane/fault.hpp"

namespace lk {

class LoopbackWatch final : public RateControl, public LinkWatch {
 public:
  LoopbackWatch(const ClusterSpec& cluster, RateControl& below);

  void set_rate(LinkId link, Direction direction, double fraction, Nanos now) noexcept override;
  LinkReading read(LinkId link) override;

  void advance(Nanos now) noexcept { now_ = now; }
  void fault(const FaultRow& row);

 private:
  bool port_is_down(LinkId link) const noexcept;

  const ClusterSpec& cluster_;
  RateControl& below_;
  std::unique_ptr<std::atomic<double>[]> fraction_;  // by link × 2 + direction
  Nanos now_ = 0;
  std::vector<FaultRow> cuts_;  // of links, with a port event
};

}  // namespace lk

// LinkHealth: the state of one link and the weight of each of its directions, from three kinds of word: port events
// (fast), readings of a monitor (slow), the operator. A worse word counts at once; a better one must hold:
//   signalled rate   falls at once, rises when every reading of recover_hold was better, to the worst of them
//   down → back      probation: probation_first of the weight, doubled every probation_step
//   back too often   flap_limit failures within flap_window: held down for flap_hold, doubled by each further one,
//                    halved by each flap_decay without a failure
// A fall restarts every pending rise. So a weight that fell never rises again within the shorter of recover_hold and
// probation_step, whatever a monitor reads.
// Owner: the control thread. Nothing fails. Weights are fractions of nominal, by Direction.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include "control/health/thresholds.hpp"
#include "control/watch/link_watch.hpp"
#include "dataplane/base/ids.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

enum class LinkState : std::uint8_t { kUp, kDegraded, kDown, kProbation, kDrained };

constexpr const char* name_of(LinkState s) noexcept {
  constexpr const char* kNames[] = {"up", "degraded", "down", "probation", "drained"};
  return kNames[static_cast<unsigned>(s)];
}

class LinkHealth {
 public:
  explicit LinkHealth(const Thresholds& thresholds)
      : thresholds_(&thresholds), flap_hold_ns_(thresholds.flap_hold_ns) {}

  // Each says whether the state or a weight is another one now.
  bool take_reading(const LinkReading& reading, Nanos now);
  bool port_down(Nanos now);
  bool port_up(Nanos now);
  bool set_drained(bool drained, Nanos now);
  bool set_off(bool off, Nanos now);
  bool advance(Nanos now);  // timers alone

  Nanos next_time() const noexcept;  // of advance(); kNever if nothing waits

  LinkState state() const noexcept { return state_; }
  bool drained() const noexcept { return drained_ || off_; }
  Nanos since() const noexcept { return since_; }
  double weight(Direction d) const noexcept { return weight_[static_cast<std::size_t>(d)]; }
  double ramp() const noexcept { return ramp_; }  // the part of the weight that probation takes
  unsigned failures() const noexcept { return failures_; }
  std::string reason() const;  // why it is in this state, in words

 private:
  enum class DownBy : std::uint8_t { kNothing, kPortEvent, kReading };

  struct Level {  // a signalled rate, settled
    double value = 1;
    Nanos better_since = kNever;
    double better_least = 1;
  };

  void fail(DownBy by, Nanos now);
  void come_back(Nanos now);
  void take_level(Level& level, double fraction, Nanos now) const;
  void take_errors(std::uint64_t errors, Nanos now);
  void decay(Nanos now);
  double ramp_at(Nanos now) const;
  LinkState judge() const;
  bool settle(Nanos now);
  void restart_rises(Nanos now);
  Nanos steps_taken() const noexcept;

  const Thresholds* thresholds_;
  LinkState state_ = LinkState::kUp;
  Nanos since_ = 0;
  std::array<double, 2> weight_ = {1, 1};
  double ramp_ = 1;

  bool drained_ = false, off_ = false;
  DownBy down_by_ = DownBy::kNothing;
  Nanos up_readings_since_ = kNever;
  Nanos back_at_ = kNever;  // probation began; kNever: none
  std::array<Level, 2> level_;
  bool errors_known_ = false, errors_high_ = false;
  std::uint64_t errors_ = 0;
  double error_rate_per_s_ = 0;
  Nanos errors_at_ = 0, errors_low_since_ = kNever;

  std::deque<Nanos> recent_failures_;
  unsigned failures_ = 0;
  Nanos held_until_ = 0;
  Nanos held_for_ns_ = 0;  // the hold in force
  Nanos flap_hold_ns_;     // the next one
  Nanos decay_at_ = kNever;
};

}  // namespace lk

// Poller: a thing that a reactor polls. Owner: its reactor's core. poll() does a bounded amount of work and returns how
// much (0: none); next_time() is when it will have work by the passing of time alone (kNever: only by a message).
#pragma once

#include "dataplane/base/units.hpp"

namespace lk {

class Poller {
 public:
  virtual ~Poller() = default;
  virtual const char* name() const noexcept = 0;
  virtual unsigned poll(Nanos now) noexcept = 0;
  virtual Nanos next_time(Nanos now) const noexcept = 0;
};

}  // namespace lk

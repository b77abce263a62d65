// LoopbackRates: lets faults change the rates of a loopback port's links. Owner: the port's reactor.
#pragma once

#include "dataplane/lane/fault.hpp"
#include "dataplane/lane/loopback/port.hpp"

namespace lk {

class LoopbackRates final : public RateControl {
 public:
  explicit LoopbackRates(LoopbackPort& port) noexcept : port_(port) {}
  void set_rate(LinkId link, Direction direction, double fraction, Nanos now) noexcept override {
    port_.set_rate(link, direction, fraction, now);
  }

 private:
  LoopbackPort& port_;
};

}  // namespace lk

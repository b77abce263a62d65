#include "control/topology/model.hpp"

#include <fmt/format.h>

namespace lk {

const char* name_of(Severity s) noexcept {
  constexpr const char* kNames[] = {"info", "warn", "fault"};
  return kNames[static_cast<unsigned>(s)];
}

const char* name_of(Verdict v) noexcept {
  constexpr const char* kNames[] = {"ok", "unknown", "incomplete", "suspect", "degraded", "down", "unrecognised"};
  return kNames[static_cast<unsigned>(v)];
}

const char* name_of(Fabric f) noexcept {
  constexpr const char* kNames[] = {"unknown",      "nvswitch", "hybrid-cube-mesh", "direct-mesh", "bridge-pair",
                                    "bridge-pairs", "none"};
  return kNames[static_cast<unsigned>(f)];
}

const char* name_of(LinkTarget t) noexcept {
  constexpr const char* kNames[] = {"unknown", "gpu", "switch", "hidden-switch", "self"};
  return kNames[static_cast<unsigned>(t)];
}

std::string text_of(Cell c) {
  constexpr const char* kNames[] = {"?", "X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"};
  const char* name = kNames[static_cast<unsigned>(c.relation)];
  return c.relation == Relation::kNvlink ? fmt::format("{}{}", name, c.links) : name;
}

}  // namespace lk

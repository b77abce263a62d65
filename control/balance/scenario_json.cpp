#include "control/balance/scenario_json.hpp"

#include "control/balance/eligibility.hpp"

namespace lk {
namespace {

nlohmann::json hops_json(const std::vector<Hop>& hops) {
  nlohmann::json list = nlohmann::json::array();
  for (const Hop& hop : hops) list.push_back({hop.link, index_of(hop.direction)});
  return list;
}

nlohmann::json lane_json(const ClusterSpec& cluster, const LaneSpec& lane) {
  nlohmann::json row = {{"name", lane.name},
                        {"kind", name_of(lane.kind)},
                        {"a", lane.a},
                        {"b", lane.b},
                        {"trunk", lane.trunk},
                        {"addressable", lane.addressable},
                        {"rung", lane.rung},
                        {"near", hops_json(lane.near_hops)},
                        {"far", hops_json(lane.far_hops)}};
  if (const auto limit = own_limit(cluster, lane)) row["limit_GBps"] = *limit;
  return row;
}

}  // namespace

nlohmann::json bound_input(const ClusterSpec& cluster, const LinkCapacities& capacity,
                           std::span<const EndpointId> members) {
  nlohmann::json dump = {{"links", nlohmann::json::array()},
                         {"lanes", nlohmann::json::array()},
                         {"gpus", nlohmann::json::array()},
                         {"members", nlohmann::json::array()}};
  for (std::size_t id = 0; id < cluster.links.size(); ++id) {
    const LinkSpec& link = cluster.links[id];
    dump["links"].push_back({{"name", link.name},
                             {"nominal_GBps", link.nominal_GBps},
                             {"fwd_GBps", capacity[id][0]},
                             {"bwd_GBps", capacity[id][1]}});
  }
  for (const LaneSpec& lane : cluster.lanes) dump["lanes"].push_back(lane_json(cluster, lane));
  for (const GpuSpec& gpu : cluster.gpus) dump["gpus"].push_back({{"domain", gpu.domain}});
  for (const EndpointId member : members) dump["members"].push_back(member);
  return dump;
}

}  // namespace lk

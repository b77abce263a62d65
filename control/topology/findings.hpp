// What an expert sees in a node's topology: its NVLink fabric, faults of links, odd placement; and the verdict from all
// of it. Adds to NodeTopology::anomalies and sets fabric and verdict. Pure, never fails.
#pragma once

#include "control/topology/model.hpp"

namespace lk {

// Names by which a reader may look for a GPU: GPU3; in an XML its bus id and number too.
std::vector<std::string> places_of(const NodeTopology& topology, std::size_t gpu);
// Fabric and NVLink faults from the GPU pairs' link counts (find_anomalies calls it).
void find_fabric(NodeTopology& topology);
// Everything for a matrix.
void find_anomalies(NodeTopology& topology);
// Everything for an NCCL XML.
void find_xml_anomalies(NodeTopology& topology);
// The worst thing that is shown wins. `suspect`: a finding without proof that is worth a look.
void settle_verdict(NodeTopology& topology, bool suspect);

}  // namespace lk

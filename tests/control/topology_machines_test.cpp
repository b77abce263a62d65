// The table of rates and boards: what it must hold, and that every wrong row is one line with file, line and key.
// Expected rates are the public figures of the standards and boards.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <sstream>

#include "control/topology/machines.hpp"
#include "dataplane/base/error.hpp"

namespace {

const std::string kFile = LK_SOURCE_DIR "/configs/machines.toml";

std::string table_text() {
  std::ifstream in(kFile);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// What the table answers once `from` is `to`; "" when it takes it.
std::string message(const std::string& from, const std::string& to) {
  std::string text = table_text();
  const std::size_t at = text.find(from);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, from);
  text.replace(at, from.size(), to);
  try {
    lk::Machines::parse(text, "m.toml");
  } catch (const lk::InputError& error) {
    return error.what();
  }
  return "";
}

std::string line_of(const std::string& words) {
  const std::string text = table_text();
  const auto at = static_cast<std::ptrdiff_t>(text.find(words));
  return std::to_string(1 + std::count(text.begin(), text.begin() + at, '\n'));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(topology_machines)

BOOST_AUTO_TEST_CASE(rates_are_the_public_ones) {
  const lk::Machines m = lk::Machines::load(kFile);
  struct Nvlink {
    const char* name;
    double nominal, signalled;
  };
  for (const Nvlink& want : {Nvlink{"nvlink1", 20, 20},
                             {"nvlink2", 25, 25.781},
                             {"nvlink3", 25, 25},
                             {"nvlink4", 25, 26.562},
                             {"nvlink5", 50, 53.125}}) {
    BOOST_TEST(m.nvlink(want.name).nominal_GBps == want.nominal);
    BOOST_TEST(m.nvlink(want.name).signalled_GBps == want.signalled);
  }
  struct Port {
    const char* name;
    double gbps;
  };
  for (const Port& want : {Port{"edr", 100},
                           {"hdr", 200},
                           {"HDR200", 200},
                           {"ndr", 400},
                           {"xdr", 800},
                           {"hdr100", 100},
                           {"10gbe", 10},
                           {"25gbe", 25},
                           {"40gbe", 40},
                           {"50gbe", 50},
                           {"100gbe", 100},
                           {"200gbe", 200},
                           {"400gbe", 400}}) {
    BOOST_TEST(m.port(want.name).nominal_gbps == want.gbps);
  }
  BOOST_TEST(m.port("fdr").nominal_gbps == 56.25 * 64 / 66, boost::test_tools::tolerance(1e-4));
  struct Pcie {
    const char* name;
    double gtps;
  };
  for (const Pcie& want : {Pcie{"3.0", 8}, {"4.0", 16}, {"5.0", 32}, {"6.0", 64}}) {
    BOOST_TEST(m.pcie(want.name).rate_GTps == want.gtps);
    // A payload rate: below the data rate of the slot, not below 80 % of it.
    const double data = want.gtps * m.pcie(want.name).encoding * 16 / 8;
    BOOST_TEST(m.pcie(want.name).slot_GBps(16) < data);
    BOOST_TEST(m.pcie(want.name).slot_GBps(16) > 0.8 * data);
  }
}

BOOST_AUTO_TEST_CASE(boards_have_their_links) {
  const lk::Machines m = lk::Machines::load(kFile);
  struct Board {
    const char* name;
    unsigned links;
    const char* nvlink;
    unsigned planes;
  };
  for (const Board& want : {Board{"v100", 6, "nvlink2", 0},
                            {"v100-sxm3", 6, "nvlink2", 6},
                            {"A100", 12, "nvlink3", 6},
                            {"a100-pcie", 12, "nvlink3", 0},
                            {"h100", 18, "nvlink4", 4},
                            {"h100-pcie", 12, "nvlink4", 0},
                            {"h200", 18, "nvlink4", 4},
                            {"b200", 18, "nvlink5", 2},
                            {"gb200", 18, "nvlink5", 18},
                            {"rtx3090", 4, "nvlink3-geforce", 0},
                            {"a10g", 0, "", 0},
                            {"rtx4090", 0, "", 0}}) {
    const lk::GpuRow& row = m.gpu(want.name);
    BOOST_TEST(row.nvlinks == want.links);
    BOOST_TEST(row.nvlink == want.nvlink);
    BOOST_TEST(row.switch_planes == want.planes);
  }
  BOOST_TEST(m.gpu("h100-pcie").nvlinks_on_chip == 18U);
  BOOST_TEST(m.gpu_of_pci_device("0x2330")->name == "h100-sxm");
  BOOST_TEST(m.gpu_of_pci_device("0xffff") == nullptr);
}

BOOST_AUTO_TEST_CASE(every_row_names_its_source) {
  const lk::Machines m = lk::Machines::load(kFile);
  for (const auto& row : m.gpus()) BOOST_TEST(row.source.size() > 10U, row.name);
  for (const auto& row : m.ports()) BOOST_TEST(row.source.size() > 10U, row.name);
  for (const auto& row : m.nvlinks()) BOOST_TEST(row.source.size() > 10U, row.name);
  for (const auto& row : m.pcies()) BOOST_TEST(row.source.size() > 10U, row.name);
  BOOST_TEST(message("source = \"NVIDIA TITAN X (Pascal) product page\"\n", "").find("gpu.source: missing") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(wrong_rows_are_one_line_with_place_and_what_was_expected) {
  BOOST_TEST(message("nominal_GBps = 20.0", "nominal_gbps = 20.0") ==
             "m.toml:" + line_of("nominal_GBps = 20.0") +
                 ": nvlink.nominal_gbps: unknown key or unit; expected nominal_GBps");
  BOOST_TEST(message("nominal_GBps = 20.0", "nominal_GBps = -1") ==
             "m.toml:" + line_of("nominal_GBps = 20.0") +
                 ": nvlink.nominal_GBps: expected a number above 0 and at most 1000");
  BOOST_TEST(message("nominal_GBps = 20.0", "nominal_GBps = \"20 GB/s\"").find("expected a number") !=
             std::string::npos);
  BOOST_TEST(message("nominal_GBps = 20.0", "nominal_GBps = nan").find("expected a number") != std::string::npos);
  BOOST_TEST(message("payload = 0.94", "payload = 1.5").find("at most 1") != std::string::npos);
  BOOST_TEST(message("pcie_width = 16", "pcie_width = 16\ncolour = \"green\"")
                 .find("gpu.colour: unknown key; expected one of name") != std::string::npos);
  BOOST_TEST(message("pcie_width = 16", "pcie_width = 16.5").find("expected a whole number from 1 to 32") !=
             std::string::npos);
  BOOST_TEST(message("fabric = \"infiniband\"", "fabric = \"myrinet\"")
                 .find("expected one of infiniband, ethernet, got \"myrinet\"") != std::string::npos);
  BOOST_TEST(message("usual_nic = \"fdr\"", "usual_nic = \"qdr\"").find("unknown NIC port \"qdr\"") !=
             std::string::npos);
  BOOST_TEST(message("name = \"edr\"", "name = \"fdr\"").find("\"fdr\" has a row already") != std::string::npos);
  BOOST_TEST(message("[[nvlink]]", "[[nvlinks]]").find("nvlinks: unknown table") != std::string::npos);
  BOOST_TEST(message("[[nvlink]]", "[[nvlink").find("m.toml:") == 0U);
  BOOST_TEST(message("kind = \"tcp\"", "kind = \"smoke\"").find("lane.kind: expected one of") != std::string::npos);
  BOOST_CHECK_THROW(lk::Machines::load("/nowhere/machines.toml"), lk::InputError);
}

BOOST_AUTO_TEST_SUITE_END()

#include "agent/lab_table.hpp"

#include <boost/test/unit_test.hpp>
#include <sstream>

namespace lk {
namespace {

LabRow row() {
  LabRow r{.name = "two ports on one NIC, one comes back at half its rate",
           .profile = "gb200-nvl72",
           .fault = "second port of mlx5_0 of node 0: down for 500 ms, then half as fast",
           .nodes = 12};
  r.rung = "neighbour's rail 69 %, own rail 31 %";
  r.bound_fraction = 0.98765;
  r.failover_p99_ns = 6'123'456;
  r.simulated = true;
  r.ops = 3;
  r.payload_bytes = 1000;
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lab_table_test)

BOOST_AUTO_TEST_CASE(fits_120_columns_and_loses_no_word) {
  const std::string table = lab_table({row()});
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) BOOST_TEST(line.size() <= kLabTableWidth);
  for (const char* word : {"right", "comes", "gb200-nvl72", "500", "neighbour's", "31", "98.8 %", "6.1ms"})
    BOOST_TEST(table.find(word) != std::string::npos, word);
}

BOOST_AUTO_TEST_CASE(says_what_is_wrong) {
  LabRow r = row();
  r.why = "4 ops did not end";
  BOOST_TEST(lab_table({row(), r}).find("WRONG: " + r.name + " (gb200-nvl72): 4 ops did not end\n") !=
             std::string::npos);
  BOOST_TEST(!all_right({row(), r}));
  BOOST_TEST(all_right({row()}));
}

BOOST_AUTO_TEST_CASE(json_has_sums_and_nulls) {
  LabRow plain{.name = "a", .profile = "b", .fault = "c", .nodes = 2};
  plain.ops = 4;
  plain.wrong_bits = 7;
  plain.lost_ops = 1;
  plain.hung_ops = 2;
  const auto j = lab_json({row(), plain}, 2, 8);
  BOOST_TEST(
      j.dump() ==
      "{\"ok\":true,\"nodes\":2,\"gpus_per_node\":8,\"ops\":7,\"payload_bytes\":1000,\"wrong_bits\":7,"
      "\"lost_ops\":1,\"hung_ops\":2,\"scenarios\":[{\"name\":\"two ports on one NIC, one comes back at half its "
      "rate\",\"profile\":\"gb200-nvl72\",\"fault\":\"second port of mlx5_0 of node 0: down for 500 ms, then half "
      "as fast\",\"rung\":\"neighbour's rail 69 %, own rail 31 %\",\"bound_fraction\":0.98765,"
      "\"failover_p99_ns\":6123456,\"clock\":\"virtual\",\"wrong_bits\":0,\"ok\":true},{\"name\":\"a\","
      "\"profile\":\"b\",\"fault\":\"c\",\"rung\":null,\"bound_fraction\":null,\"failover_p99_ns\":null,"
      "\"clock\":\"real\",\"wrong_bits\":7,\"ok\":true}]}");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

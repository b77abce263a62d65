#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "control/journal/journal.hpp"

BOOST_AUTO_TEST_SUITE(journal)

BOOST_AUTO_TEST_CASE(a_line_names_time_node_and_level) {
  lk::Journal journal("n0");
  journal.add(12'345'678'901, lk::JournalLevel::kWarning, "n0.mlx5_0.port1 down (port event)");
  BOOST_TEST(journal.lines().front() == "12.345 s n0 warning: n0.mlx5_0.port1 down (port event)");
  const nlohmann::json row = journal.to_json()[0];
  BOOST_TEST(row["at_ns"] == 12'345'678'901);
  BOOST_TEST(row["number"] == 1);
  BOOST_TEST(row["level"] == "warning");
}

BOOST_AUTO_TEST_CASE(the_oldest_makes_room) {
  lk::Journal journal("n0", 3);
  for (int i = 1; i <= 5; ++i) journal.add(i, lk::JournalLevel::kInfo, std::to_string(i));
  BOOST_TEST(journal.entries().size() == 3U);
  BOOST_TEST(journal.entries().front().text == "3");
  BOOST_TEST(journal.last_number() == 5U);
  BOOST_TEST(journal.lines(4).size() == 1U);
  BOOST_TEST(journal.to_json(5).empty());
}

BOOST_AUTO_TEST_SUITE_END()

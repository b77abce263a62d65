#include "agent/command_table.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>
#include <string>

#include "agent/cli/lanectl.hpp"
#include "agent/commands.hpp"

using namespace lk;

BOOST_AUTO_TEST_SUITE(command_table_test)

BOOST_AUTO_TEST_CASE(each_row_of_the_agents_has_a_handler_and_each_handler_a_row) {
  std::set<std::string_view> handlers;
  for (const std::string_view name : Commands::names()) BOOST_TEST(handlers.insert(name).second, name);
  std::set<std::string_view> rows;
  for (const CommandRow& row : command_table()) BOOST_TEST(rows.insert(row.name).second, row.name);
  for (const CommandRow& row : command_table()) {
    if (row.agents) BOOST_TEST(handlers.count(row.name) == 1U, row.name << " has no handler");
  }
  for (const std::string_view name : handlers) BOOST_TEST(rows.count(name) == 1U, name << " is not in the table");
}

BOOST_AUTO_TEST_CASE(each_row_explains_itself) {
  for (const CommandRow& row : command_table()) {
    BOOST_TEST(!row.help.empty(), row.name);
    BOOST_TEST(row.example.starts_with("lanectl " + std::string(row.name)), row.example);
    for (const CommandArgument& a : row.arguments) BOOST_TEST(!a.help.empty(), row.name << " " << a.name);
  }
}

// The examples themselves are parsed: without an agent they fail for want of one (1), never as wrong use (2).
BOOST_AUTO_TEST_CASE(each_example_is_good_use) {
  for (const CommandRow& row : command_table()) {
    if (!row.agents) continue;
    std::vector<std::string> words = {"--socket", "/nowhere/lk.sock"};
    std::string word;
    for (const char c : std::string(row.example.substr(8)) + " ") {
      if (c != ' ') {
        word += c;
      } else {
        words.push_back(std::exchange(word, ""));
      }
    }
    const LanectlResult r = lanectl(words);
    BOOST_TEST(r.code == 1, row.example << ": " << r.error);
    BOOST_TEST(r.error == "lanectl: /nowhere/lk.sock: no agent answers: No such file or directory\n");
  }
}

BOOST_AUTO_TEST_SUITE_END()

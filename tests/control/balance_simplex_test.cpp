// Optima from textbooks, and the programs on which careless pivoting fails.
#include <boost/test/unit_test.hpp>

#include "control/balance/simplex.hpp"

namespace lk {
namespace {

constexpr std::uint64_t kPlenty = 1'000'000;

}  // namespace

BOOST_AUTO_TEST_SUITE(balance_simplex)

// Dantzig's example (as in Hillier and Lieberman, the Wyndor Glass Co.): 3x + 5y, optimum 36 at (2, 6).
BOOST_AUTO_TEST_CASE(finds_a_textbook_optimum_and_its_prices) {
  Simplex lp(kPlenty);
  const auto x = lp.add_variable(3, 0, {});
  const auto y = lp.add_variable(5, 0, {});
  const auto first = lp.add_row({{x, 1}}, 4);
  const auto second = lp.add_row({{y, 2}}, 12);
  const auto third = lp.add_row({{x, 3}, {y, 2}}, 18);
  BOOST_TEST((lp.solve() == Simplex::Outcome::kOptimal));
  BOOST_TEST(lp.objective() == 36.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lp.value(x) == 2.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lp.value(y) == 6.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lp.price(first) == 0.0);
  BOOST_TEST(lp.price(second) == 1.5, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lp.price(third) == 1.0, boost::test_tools::tolerance(1e-12));
}

// Beale's example, on which the rule of the largest gain cycles for ever; optimum 1/20.
BOOST_AUTO_TEST_CASE(does_not_cycle) {
  Simplex lp(kPlenty);
  const auto a = lp.add_variable(0.75, 0, {});
  const auto b = lp.add_variable(-150, 0, {});
  const auto c = lp.add_variable(0.02, 0, {});
  const auto d = lp.add_variable(-6, 0, {});
  lp.add_row({{a, 0.25}, {b, -60}, {c, -0.04}, {d, 9}}, 0);
  lp.add_row({{a, 0.5}, {b, -90}, {c, -0.02}, {d, 3}}, 0);
  lp.add_row({{c, 1}}, 1);
  BOOST_TEST((lp.solve() == Simplex::Outcome::kOptimal));
  BOOST_TEST(lp.objective() == 0.05, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(says_that_a_program_has_no_bound) {
  Simplex lp(kPlenty);
  const auto x = lp.add_variable(1, 0, {});
  const auto y = lp.add_variable(0, 0, {});
  lp.add_row({{x, 1}, {y, -1}}, 1);
  BOOST_TEST((lp.solve() == Simplex::Outcome::kUnbounded));
}

BOOST_AUTO_TEST_CASE(stops_at_a_feasible_point_when_its_work_is_spent) {
  Simplex lp(1);
  const auto x = lp.add_variable(3, 0, {});
  const auto y = lp.add_variable(5, 0, {});
  lp.add_row({{x, 1}, {y, 1}}, 4);
  lp.add_row({{x, 1}, {y, 3}}, 6);
  BOOST_TEST((lp.solve() == Simplex::Outcome::kLimit));
  BOOST_TEST(lp.value(x) + lp.value(y) <= 4.0);
  BOOST_TEST(lp.value(x) + 3 * lp.value(y) <= 6.0);
}

// The same program as the first, its second half added after the first was solved.
BOOST_AUTO_TEST_CASE(goes_on_after_rows_and_columns_are_added) {
  Simplex lp(kPlenty);
  const auto x = lp.add_variable(3, 0, {});
  lp.add_row({{x, 1}}, 4);
  const auto shared = lp.add_row({{x, 3}}, 18);
  BOOST_TEST((lp.solve() == Simplex::Outcome::kOptimal));
  BOOST_TEST(lp.objective() == 12.0, boost::test_tools::tolerance(1e-12));
  const auto y = lp.add_variable(5, 0, {{shared, 2}});
  lp.add_row({{y, 2}}, 12);
  BOOST_TEST((lp.solve() == Simplex::Outcome::kOptimal));
  BOOST_TEST(lp.objective() == 36.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lp.value(x) == 2.0, boost::test_tools::tolerance(1e-12));
}

// Every (x, y) with x + y = 10 is an optimum: of these the second objective takes x = 7, then the soft bound x = 5.
BOOST_AUTO_TEST_CASE(chooses_among_optima_by_the_second_objective) {
  for (const bool even : {false, true}) {
    Simplex lp(kPlenty);
    const auto x = lp.add_variable(1, even ? 0 : 1, {});
    const auto y = lp.add_variable(1, 0, {});
    lp.add_row({{x, 1}, {y, 1}}, 10);
    lp.add_row({{x, 1}}, 7);
    BOOST_TEST((lp.solve() == Simplex::Outcome::kOptimal));
    if (even) {
      lp.add_soft_bound(x, 5, -1);
      lp.add_soft_bound(y, 5, -1);
    }
    BOOST_TEST((lp.solve_second() == Simplex::Outcome::kOptimal));
    BOOST_TEST(lp.objective() == 10.0, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(lp.value(x) == (even ? 5.0 : 7.0), boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lk

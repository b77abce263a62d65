import unittest

from small_tree import SmallTree


def function(name, lines):
    """A function that takes that many lines, from its head to its closing brace."""
    return f"int {name}(int x) {{\n" + "  x += 1;\n" * (lines - 2) + "}\n"


class CheckBudgets(SmallTree):
    def test_long_files_fail(self):
        self.write("control/long.cpp", "// a line\n" * 401)
        self.write("control/long.hpp", "// a line\n" * 201)
        self.write("control/fits.cpp", "// a line\n" * 400)
        self.write("scripts/long", "#!/usr/bin/env bash\n" + ": line\n" * 400)
        text = self.fails("check-budgets", "control/long.cpp: the file has 401 lines, limit 400",
                          "control/long.hpp: the file has 201 lines, limit 200", "scripts/long: the file has 401")
        self.assertNotIn("fits", text)

    def test_a_long_function_fails_wherever_it_stands(self):
        self.write("control/long.cpp",
                   "namespace lk {\nclass alignas(64) A {\n public:\n" + function("inner", 81) + "};\n"
                   "struct B : A {\n  B() : a_{1}, b_(2) {\n" + "    go();\n" * 80 + "  }\n};\n"
                   "template <typename T = int>\n" + function("outer", 79) + "}  // namespace lk\n")
        text = self.fails("check-budgets", "control/long.cpp:inner: the function has 81 lines",
                          "control/long.cpp:B: the function has 82 lines", "3 over budget")
        self.assertIn("3 functions", text)
        self.assertNotIn("outer", text)

    def test_literals_and_comments_hold_no_braces(self):
        self.write("control/text.cpp", 'int f() {\n  g("{{{", \'{\', R"({)", 1\'000);  // {\n  return 1; /* { */\n}\n'
                   + function("h", 3))
        self.assertIn("2 functions: median 3.5 lines", self.passes("check-budgets"))

    def test_many_middling_functions_fail_together(self):
        self.write("control/middling.cpp", "".join(function(f"f{i}", 13) for i in range(20)))
        self.fails("check-budgets", "median 13 lines", "the functions as a whole are too long")
        self.write("control/middling.cpp", "".join(function(f"f{i}", 3) for i in range(8)))
        self.write("control/tail.cpp", function("g", 41) + function("h", 41))
        self.fails("check-budgets", "p90 41", "the functions as a whole are too long")

    def test_tests_count_only_against_the_caps(self):
        self.write("tests/control/middling_test.cpp", "".join(function(f"f{i}", 13) for i in range(20)))
        self.passes("check-budgets")
        self.write("tests/control/long_test.cpp", function("f", 81))
        self.fails("check-budgets", "tests/control/long_test.cpp:f")

    def test_exceptions_need_a_reason_and_a_use(self):
        self.write("control/long.cpp", "// a line\n" * 401)
        self.write("scripts/budget-exceptions.txt", "# of old\ncontrol/long.cpp 410 one table, no logic\n")
        self.passes("check-budgets")
        self.write("control/long.cpp", "// a line\n" * 411)
        self.fails("check-budgets", "has 411 lines, limit 410")
        self.write("control/long.cpp", "// a line\n")
        self.fails("check-budgets", "control/long.cpp: the exception is not needed any more")
        self.write("scripts/budget-exceptions.txt", "control/long.cpp 410\n")
        self.fails("check-budgets", "expected PATH[:FUNCTION] LIMIT REASON")


if __name__ == "__main__":
    unittest.main()

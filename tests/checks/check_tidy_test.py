import json
import shutil
import sys
import unittest

from small_tree import SmallTree

RULES = "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\nHeaderFilterRegex: '.*'\n"


class CheckTidy(SmallTree):
    def setUp(self):
        super().setUp()
        self.root = self.root.resolve()
        self.write(".clang-tidy", RULES)
        self.write("control/good.cpp", "int* f() { return nullptr; }\n")
        self.write("control/bad.cpp", "int* f() { return 0; }\n")
        self.write("control/old.hpp", "#pragma once\ninline int* g() { return 0; }\n")
        self.write("control/uses_old.cpp", '#include "control/old.hpp"\n')
        self.write("build/rte_config.h", "#pragma once\n")
        pch = f"-Winvalid-pch -include {self.root}/build/cmake_pch.hxx"
        self.write("build/compile_commands.json", json.dumps(
            [{"directory": str(self.root / "build"), "file": str(self.root / name),
              "command": f"g++ -I{self.root} -isystem{self.root}/build {pch} -o x.o -c {self.root / name}"}
             for name in ("control/good.cpp", "control/bad.cpp", "control/uses_old.cpp")]))

    def test_a_bad_source_fails(self):
        text = self.fails("check-tidy", "control/bad.cpp: FAILED", "use nullptr", arguments=["control/bad.cpp"])
        self.assertNotIn("good", text)

    def test_a_header_is_read_through_a_source_that_includes_it(self):
        self.fails("check-tidy", "control/uses_old.cpp: FAILED", "control/old.hpp:2", arguments=["control/old.hpp"])

    def test_all_and_what_passed_before(self):
        self.fails("check-tidy", "3 sources", "1 passed", "2 FAILED", arguments=["--all"])
        self.fails("check-tidy", "1 passed before", "2 FAILED", arguments=["--all"])
        self.write(".clang-tidy", RULES + "# changed\n")
        self.fails("check-tidy", "1 passed, 2 FAILED".split(",")[0], arguments=["--all"])

    def test_out_of_time_is_said(self):
        text = self.passes("check-tidy", "--all", "--seconds", "-1")
        self.assertIn("3 not reached", text)


if __name__ == "__main__":
    if not (shutil.which("clang-tidy-14") or shutil.which("clang-tidy")):
        sys.exit(77)
    unittest.main()

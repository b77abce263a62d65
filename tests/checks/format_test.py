import shutil
import sys
import unittest

from small_tree import SCRIPTS, SmallTree


class Format(SmallTree):
    def setUp(self):
        super().setUp()
        shutil.copy(SCRIPTS.parent / ".clang-format", self.root)

    def test_check_fails_and_writes_nothing_then_format_mends_it(self):
        self.write("control/a.cpp", "int  f( ){return 1;}\n")
        self.fails("format", "control/a.cpp", "would change", arguments=["--check"])
        self.assertEqual((self.root / "control/a.cpp").read_text(), "int  f( ){return 1;}\n")
        self.passes("format")
        self.assertEqual((self.root / "control/a.cpp").read_text(), "int f() { return 1; }\n")
        self.passes("format", "--check")

    def test_named_files_only(self):
        self.write("control/a.cpp", "int  a;\n")
        self.write("control/b.cpp", "int  b;\n")
        self.passes("format", str(self.root / "control/a.cpp"))
        self.assertEqual((self.root / "control/a.cpp").read_text(), "int a;\n")
        self.assertEqual((self.root / "control/b.cpp").read_text(), "int  b;\n")


if __name__ == "__main__":
    if not (shutil.which("clang-format-14") or shutil.which("clang-format")):
        sys.exit(77)
    unittest.main()

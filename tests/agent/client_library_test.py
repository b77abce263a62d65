"""What a training process loads: liblanekeeper.so needs no DPDK and exports the lk_ calls alone."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

LIBRARY = pathlib.Path(os.environ["LK_BINARY_DIR"]) / "lib" / "liblanekeeper.so"
HEADER = pathlib.Path(os.environ["LK_SOURCE_DIR"]) / "agent" / "client" / "lanekeeper.h"


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


class ClientLibrary(unittest.TestCase):
    def test_needs_no_dpdk(self):
        needed = [line for line in lines_of("readelf", "-d", LIBRARY) if "(NEEDED)" in line]
        self.assertTrue(needed, "readelf names no needed library at all")
        self.assertEqual([line for line in needed if re.search(r"librte|libnuma|libbsd|libfmt|libspdlog", line)], [])

    def test_exports_what_the_header_declares(self):
        # Weak symbols are templates of the C++ library, which every program merges.
        exported = {line.split()[-1] for line in lines_of("nm", "-D", "--defined-only", LIBRARY)
                    if line.split()[-2] in "TDBR" and not line.split()[-1].startswith(("__asan", "__odr_asan"))}
        declared = set(re.findall(r"^LK_API[^;(]*?\b(lk_\w+)\(", HEADER.read_text(), re.MULTILINE))
        self.assertTrue(declared)
        self.assertEqual(exported, declared)


if __name__ == "__main__":
    if not LIBRARY.is_file():
        sys.exit(f"{LIBRARY} is not built")
    unittest.main()

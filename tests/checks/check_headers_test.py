import unittest

from small_tree import SmallTree


class CheckHeaders(SmallTree):
    def test_a_header_that_needs_another_first_fails(self):
        self.write("control/good.hpp", "#pragma once\n#include <vector>\nstd::vector<int> f();\n")
        self.write("control/bad.hpp", "#pragma once\nstd::vector<int> f();\n")
        text = self.fails("check-headers", "control/bad.hpp: does not compile alone")
        self.assertNotIn("control/good.hpp:", text)

    def test_the_client_has_no_dpdk_and_is_c(self):
        self.write("agent/client/lanekeeper.h", "#include <stdint.h>\nuint32_t lk_version(void);\n")
        self.passes("check-headers")
        self.write("agent/client/lanekeeper.h", "#include <cstdint>\n")
        self.fails("check-headers", "agent/client/lanekeeper.h: does not compile alone")
        self.write("agent/client/lanekeeper.h", "#include <rte_ring.h>\n")
        self.fails("check-headers", "agent/client/lanekeeper.h: does not compile alone")

    def test_only_what_changed_is_compiled_again(self):
        (self.root / "build").mkdir()
        self.write("control/inner.hpp", "#pragma once\nstruct Inner {};\n")
        self.write("control/outer.hpp", '#pragma once\n#include "control/inner.hpp"\nInner f();\n')
        self.write("control/other.hpp", "#pragma once\n")
        self.assertIn("3 headers, 3 compiled", self.passes("check-headers"))
        self.assertIn("3 headers, 0 compiled", self.passes("check-headers"))
        self.write("control/inner.hpp", "#pragma once\nstruct Renamed {};\n")
        self.fails("check-headers", "control/outer.hpp: does not compile alone", "3 headers, 2 compiled")

    def test_a_missing_vendor_header_is_a_visible_skip(self):
        self.write("dataplane/device/cuda/copy.hpp", "#pragma once\n#include <cuda_of_no_machine.h>\n")
        self.assertIn("skipped, this machine has no cuda_of_no_machine.h", self.passes("check-headers"))


if __name__ == "__main__":
    unittest.main()

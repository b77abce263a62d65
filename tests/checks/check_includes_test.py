import unittest

from small_tree import SmallTree


class CheckIncludes(SmallTree):
    def setUp(self):
        super().setUp()
        for name in ("dataplane/base/units.hpp", "dataplane/api/event.hpp", "dataplane/lane/lane.hpp",
                     "control/health/state.hpp", "agent/node.hpp", "agent/client/lanekeeper.h", "agent/cli/show.hpp"):
            self.write(name, "#pragma once\n")

    def includes(self, name, header):
        line = header if header[0] in '<"' else f'"{header}"'
        self.write(name, f"// first line\n#include {line}\n")

    def test_downward_passes(self):
        self.includes("agent/node.cpp", "dataplane/lane/lane.hpp")
        self.includes("control/journal.cpp", "control/health/state.hpp")
        self.includes("control/health/state.cpp", "dataplane/api/event.hpp")
        self.includes("dataplane/lane/lane.cpp", "dataplane/base/units.hpp")
        self.includes("tests/agent/show_test.cpp", "agent/cli/show.hpp")
        self.assertIn("5 includes, 0 against", self.passes("check-includes"))

    def test_upward_and_sideways_fail(self):
        for name, header in (("dataplane/base/x.hpp", "dataplane/api/event.hpp"),
                             ("dataplane/lane/x.hpp", "control/health/state.hpp"),
                             ("control/health/x.hpp", "dataplane/lane/lane.hpp"),
                             ("control/balance/x.cpp", "agent/node.hpp"),
                             ("agent/x.cpp", "agent/cli/show.hpp"),
                             ("agent/client/x.cpp", "agent/node.hpp")):
            with self.subTest(name=name):
                self.includes(name, header)
                self.fails("check-includes", f'{name}:2: "{header}"')
                (self.root / name).unlink()

    def test_only_from_the_root_of_the_tree(self):
        for header in ('"event.hpp"', '"../api/event.hpp"', '"dataplane/api/none.hpp"'):
            with self.subTest(header=header):
                self.includes("dataplane/api/event.cpp", header)
                self.fails("check-includes", "no such file from the root")

    def test_angle_brackets_do_not_hide_our_own(self):
        self.includes("dataplane/base/x.hpp", "<dataplane/api/event.hpp>")
        self.fails("check-includes", "dataplane/base may include only")

    def test_unknown_part_fails(self):
        self.write("dataplane/utilities/x.hpp", "")
        self.includes("agent/node.cpp", "dataplane/utilities/x.hpp")
        self.fails("check-includes", "in no part")

    def test_vendor_headers_stay_at_home(self):
        for name, header in (("dataplane/lane/verbs/pair.cpp", "<infiniband/verbs.h>"),
                             ("control/watch/port_reader.cpp", "<infiniband/verbs.h>"),
                             ("dataplane/device/cuda/copy.cpp", "<cuda_runtime.h>"),
                             ("control/watch/gpu_reader.cpp", "<nvml.h>"),
                             ("dataplane/base/ring.hpp", "<rte_ring.h>"),
                             ("agent/eal.cpp", "<rte_eal.h>")):
            self.includes(name, header)
        self.passes("check-includes")
        for name, header in (("dataplane/lane/lane.cpp", "<infiniband/verbs.h>"),
                             ("control/watch/links.cpp", "<nvml.h>"),
                             ("agent/node.cpp", "<cuda.h>"),
                             ("agent/main.cpp", "<rte_eal.h>"),
                             ("dataplane/path/route.cpp", "<spdlog/spdlog.h>")):
            with self.subTest(name=name):
                self.includes(name, header)
                self.fails("check-includes", f"{name}:2: {header.strip('<>')}: ")
                (self.root / name).unlink()


if __name__ == "__main__":
    unittest.main()

"""Every scenario of configs/lab/faults on the virtual clock: right bits, nothing lost or hung, the rungs that it names,
and the product's figures. The share of the bound is worked out here once more, from the linear program that
tests/bound/bound.py gives to scipy's solver, so that neither side can flatter the other."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import tempfile
import tomllib
import unittest

SOURCE = pathlib.Path(os.environ["LK_SOURCE_DIR"])
SIM = pathlib.Path(os.environ["LK_BINARY_DIR"]) / "bin" / "lanekeeper-sim"
BOUND = SOURCE / "tests" / "bound" / "bound.py"
SCENARIOS = sorted((SOURCE / "configs" / "lab" / "faults").glob("*.toml"))
if os.environ.get("LK_SANITIZE"):
    SCENARIOS = [path for path in SCENARIOS if path.stem in ("rail-cut", "rail-flaps-once", "nvlink-half.mesh-4gpu")]
LEAST_HEALTHY, LEAST = 0.97, 0.95
EVENT_NS, STALL_NS, RECOVER_NS = 1_000_000, 10_000_000, 5_000_000_000
SECONDS = 600  # a hang of the simulator


def measured(path):
    return tomllib.loads(path.read_text())["measure"]


def play(path, folder):
    dump = folder / (path.stem + ".json")
    done = subprocess.run([SIM, "--faults", path, "--json", "--dump-bound", dump], capture_output=True, text=True,
                          timeout=SECONDS)
    report = json.loads(done.stdout)
    if dump.exists():
        solved = subprocess.run(["/usr/bin/python3", BOUND, dump], capture_output=True, text=True, check=True)
        best = json.loads(solved.stdout)["bound_ns_per_byte"]
        run = json.loads(dump.read_text())
        report["share"] = best * run["op_bytes"] / run["op_ns"]
    return done.returncode, report


class Scenarios(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                runs = list(pool.map(lambda path: play(path, pathlib.Path(folder)), SCENARIOS))
        cls.runs = dict(zip((path.stem for path in SCENARIOS), runs))

    def test_all_are_right(self):
        self.assertEqual(len(self.runs), len(SCENARIOS))
        for name, (code, report) in self.runs.items():
            with self.subTest(name):
                self.assertEqual((code, report["why"]), (0, ""))
                self.assertTrue(report["ok"])
                self.assertEqual((report["wrong_bits"], report["lost_ops"], report["hung_ops"]), (0, 0, 0))
                self.assertGreater(report["payload_bytes"], 0)

    def test_share_of_the_bound(self):
        shares = {name: report["share"] for name, (_, report) in self.runs.items() if "share" in report}
        self.assertEqual(set(shares), {path.stem for path in SCENARIOS if measured(path) == "bound"})
        for name, share in shares.items():
            print(f"{name}: {share:.3f} of the bound")
            with self.subTest(name):
                self.assertGreaterEqual(share, LEAST_HEALTHY if name.startswith("healthy") else LEAST)
                self.assertLess(share, 1.005)  # more would say that time is not counted right
                self.assertAlmostEqual(share, self.runs[name][1]["bound_fraction"], places=4)

    def test_times_of_failover(self):
        limits = {"rail-cut": EVENT_NS, "rail-stalled": STALL_NS}
        for path in SCENARIOS:
            if measured(path) != "failover":
                continue
            with self.subTest(path.stem):
                took = self.runs[path.stem][1]["failover_p99_ns"]
                self.assertIsNotNone(took)
                self.assertLessEqual(took, limits.get(path.stem, EVENT_NS))
        self.assertLessEqual(self.runs["rail-flaps-once"][1]["recover_ns"], RECOVER_NS)


if __name__ == "__main__":
    unittest.main()

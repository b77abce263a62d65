"""The simulator's command line: what is said is used, or refused in one line; nothing is passed over."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["LK_SOURCE_DIR"])
SIM = pathlib.Path(os.environ["LK_BINARY_DIR"]) / "bin" / "lanekeeper-sim"
SECONDS = 300
STORY = """
name = "a test's"
profile = "mesh-4gpu"
nodes = 2
broke = "a rail at a quarter"
measure = "correct"
ops = 4
bytes = "1MiB"
[[fault]]
kind = "degrade"
target = "n0.mlx5_0.port1"
rate = 0.25
"""


class Options(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.story = os.path.join(self.folder.name, "story.toml")
        pathlib.Path(self.story).write_text(STORY, encoding="utf-8")

    def run_sim(self, *words):
        return subprocess.run([SIM, *map(str, words)], capture_output=True, text=True, timeout=SECONDS, check=False,
                              cwd=self.folder.name)

    def report(self, *words):
        done = self.run_sim("--json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return json.loads(done.stdout)

    def refused(self, part, *words):
        done = self.run_sim(*words)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(part, done.stderr)

    def test_sizes_are_read_as_nccl_tests_read_them(self):
        run = ["--profile", "mesh-4gpu", "--nodes", 1, "--ops", 2, "--bytes"]
        for same in (["64K", "64k", "65536", "64KiB", "65536B"], ["1M", "1m", "1MiB", "1024K"]):
            bytes_moved = {self.report(*run, size)["payload_bytes"] for size in same}
            self.assertEqual(len(bytes_moved), 1, same)
        for wrong in ("", "M", "-1M", "1MB", "1T", "x", "1 parsec", "0.3B", "2000G"):
            self.refused("--bytes", *run, wrong)

    def test_the_command_line_goes_before_a_scenario_file(self):
        plain = self.report("--faults", self.story)
        self.assertEqual((plain["profile"], plain["nodes"]), ("mesh-4gpu", 2))
        more = self.report("--faults", self.story, "--nodes", 3)
        self.assertEqual((more["profile"], more["nodes"]), ("mesh-4gpu", 3))
        other = self.report("--faults", self.story, "--profile", "dgx1-v100")
        self.assertEqual((other["profile"], other["nodes"]), ("dgx1-v100", 2))
        self.assertNotEqual(other["payload_bytes"], plain["payload_bytes"])
        self.assertGreater(self.report("--faults", self.story, "--ops", 20)["ops"], plain["ops"])
        events = os.path.join(self.folder.name, "events")
        self.report("--faults", self.story, "--events", events, "--payload-off")
        self.assertGreater(os.path.getsize(events), 0)

    def test_what_does_not_fit_is_refused(self):
        self.refused("--seeds", "--faults", self.story, "--seeds", 2)
        self.refused("--profile mixed", "--faults", self.story, "--profile", "mixed")
        self.refused("n0.mlx5_0", "--faults", self.story, "--profile", SOURCE / "tests/data/captures/topo/rtx4090-8gpu-no-nvlink.txt")
        self.refused("--dump-bound", "--dump-bound", "x", "--ops", 1)
        self.refused("--nodes", "--profile", "mixed", "--nodes", 2)
        self.refused("/no/such", "--profile", "mesh-4gpu", "--ops", 1, "--events", "/no/such/file")
        self.refused("/no/such", "--faults", "/no/such.toml")
        self.refused("/dev/full", "--profile", "mesh-4gpu", "--ops", 1, "--events", "/dev/full")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["story.toml"])


if __name__ == "__main__":
    unittest.main()

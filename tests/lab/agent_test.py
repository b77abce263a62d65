"""The agent as a user has it: lanekeeperd with emulated nodes, lanectl, real gradients through real client sessions."""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import gradient_sums
from agent_process import BINARIES, SOURCE, Agent, gradients

RAIL = "n0.mlx5_0.port1"


def domains(agent):
    return [gpu["domain"] for gpu in agent.ask("show", "topology")["gpus"]]


class AllReduce(unittest.TestCase):
    def reduced(self, agent, paths, *options):
        with tempfile.TemporaryDirectory() as folder:
            done = agent.ctl("allreduce", "--input", *paths, "--output", folder, *options)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [(p.name, gradient_sums.read(p)) for p in sorted(pathlib.Path(folder).iterdir())]

    def check(self, agent, paths, *options):
        expected = gradient_sums.all_reduce(paths, domains(agent), "avg" in options)
        results = self.reduced(agent, paths, *options)
        self.assertEqual([name for name, _ in results], [os.path.basename(p) for p in paths])
        for (_, (header, tensors)), path in zip(results, paths):
            self.assertEqual(header, gradient_sums.read(path)[0])
            for name, (_, bits) in tensors.items():
                self.assertTrue((bits == expected[name]).all(), f"{name} of {path}")

    def test_every_profile_gives_the_right_bits(self):
        profiles = [("mesh-4gpu", 8), ("dgx-a100", 16), ("dgx1-v100", 16), ("hgx-h100", 16), ("gb200-nvl72", 16),
                    ("pcie-8gpu", 16)]
        if os.environ.get("LK_SANITIZE") == "thread" and not os.environ.get("LK_FULL"):
            profiles = profiles[:1]  # the threads are the same in all, and half a minute each
        for profile, ranks in profiles:
            with self.subTest(profile), Agent(f"configs/lab/{profile}.toml") as agent:
                self.check(agent, gradients(ranks), "--op", "avg")
                self.check(agent, gradients(ranks))
                self.assertEqual(agent.end(), 0)

    def test_half_types_and_a_part_of_the_gpus(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            for suffix in (".f16", ".bf16"):
                self.check(agent, gradients(4, suffix), "--op", "avg")
            self.check(agent, gradients(5))
            self.check(agent, gradients(1))

    def test_broadcast(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent, tempfile.TemporaryDirectory() as folder:
            done = agent.ctl("broadcast", "--input", gradients(1)[0], "--ranks", 8, "--output", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            written = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual(len(written), 7)
            for path in written:
                self.assertEqual(path.read_bytes(), pathlib.Path(gradients(1)[0]).read_bytes())

    def test_the_bits_stay_while_links_break_and_come_back(self):
        with Agent("configs/lab/dgx-a100.toml") as agent:
            paths = gradients(16)
            expected = gradient_sums.all_reduce(paths, domains(agent))
            with tempfile.TemporaryDirectory() as folder:
                running = agent.start("--json", "allreduce", "--input", *paths, "--repeat", 60, "--output", folder)
                for fault in (["cut", RAIL], ["degrade", "n1.mlx5_1.port1", "rate=0.25"], ["cut", "n0.gpu3"]):
                    agent.ask("inject", *fault)
                    agent.wait_until(["status"], lambda s: not s["healthy"])
                agent.ask("clear", "all")
                out, error = running.communicate(timeout=120)
                self.assertEqual((running.returncode, error), (0, ""))
                result = json.loads(out)
                self.assertEqual((result["ops"], result["identical"]), (60 * 16, True))
                _, tensors = gradient_sums.read(next(pathlib.Path(folder).iterdir()))
                for name, (_, bits) in tensors.items():
                    self.assertTrue((bits == expected[name]).all(), name)
            self.check(agent, paths)


class Deaths(unittest.TestCase):
    def test_a_killed_agent_is_replaced_at_once(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            running = agent.start("allreduce", "--input", *gradients(8), "--repeat", 100000)
            agent.wait_until(["status"], lambda s: s["clients"] == 1 and s["nodes"][0]["groups"] == 1)
            agent.end(signal.SIGKILL)
            _, error = running.communicate(timeout=60)
            self.assertEqual(running.returncode, 1)
            self.assertEqual(error.count("\n"), 1, error)
            with Agent("configs/lab/mesh-4gpu.toml", folder=agent.folder) as again:
                self.assertEqual(again.ctl("allreduce", "--input", *gradients(8)).returncode, 0)
                self.assertEqual(again.end(), 0)

    def test_a_killed_client_harms_nobody(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            victims = [agent.start("allreduce", "--input", *gradients(8), "--repeat", 100000) for _ in range(2)]
            other = agent.start("--json", "allreduce", "--input", *gradients(8), "--repeat", 40)
            agent.wait_until(["status"], lambda s: s["clients"] == 3 and s["nodes"][0]["groups"] == 3)
            for victim in victims:
                victim.kill()
                victim.communicate()
            out, error = other.communicate(timeout=120)
            self.assertEqual((other.returncode, error), (0, ""))
            self.assertTrue(json.loads(out)["identical"])
            agent.wait_until(["status"], lambda s: s["clients"] == 0 and s["nodes"][0]["groups"] == 0)
            agent.wait_until(["show", "ops"], lambda ops: ops == [])
            self.assertEqual(agent.ctl("allreduce", "--input", *gradients(8)).returncode, 0)
            self.assertEqual(agent.end(), 0)

    def test_a_lost_node_ends_ops_with_its_name(self):
        with Agent("configs/lab/mesh-4gpu.toml", "--nodes", "3") as agent:
            running = agent.start("allreduce", "--input", *gradients(12), "--repeat", 100000)
            agent.wait_until(["status"], lambda s: s["nodes"][0]["groups"] == 1)
            agent.ask("inject", "cut", "n2")
            _, error = running.communicate(timeout=60)
            self.assertEqual(running.returncode, 1)
            self.assertRegex(error, r"^lanectl: op \d+: .*\n$")
            self.assertRegex(error, "node|partition")
            self.assertEqual(agent.ctl("status").returncode, 1)
            done = agent.ctl("allreduce", "--input", *gradients(8))
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_client_that_speaks_nonsense_is_sent_away(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            for packet in (b"", b"x", b"LKSS" + bytes(100), bytes(511)):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                    client.settimeout(30)
                    client.connect(agent.socket + ".session")
                    client.send(packet)
                    self.assertEqual(client.recv(100), b"")
            self.assertEqual(agent.ctl("status").returncode, 0)


class Commands(unittest.TestCase):
    def test_every_command_answers_in_words_and_in_json(self):
        lane = "n0.gpu0-n1.gpu0.rdma.mlx5_0"
        commands = [
            ["status"], ["show", "topology"], ["show", "links"], ["show", "lanes"], ["show", "trunks"],
            ["show", "cores"], ["show", "pollers"], ["show", "ops"], ["show", "groups"], ["show", "counters"],
            ["show", "faults"], ["show", "events"], ["show", "events", "--last", "3"], ["show", "config"],
            ["show", "lanes", "--node", "n1", "--kind", "rdma"], ["explain", lane], ["explain", RAIL],
            ["drain", RAIL], ["undrain", RAIL], ["set-weight", lane, "0.5"], ["set-weight", lane, "1"],
            ["off", lane], ["on", lane], ["off", RAIL], ["on", RAIL], ["rebalance", "--dry-run"],
            ["rebalance", "--apply"], ["inject", "degrade", RAIL, "rate=0.5", "for=1ms"], ["clear", "all"],
            ["config", "check", str(SOURCE / "configs/lanekeeper.toml")], ["config", "template"], ["version"],
            ["allreduce", "--input", *gradients(2)],
            ["broadcast", "--input", gradients(1)[0], "--ranks", "2"],
        ]
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            for words in commands:
                with self.subTest(words=words):
                    plain = agent.ctl(*words)
                    self.assertIn(plain.returncode, (0, 1), plain.stderr)
                    self.assertTrue(plain.stdout)
                    self.assertEqual(plain.stderr, "")
                    if words != ["config", "template"]:
                        self.assertLessEqual(max(map(len, plain.stdout.splitlines()
                                                     if words[:2] != ["show", "events"] else [""])), 250)
                    as_json = agent.ctl("--json", *words)
                    self.assertIn(as_json.returncode, (0, 1), as_json.stderr)
                    json.loads(as_json.stdout)
            tables = ["links", "lanes", "trunks", "cores", "pollers", "groups", "counters", "config"]
            for table in tables:
                for line in agent.ctl("show", table).stdout.splitlines():
                    self.assertLessEqual(len(line), 100, line)

    def test_help_has_an_example_for_every_command(self):
        def names(*words):
            text = subprocess.run([BINARIES / "lanectl", *words, "--help"], capture_output=True, text=True, check=True)
            self.assertIn("Example: lanectl", text.stdout + ("Example: lanectl" if words in (("show",), ("config",)) else ""))
            if "Subcommands:" not in text.stdout:
                return
            for line in text.stdout.split("Subcommands:")[1].splitlines()[1:]:
                if line.startswith("  ") and line.strip() and not line.startswith("   "):
                    names(*words, line.split()[0])
                elif not line.strip():
                    break
        names()

    def test_a_drained_rail_carries_nothing_and_comes_back(self):
        with Agent("configs/lab/dgx-a100.toml") as agent:
            def over_rail():
                rows = agent.ask("show", "lanes", "--kind", "rdma")
                return sum(row["rate_GBps"] for row in rows if row["name"].endswith("gpu0.rdma.mlx5_0"))
            self.assertEqual(agent.ctl("allreduce", "--input", *gradients(16)).returncode, 0)
            agent.ask("drain", RAIL)
            self.assertEqual(agent.ask("explain", RAIL)["lines"][0].split(": ")[-1], "drained")
            self.assertEqual(agent.ctl("status").returncode, 1)
            agent.wait_until(["status"], lambda s: "drained" in s["nodes"][0]["links"])
            self.assertEqual(agent.ctl("allreduce", "--input", *gradients(16)).returncode, 0)
            agent.ask("undrain", RAIL)
            agent.wait_until(["status"], lambda s: s["healthy"])
            self.assertGreater(over_rail(), 0)

    def test_mistakes_are_one_line_and_exit_code_2(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent, tempfile.TemporaryDirectory() as folder:
            cut = os.path.join(folder, "cut.safetensors")
            with open(cut, "wb") as file:
                file.write(pathlib.Path(gradients(1)[0]).read_bytes()[:5000])
            bad = os.path.join(folder, "bad.toml")
            with open(bad, "w", encoding="utf-8") as file:
                file.write("[loopback]\nnodez = 2\n")
            for words, part in (
                    (["fly"], "--help"), (["explain"], "name"), (["explain", "n0.gpu0.nvlnk"], "unknown, expected"),
                    (["drain", "n9.gpu0"], "link \"n9.gpu0\""), (["set-weight", "x", "1"], "lane"),
                    (["set-weight", "n0.gpu0-n1.gpu0.rdma.mlx5_0", "2"], "expected 0 to 1"),
                    (["set-weight", "n0.gpu0-n1.gpu0.rdma.mlx5_0", "much"], "expected a number"),
                    (["rebalance"], "expected one of --dry-run and --apply"),
                    (["inject", "melt", RAIL], "melt"), (["inject", "cut", "n0.nothing"], "n0.nothing"),
                    (["clear", "7"], "7"), (["show", "links", "--node", "n7"], "expected n0 to n1"),
                    (["show", "lanes", "--kind", "rope"], "expected nvlink, pcie"),
                    (["allreduce", "--input", "/nowhere"], "/nowhere"), (["allreduce", "--input", cut], cut),
                    (["allreduce", "--input", gradients(1)[0], gradients(1, ".f16")[0]], "f32 and f16"),
                    (["allreduce", "--input", *gradients(1), "--op", "max"], "sum or avg"),
                    (["allreduce", "--input", *gradients(9)], "9 ranks, expected at most 8"),
                    (["allreduce", "--input", *gradients(2), *gradients(1), "--output", folder], "names that differ"),
                    (["config", "check", bad], "bad.toml:2: loopback.nodez: unknown key, expected loopback.nodes")):
                with self.subTest(words=words):
                    done = agent.ctl(*words)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
                    self.assertIn(part, done.stderr)
            self.assertEqual(agent.ctl("status").returncode, 0)

    def test_a_full_disk_is_one_line_and_leaves_no_half_file(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that the write fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with Agent("configs/lab/mesh-4gpu.toml") as agent, tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(agent.command("allreduce", "--input", *gradients(2), "--output", folder),
                                  capture_output=True, text=True, check=False, preexec_fn=small_files, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(folder, done.stderr)
            self.assertEqual(os.listdir(folder), [])
            self.assertEqual(agent.ctl("status").returncode, 0)

    def test_an_output_never_takes_the_place_of_an_input(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent, tempfile.TemporaryDirectory() as folder:
            paths = [shutil.copy(path, folder) for path in gradients(2)]
            before = [pathlib.Path(path).read_bytes() for path in paths]
            link = folder + "/link"
            os.symlink(folder, link)
            single = os.path.join(folder, "rank1.safetensors")
            shutil.copy(paths[0], single)
            for words in (["allreduce", "--input", *paths, "--output", folder],
                          ["allreduce", "--input", *paths, "--output", link],
                          ["allreduce", "--input", paths[0], gradients(2)[1], "--output", folder],
                          ["broadcast", "--input", single, "--ranks", 2, "--output", folder]):
                with self.subTest(words=words):
                    done = agent.ctl(*words)
                    self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                    self.assertIn("would take the place of the input", done.stderr)
            self.assertEqual([pathlib.Path(path).read_bytes() for path in paths], before)

    def test_of_several_results_all_or_none_are_written(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent, tempfile.TemporaryDirectory() as folder:
            disk = os.path.join(folder, "disk")
            os.mkdir(disk)
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1000k", "tmpfs", disk], check=False,
                                     capture_output=True)
            if mounted.returncode != 0:
                self.skipTest("no small disk can be mounted here")
            try:
                kept = pathlib.Path(disk, os.path.basename(gradients(1)[0]))
                kept.write_bytes(b"a result of before")
                done = agent.ctl("allreduce", "--input", *gradients(4), "--output", disk)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                self.assertIn("No space left", done.stderr)
                self.assertEqual([p.name for p in pathlib.Path(disk).iterdir()], [kept.name])
                self.assertEqual(kept.read_bytes(), b"a result of before")
            finally:
                subprocess.run(["umount", disk], check=True)

    def test_no_agent_is_one_line_and_exit_code_1(self):
        done = subprocess.run([BINARIES / "lanectl", "--socket", "/tmp/no/such.sock", "status"], capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))


class Telling(unittest.TestCase):
    def test_status_tells_of_lanes_whose_links_say_nothing(self):
        with Agent("configs/lab/dgx-a100.toml") as agent:
            running = agent.start("allreduce", "--input", *gradients(16), "--repeat", 100000)
            agent.wait_until(["status"], lambda s: s["nodes"][0]["groups"] == 1)
            agent.ask("inject", "stall", RAIL)  # no port event
            status = agent.wait_until(["status"], lambda s: any(".mlx5_0" in line for line in s["problems"]))
            line = next(line for line in status["problems"] if ".mlx5_0" in line)
            self.assertRegex(line, r"^(lane|link) n0\..*mlx5_0.* for [0-9.]+ s")
            self.assertFalse(status["healthy"])
            running.kill()
            running.communicate()

    def test_a_log_that_nobody_reads_stops_nothing(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            for _ in range(2000):  # a line each, and a pipe holds 64 KiB
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                    client.connect(agent.socket + ".session")
                    client.send(b"nonsense")
                    client.recv(100)
            self.assertEqual(agent.ctl("allreduce", "--input", *gradients(8)).returncode, 0)
            self.assertEqual(agent.end(), 0)


class Starting(unittest.TestCase):
    def refused(self, *words):
        done = subprocess.run([BINARIES / "lanekeeperd", *words], cwd=SOURCE, capture_output=True, text=True,
                              check=False, timeout=60)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lanekeeperd: ")]
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_a_second_agent_on_one_socket_is_refused(self):
        with Agent("configs/lab/mesh-4gpu.toml") as agent:
            self.assertIn("in use by another agent", self.refused("--loopback", "mesh-4gpu", "--socket", agent.socket))
            self.assertEqual(agent.ctl("status").returncode, 0)

    def test_bad_starts_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            sock = os.path.join(folder, "a.sock")
            empty = os.path.join(folder, "empty.txt")
            open(empty, "w", encoding="utf-8").close()
            self.assertIn("expected", self.refused("--loopback", empty, "--socket", sock))
            self.assertIn("dgx-a1000", self.refused("--loopback", "dgx-a1000", "--socket", sock))
            self.assertIn("/nowhere.toml", self.refused("--loopback", "/nowhere.toml", "--socket", sock))
            self.assertIn("expected 1 to", self.refused("--loopback", "mesh-4gpu", "--socket", "/tmp/" + "x" * 120))
            self.assertIn("--nodes: loopback.nodes = 0", self.refused("--loopback", "mesh-4gpu", "--nodes", "0"))
            self.assertIn("rtx", self.refused("--loopback", "mesh-4gpu", "--gpu", "rtx"))
            self.assertIn("--help", self.refused("--nonsense"))
            self.assertIn('--socket "": expected a path', self.refused("--loopback", "mesh-4gpu", "--socket", ""))

    def test_any_capture_can_be_run(self):
        captures = sorted((SOURCE / "tests/data/captures").rglob("*.txt"))
        capture = next(c for c in captures if "dgx-a100-10nic" in c.name)
        with Agent(str(capture)) as agent:
            self.assertEqual(len(agent.ask("show", "topology")["nodes"]), 1)
            self.assertEqual(agent.ctl("allreduce", "--input", *gradients(8)).returncode, 0)

    def test_two_nodes_may_share_one_core(self):
        core = min(os.sched_getaffinity(0))
        with tempfile.TemporaryDirectory() as folder:
            config = os.path.join(folder, "one.toml")
            with open(config, "w", encoding="utf-8") as file:
                file.write(f'[loopback]\nprofile = "mesh-4gpu"\nnodes = 2\n[reactor]\ncores = "{core}"\n')
            with Agent(config) as agent:
                reactors = agent.ask("show", "cores")["reactors"]
                self.assertEqual([(r["core"], r["core_shared"]) for r in reactors], [(core, True)] * 2)
                self.assertEqual(agent.ctl("allreduce", "--input", *gradients(8), "--repeat", 20).returncode, 0)

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_a_plain_user_can_run_it(self):
        folder = tempfile.mkdtemp(prefix="lk-user-")
        os.chown(folder, 65534, 65534)
        # Binaries of a tree that only root may enter.
        shutil.copy(BINARIES / "lanekeeperd", folder)
        shutil.copytree(SOURCE / "configs", os.path.join(folder, "configs"))
        process = subprocess.Popen([os.path.join(folder, "lanekeeperd"), "--loopback", "mesh-4gpu", "--socket",
                                    os.path.join(folder, "a.sock")], cwd="/", stderr=subprocess.PIPE, text=True,
                                   user=65534, group=65534, extra_groups=[], env={"LANEKEEPER_CONFIGS": folder + "/configs"})
        try:
            for line in process.stderr:
                if "ready: " in line:
                    break
            else:
                self.fail("it ended")
        finally:
            process.terminate()
            process.communicate()
            shutil.rmtree(folder)
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()

"""An agent in loopback mode as a process, and lanectl, for tests. Everything lies in a folder of its own."""

import json
import os
import pathlib
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(os.environ["LK_SOURCE_DIR"])
BINARIES = pathlib.Path(os.environ["LK_BINARY_DIR"]) / "bin"
# What the memory would give under the thread sanitizer; to measure it there takes longer than most tests.
SCALE = ["--rate-scale", "3e-5"] if os.environ.get("LK_SANITIZE") == "thread" else []
LIMIT_S = 300 if os.environ.get("LK_SANITIZE") else 60


def gradients(ranks, suffix=""):
    folder = SOURCE / "tests/data/gradients"
    return [str(folder / f"digits-cnn-rank{r:02}{suffix}.safetensors") for r in range(ranks)]


class Agent:
    def __init__(self, what, *options, folder=None, ready=True, descriptors=None):
        self.own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="lk-lab-"))
        self.socket = str(self.folder / "agent.sock")
        self.process = subprocess.Popen(
            [BINARIES / "lanekeeperd", "--loopback", what, "--socket", self.socket, *SCALE, *options],
            cwd=SOURCE, stderr=subprocess.PIPE, text=True,
            preexec_fn=descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors,) * 2)))
        self.log = ""
        if ready:
            self.wait_for("ready: ")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        if self.own_folder:
            shutil.rmtree(self.folder)

    def wait_for(self, words):
        """Reads the log until a line has `words`. Fails when the agent ends or the time is over."""
        until = time.monotonic() + LIMIT_S
        while words not in self.log:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stderr], [], [], left)[0]:
                raise AssertionError(f"no '{words}' in time:\n{self.log}")
            line = self.process.stderr.readline()
            if not line:
                raise AssertionError(f"the agent ended with {self.process.wait()}:\n{self.log}")
            self.log += line

    def end(self, number=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.log += self.process.communicate(timeout=LIMIT_S)[1] or ""
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode

    def command(self, *words):
        return [str(BINARIES / "lanectl"), "--socket", self.socket, *map(str, words)]

    def ctl(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def start(self, *words):
        return subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ask(self, *words):
        """The JSON result of a command that must be well."""
        done = self.ctl("--json", *words)
        if done.returncode not in (0, 1) or done.stderr:
            raise AssertionError(f"{words}: {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def wait_until(self, words, good):
        """Asks again and again until good(result); the agent's own answer paces it."""
        until = time.monotonic() + LIMIT_S
        while not good(result := self.ask(*words)):
            if time.monotonic() > until:
                raise AssertionError(f"{words}: {result}")
        return result

"""A tree made for one test: files by name and text, on which one of the check scripts is run."""

import pathlib
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class SmallTree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, script, *arguments):
        """(exit code, everything printed)"""
        done = subprocess.run([SCRIPTS / script, "--root", self.root, *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def passes(self, script, *arguments):
        code, text = self.check(script, *arguments)
        self.assertEqual(code, 0, text)
        return text

    def fails(self, script, *expected, arguments=()):
        code, text = self.check(script, *arguments)
        self.assertEqual(code, 1, text)
        for part in expected:
            self.assertIn(part, text)
        return text

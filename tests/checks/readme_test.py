"""The READMEs name nothing that is not there: files in links and in tables, commands of lanectl, scenario files."""

import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["LK_SOURCE_DIR"])
READMES = sorted(path for folder in (".", "agent", "control", "dataplane", "configs")
                 for path in (SOURCE / folder).rglob("README.md") if "build" not in path.relative_to(SOURCE).parts[0])


def commands():
    table = (SOURCE / "agent/command_table.cpp").read_text()
    return set(re.findall(r'^    \{"([a-z -]+)",', table, re.MULTILINE))


class Readme(unittest.TestCase):
    text = (SOURCE / "README.md").read_text()

    def test_links_lead_to_files(self):
        for path in READMES:
            for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
                self.assertTrue((path.parent / target).exists(), f"{path}: {target}")

    def test_paths_in_code_marks_exist(self):
        for name in re.findall(r"`((?:agent|configs|control|dataplane|scripts|tests)/[\w./-]+)[` ]", self.text):
            pattern = name.replace("NAME", "*")
            self.assertTrue(any(SOURCE.glob(pattern)), name)

    def test_stages_have_their_file(self):
        journey = (SOURCE / "dataplane/path/README.md").read_text()
        named = set(re.findall(r"`(\w+\.[ch]pp)`", journey))
        self.assertEqual({path.name for path in (SOURCE / "dataplane/path").glob("*.cpp")} - named, set())
        for name in named:
            self.assertTrue((SOURCE / "dataplane/path" / name).exists(), name)

    def test_scenarios_of_the_numbers_exist(self):
        files = re.findall(r"([\w.-]+)\.toml`", self.text.split("## The simulator")[1].split("## Fault plans")[0])
        self.assertGreaterEqual(len(files), 5)
        for name in files:
            self.assertTrue((SOURCE / "configs/lab/faults" / f"{name}.toml").exists(), name)

    def test_every_command_of_lanectl_is_told(self):
        table = self.text.split("## The agent and lanectl")[1].split("## The simulator")[0]
        for command in commands():
            self.assertRegex(table, rf"(?:lanectl |`){command}\b", command)

    def test_told_commands_are_commands(self):
        rows = [row for row in self.text.split("## The agent and lanectl")[1].split("\n") if row.startswith("| ")]
        for told in re.findall(r"`((?:lanectl )?[a-z][^`]*)`", "\n".join(row for row in rows if "lanectl " in row)):
            words = told.removeprefix("lanectl ")
            self.assertTrue(any(words == c or words.startswith(c + " ") for c in commands()), told)


if __name__ == "__main__":
    unittest.main()

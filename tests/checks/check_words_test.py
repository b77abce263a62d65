import unittest

from small_tree import SmallTree


class CheckWords(SmallTree):
    def test_clean_tree_passes(self):
        self.write("README.md", "See /etc/lanekeeper and ../work/shared; a rate of 12 # of 14 ports, see 7.\n")
        self.write("control/node.cpp", "int stubborn = 1;  // what a stubborn link does; hardcode-free\n")
        self.write("tests/control/node_test.cpp", "// no thread sleeps (in here)\n")
        self.passes("check-words")

    def test_unfinished_work_fails(self):
        for words in ("TODO", "fixme:", "a stub", "Placeholder", "not implemented", "not yet implemented", "for now",
                      "hard-coded", "hardcoded"):
            with self.subTest(words=words):
                self.write("control/node.cpp", f"int a;\nint b;  // {words} here\n")
                self.fails("check-words", "control/node.cpp:2:", "marks unfinished work")

    def test_machine_paths_and_tracker_numbers_fail(self):
        for text in ("/work/main/build", '"/home/someone/x"', "see /root/x", "/farm/x", "x/.library/y"):
            with self.subTest(text=text):
                self.write("README.md", f"{text}\n")
                self.fails("check-words", "README.md:1:", "a path of somebody's machine")
        for text in ("issue 12", "Issue #12", "fixes #3", "see #7"):
            with self.subTest(text=text):
                self.write("README.md", f"{text}\n")
                self.fails("check-words", "README.md:1:", "a tracker's number")

    def test_sleeps_in_tests_fail(self):
        for call in ("std::this_thread::sleep_for(1ms);", "usleep(3);", "sleep(1);"):
            with self.subTest(call=call):
                self.write("tests/lab/kill_test.cpp", call + "\n")
                self.fails("check-words", "a sleep in a test")
        self.write("tests/lab/kill_test.cpp", "")
        self.write("dataplane/loop/idle.cpp", "usleep(3);\n")
        self.passes("check-words")

    def test_empty_names_and_stray_files_fail(self):
        self.write("control/link_utils.hpp", "")
        self.write("agent/common/x.hpp", "")
        self.write("notes.txt", "")
        self.fails("check-words", "control/link_utils.hpp: a file is", "agent/common/x.hpp: a file is",
                   "notes.txt: does not belong at the top level")

    def test_data_of_others_is_left_alone(self):
        self.write("tests/data/topo.txt", "# TODO /home/x/y\n")
        self.passes("check-words")


if __name__ == "__main__":
    unittest.main()

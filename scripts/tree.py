"""The files of a Lanekeeper tree, as the check scripts see them: tracked or not, but never what git ignores."""

import argparse
import pathlib
import subprocess

CODE = (".cpp", ".hpp", ".h", ".cu", ".cuh")
HEADERS = (".hpp", ".h", ".cuh")
FOLDERS = ("agent", "control", "dataplane", "tests")


def root_argument(description):
    """A parser with --root, which the checks' own tests point at small trees made for them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent,
                        help="the tree to check (default: the one that this script is part of)")
    return parser


def files(root):
    """Paths relative to root, sorted. Without git (an unpacked archive) every file counts, but for build folders."""
    # A clone that belongs to another user is still a clone: CI runs as root.
    git = ["git", "-c", "safe.directory=*", "-C", str(root)]
    listed = subprocess.run(git + ["ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    else:
        found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        names = [str(path) for path in found if not path.parts[0].startswith(("build", "."))]
    return sorted(set(names))


def code(root, suffixes=CODE):
    return [name for name in files(root) if name.endswith(suffixes) and name.split("/")[0] in FOLDERS]

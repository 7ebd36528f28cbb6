"""``python -m profkit.loop``: the command ``profkit loop`` as a program that can be traced."""

import sys

from profkit.cli import main

sys.exit(main(["loop", *sys.argv[1:]]))

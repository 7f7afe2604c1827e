"""`make bench`: the life of a stack."""

import sys

from benchmarks.harness.command import main
from benchmarks.lifecycle import Lifecycle

if __name__ == "__main__":
    sys.exit(main(Lifecycle(), sys.argv[1:]))

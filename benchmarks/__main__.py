"""`make bench`: every benchmark, one after the other."""

from benchmarks import lifecycle

lifecycle.main()

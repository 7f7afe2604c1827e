"""What all benchmarks have in common. Each of them adds what a system is, and how one turn of it runs.

command  the command line, and the loop over the turns
plan     which turns are missing, in which order they are made, and how long they take
records  what was measured, with machine, versions and date; rows of it with median, extremes and ratios
"""

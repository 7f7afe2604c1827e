"""`tidewater rehearse`: whether the promises of the runtime hold for a script, tried on one machine.

app          the command
faults       the runs: undisturbed ones, and one with a kill, a join, a freeze, a leave and a stop
trial        the worker processes of one run, and what they have recorded
records      the records of a run, put in order (pure)
compare      records of one run or of two, to findings (pure)
exact        what must be equal bit for bit (pure)
near         what is equal but for the order of sums, and the tolerance for it (pure)
remedies     what to do about a difference (pure)
promises     the table: each promise, held or not (pure)
"""

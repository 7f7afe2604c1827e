"""What a worker does for `tidewater rehearse` in addition: it records its state after each final step.

observer   records, samples the data down, and waits at the gate
pieces     the whole state, and what is none, as names with values to compare
variables  to which variables the functions of a training refer
"""

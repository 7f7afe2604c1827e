"""The program of the job that `workloads.devices.check` makes. It needs nothing but Python's standard library."""

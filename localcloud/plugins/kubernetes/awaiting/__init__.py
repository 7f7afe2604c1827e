"""Waiting until an object is ready or gone: pure deciders (`workloads`, `services`, `others`, `conditions`) and a loop (`wait`)."""

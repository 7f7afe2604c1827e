"""The process group of torch, re-formed in the living process when the membership changes.

group        collectives that can be interrupted, and both ways to form the group again
rendezvous   the torch store at which the ranks of one generation meet
connections  ends the TCP connections of this process from outside the library that uses them
sums         memory for what the ranks sum
addresses    the address by which the other workers can reach this machine
"""

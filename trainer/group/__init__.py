"""The process group of torch, formed again in the running process when the membership changes.

group        collectives that can be interrupted, and two ways to form the group again
rendezvous   the torch store at which the ranks of one generation meet
connections  ends TCP connections of this process from outside the library that uses them
sums         memory for the values that the ranks sum
addresses    the address by which the other workers can reach this machine
"""

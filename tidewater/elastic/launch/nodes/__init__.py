"""The launchers of a worker over several machines, which start and end its processes together.

machine    the launcher of one machine: starts its processes, and ends them, as the first one says
starts     what that of the first machine decides for all, without side effects
messages   what launchers send each other
link       connections between them, and the keys at which their processes meet
lookup     how they find each other, by etcd
"""

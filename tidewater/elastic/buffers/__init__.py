"""The buffers of a model: found where the model keeps them, and equal in all workers after every step.

slots        which tensor each buffer is, what passes have changed in it, and how it gets another value
combining    the new value of a buffer from those of the ranks, by a rule for its type
agreement    which buffers are combined in a step: those that any rank's passes have changed, and no others
"""

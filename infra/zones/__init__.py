"""In which zones things are.

workers      which of the stack's zones have the worker nodes
"""

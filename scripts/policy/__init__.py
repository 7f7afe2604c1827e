"""The least IAM policies with which a stack of this config can be deployed, changed, refreshed and destroyed.

actions      which actions the AWS resources of a stack need, by their type
needs        what is needed in addition: look-ups of the program, and `scripts`
scopes       on which resources, and under which conditions: the names of the stack, its tags, its region
stacks       the stack that a command is for, its settings and its account
documents    the statements of a config, and how they are divided into managed policies
"""

"""A person's project: a folder with code, and a lock of the packages that it imports.

folder   what of a folder goes to the workers
lock     which packages a lock names
pack     both as archives

Mistakes are sentences, which the stack and the command line print the same.
"""

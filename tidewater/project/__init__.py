"""A person's project: a folder with code, and a lock of the packages that it imports.

folder   what of a folder goes to the workers
lock     which packages a lock names
imports  what a script imports that workers would lack
pack     both as archives

Mistakes are sentences, which the stack and the command line print the same.
"""

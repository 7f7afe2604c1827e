"""`tidewater run`: a training script as a job of several workers on one machine, which may lose some of them.

app      the command: its flags, what is checked before anything starts, and where things are
program  what is run: a script, a module, or a folder with packages
decide   what to do when a worker has ended (pure)
workers  starts the workers, replaces lost ones, passes on their lines, and obeys signals and keys
output   lines with prefixes, and keys
etcd     an etcd in a folder of its own, which lasts as long as the command
"""

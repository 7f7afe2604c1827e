"""What the cloud needs of the machine that it runs on. Standard library only: `preflight` runs before a set-up.

rights    root's capabilities, and the kernel's features
inotify   how many inotify instances and watches a cloud needs, and how many there are
cgroups   a node's cgroups, in the hierarchies of v1 or v2, and a trial of them
devices   the devices that a node's processes may open
environment   what the cloud's processes get of the shell, and their umask
"""

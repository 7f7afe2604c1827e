"""People's Python packages, which a job installs once into a folder of the shared volume.

install    the `packages` sub-command: runs pip and puts the result in its place
reasons    why pip failed, in one sentence
needs      what installed packages need of the image, and the image of them
"""

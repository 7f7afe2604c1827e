"""Files that the program does not import but puts into the code bundle, to run in the pods.

start    entry point of the bundle: adds the packages that the image lacks, then runs the trainer
"""

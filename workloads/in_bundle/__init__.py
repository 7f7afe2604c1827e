"""Files that the program doesn't import but puts into the code bundle, to run in the pods."""

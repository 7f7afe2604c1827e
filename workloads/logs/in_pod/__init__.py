"""The programs of the pods that keep logs and print them: the standard library only."""

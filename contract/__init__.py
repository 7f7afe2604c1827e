"""The words that Tidewater's processes share: a leaf package, standard library only.

The program that writes a manifest and the process that runs in the pod both import
these modules, so a label, an environment variable, an etcd key or an exit code is
spelt in exactly one place.
"""

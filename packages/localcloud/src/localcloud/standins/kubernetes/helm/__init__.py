"""The component `helm.v4.Chart`: what the real `helm template` renders, each object as a child.

chart        registers the component and its children; read it first
arguments    the component's inputs
command      runs helm: its arguments, and the files that it reads
manifests    helm's text as objects, in the namespace where they belong
order        what depends on what among them, and in which order they are registered
"""

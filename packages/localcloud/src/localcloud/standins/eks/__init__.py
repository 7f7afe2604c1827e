"""The stand-in for the `eks` component plug-in of Pulumi: `python -m localcloud.standins.eks ENGINE_ADDRESS`.

It registers the same children of a component, by name, parent and inputs, as the official plug-in does.
It doesn't use the SDK's runtime: that expands one component at a time, and importing `pulumi_aws` takes seconds.

__main__     answers the engine's construct and call requests; read it first
components/  the children and the outputs of each component
scope        the component that is being expanded: the options that its children inherit
arguments    checks inputs, and names those that aren't covered
"""

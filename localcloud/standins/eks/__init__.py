"""The stand-in for the `eks` component plug-in of Pulumi: `python -m localcloud.standins.eks ENGINE_ADDRESS`.

It expands `eks:index:Cluster`, `ManagedNodeGroup`, `Addon` and `VpcCniAddon` into the same children, by name, parent
and inputs, that the official plug-in registers. It talks to the engine's resource monitor directly (`monitor.py`)
rather than through the SDK's runtime, for two reasons: the SDK keeps its state in globals and so expands one component
at a time, and importing `pulumi_aws` to register children would cost every `pulumi up` seconds.
"""

"""Take over what a `pulumi up` has made in AWS without knowing it, before the next `pulumi up`.

    python -m scripts.adopt [--stack NAME]

Pulumi records that it creates a resource before it asks AWS to. If it is killed then, or if AWS's answer is lost, its
state doesn't have the resource, and the next `pulumi up` makes it again. AWS refuses a second cluster of the name, a
second mount target in the zone, a second subnet with the addresses: that `up` can't complete. Or there is a second one,
such as a node group under another name, which costs money and keeps the cluster or the VPC from being deleted. It is
for the person to say what became of each:
https://www.pulumi.com/docs/iac/operations/troubleshooting/interrupted-updates/

The place that such a resource has in AWS follows from its inputs (`kinds`). So this asks AWS, and takes over what is in
the place, or removes it if it has failed or if there is another one in its stead. It writes what exists into the state,
by `pulumi stack import`, since Pulumi 3.250 forgets what `pulumi refresh --import-pending-creates` names.
"""

from scripts.adopt.command import adopt

__all__ = ["adopt"]

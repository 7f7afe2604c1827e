"""The EFS CSI driver of one node: answers to `efs.csi.aws.com` and bind-mounts a directory per file system.

    python -m localcloud.kube.csi NODE_NAME ZONE      # AWS_ENDPOINT_URL, AWS_REGION and credentials in the environment

protocol.py has the messages, volume.py reads volume handles, efs.py asks the AWS endpoint, driver.py mounts.
"""

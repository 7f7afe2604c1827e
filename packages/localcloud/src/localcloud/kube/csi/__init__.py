"""The EFS CSI driver of one node: `efs.csi.aws.com`, which bind-mounts a directory per file system.

    python -m localcloud.kube.csi NODE_NAME ZONE      # AWS_ENDPOINT_URL, AWS_REGION and credentials in the environment

driver     the messages, and what mounts volumes; read it first
volume     parses volume handles
efs        asks the AWS endpoint whether a volume may be mounted
"""

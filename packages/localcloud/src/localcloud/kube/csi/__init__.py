"""The CSI drivers of one node, `efs.csi.aws.com` and `fsx.csi.aws.com`, which bind-mount a directory per file system.

    python -m localcloud.kube.csi efs.csi.aws.com NODE_NAME ZONE
    # for EFS with AWS_ENDPOINT_URL, AWS_REGION and credentials in the environment

driver     the messages, and what mounts volumes; read it first
volume     parses volume handles; what is wrong with volumes
efs        finds a volume of EFS; asks the AWS endpoint whether it may be mounted
lustre     finds a volume of FSx for Lustre
"""

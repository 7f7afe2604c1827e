"""Which actions a stack needs, by the type of the resource: the calls that Terraform's provider makes for it. Data.

pulumi-aws is that provider: https://github.com/hashicorp/terraform-provider-aws, in `internal/service`. Names of
actions are not always those of the API's operations; S3's differ most:
https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations.html has the permission of each one.
"""

from __future__ import annotations

from collections.abc import Mapping

from scripts.policy.scopes import Scope

Actions = Mapping[Scope, str]
"""Names of actions, with spaces between them; those without a service are of the scope's own."""

NETWORK: Mapping[str, Actions] = {
    "aws:ec2/vpc:Vpc": {
        Scope.REGION: "ec2:DescribeVpcs ec2:DescribeVpcAttribute ec2:DescribeNetworkAcls ec2:DescribeRouteTables "
        "ec2:DescribeSecurityGroups",
        Scope.EC2: "CreateVpc ModifyVpcAttribute",
        Scope.EC2_OWN: "DeleteVpc",
    },
    "aws:ec2/subnet:Subnet": {
        Scope.REGION: "ec2:DescribeSubnets ec2:DescribeNetworkInterfaces",
        Scope.EC2: "CreateSubnet ModifySubnetAttribute",
        Scope.EC2_OWN: "DeleteSubnet",
    },
    "aws:ec2/internetGateway:InternetGateway": {
        Scope.REGION: "ec2:DescribeInternetGateways",
        Scope.EC2: "CreateInternetGateway AttachInternetGateway DetachInternetGateway",
        Scope.EC2_OWN: "DeleteInternetGateway",
    },
    "aws:ec2/eip:Eip": {
        Scope.REGION: "ec2:DescribeAddresses ec2:DescribeAddressesAttribute",
        Scope.EC2: "AllocateAddress DisassociateAddress",
        Scope.EC2_OWN: "ReleaseAddress",
    },
    "aws:ec2/natGateway:NatGateway": {
        Scope.REGION: "ec2:DescribeNatGateways",
        Scope.EC2: "CreateNatGateway",
        Scope.EC2_OWN: "DeleteNatGateway",
    },
    "aws:ec2/routeTable:RouteTable": {
        Scope.REGION: "ec2:DescribeRouteTables",
        Scope.EC2: "CreateRouteTable CreateRoute ReplaceRoute DeleteRoute DisassociateRouteTable",
        Scope.EC2_OWN: "DeleteRouteTable",
    },
    "aws:ec2/route:Route": {
        Scope.REGION: "ec2:DescribeRouteTables",
        Scope.EC2: "CreateRoute ReplaceRoute DeleteRoute",
    },
    "aws:ec2/routeTableAssociation:RouteTableAssociation": {
        Scope.REGION: "ec2:DescribeRouteTables",
        Scope.EC2: "AssociateRouteTable ReplaceRouteTableAssociation DisassociateRouteTable",
    },
    "aws:ec2/vpcEndpoint:VpcEndpoint": {
        Scope.REGION: "ec2:DescribeVpcEndpoints ec2:DescribePrefixLists ec2:DescribeManagedPrefixLists",
        Scope.EC2: "CreateVpcEndpoint ModifyVpcEndpoint",
        Scope.EC2_OWN: "DeleteVpcEndpoints",
    },
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": {
        Scope.REGION: "ec2:DescribeSecurityGroups ec2:DescribeSecurityGroupRules",
        Scope.EC2: "RevokeSecurityGroupIngress RevokeSecurityGroupEgress",
        Scope.EC2_DEFAULT_GROUP: "CreateTags",
    },
}
"""Of a VPC that the stack makes."""

EC2: Mapping[str, Actions] = {
    "aws:ec2/securityGroup:SecurityGroup": {
        Scope.REGION: "ec2:DescribeSecurityGroups ec2:DescribeSecurityGroupRules ec2:DescribeNetworkInterfaces",
        Scope.EC2: "CreateSecurityGroup RevokeSecurityGroupEgress RevokeSecurityGroupIngress",
        Scope.EC2_OWN: "DeleteSecurityGroup",
    },
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": {
        Scope.REGION: "ec2:DescribeSecurityGroupRules",
        Scope.EC2: "AuthorizeSecurityGroupIngress ModifySecurityGroupRules RevokeSecurityGroupIngress",
    },
    "aws:ec2/launchTemplate:LaunchTemplate": {
        Scope.REGION: "ec2:DescribeLaunchTemplates ec2:DescribeLaunchTemplateVersions",
        Scope.EC2: "CreateLaunchTemplate CreateLaunchTemplateVersion ModifyLaunchTemplate",
        Scope.EC2_OWN: "DeleteLaunchTemplate",
    },
    "aws:ec2/placementGroup:PlacementGroup": {
        Scope.REGION: "ec2:DescribePlacementGroups",
        Scope.PLACEMENT: "CreatePlacementGroup DeletePlacementGroup",
    },
    "aws:ec2/flowLog:FlowLog": {
        Scope.REGION: "ec2:DescribeFlowLogs",
        Scope.EC2: "CreateFlowLogs",
        Scope.EC2_OWN: "DeleteFlowLogs",
        Scope.PASSED: "PassRole",
    },
}

EKS: Mapping[str, Actions] = {
    "aws:eks/cluster:Cluster": {
        Scope.REGION: "eks:CreateCluster",  # it has no resource type
        Scope.CLUSTER: "DescribeCluster DeleteCluster UpdateClusterConfig UpdateClusterVersion DescribeUpdate "
        "AssociateEncryptionConfig TagResource UntagResource",
        Scope.PASSED: "PassRole",
        Scope.SERVICE_ROLES: "CreateServiceLinkedRole",
        Scope.KEY: "CreateGrant DescribeKey",
    },
    "aws:eks/nodeGroup:NodeGroup": {
        Scope.CLUSTER: "CreateNodegroup DescribeNodegroup DeleteNodegroup UpdateNodegroupConfig UpdateNodegroupVersion "
        "DescribeUpdate TagResource UntagResource",
        Scope.PASSED: "PassRole",
        Scope.ROLES: "GetRole ListAttachedRolePolicies",
        Scope.SERVICE_ROLES: "CreateServiceLinkedRole",
        Scope.REGION: "ec2:DescribeSubnets ec2:RunInstances",
    },
    "aws:eks/addon:Addon": {
        Scope.CLUSTER: "CreateAddon DescribeAddon UpdateAddon DeleteAddon DescribeUpdate TagResource UntagResource",
        Scope.REGION: "eks:DescribeAddonVersions",
    },
    "aws:eks/accessEntry:AccessEntry": {
        Scope.CLUSTER: "CreateAccessEntry DescribeAccessEntry UpdateAccessEntry DeleteAccessEntry TagResource "
        "UntagResource",
    },
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": {
        Scope.CLUSTER: "AssociateAccessPolicy DisassociateAccessPolicy ListAssociatedAccessPolicies",
    },
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": {
        Scope.CLUSTER: "CreatePodIdentityAssociation DescribePodIdentityAssociation UpdatePodIdentityAssociation "
        "DeletePodIdentityAssociation ListPodIdentityAssociations TagResource UntagResource",
        Scope.PASSED: "PassRole",
        Scope.ROLES: "GetRole",
    },
}

IAM: Mapping[str, Actions] = {
    "aws:iam/role:Role": {
        Scope.NEW_ROLES: "CreateRole PutRolePermissionsBoundary",
        Scope.ROLES: "GetRole UpdateRole UpdateRoleDescription UpdateAssumeRolePolicy TagRole UntagRole DeleteRole "
        "ListRolePolicies ListAttachedRolePolicies ListInstanceProfilesForRole ListRoleTags",
    },
    "aws:iam/rolePolicy:RolePolicy": {Scope.ROLES: "PutRolePolicy GetRolePolicy DeleteRolePolicy"},
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": {
        Scope.ATTACHED: "AttachRolePolicy",
        Scope.ROLES: "DetachRolePolicy ListAttachedRolePolicies",
    },
}

DATA: Mapping[str, Actions] = {
    "aws:efs/fileSystem:FileSystem": {
        Scope.REGION: "elasticfilesystem:CreateFileSystem",
        Scope.FILES: "DescribeFileSystems DescribeLifecycleConfiguration UpdateFileSystem DeleteFileSystem TagResource "
        "UntagResource ListTagsForResource",
        Scope.KEY: "CreateGrant DescribeKey GenerateDataKeyWithoutPlaintext",
        Scope.SERVICE_ROLES: "CreateServiceLinkedRole",
    },
    "aws:efs/accessPoint:AccessPoint": {
        Scope.FILES: "CreateAccessPoint DescribeAccessPoints DeleteAccessPoint TagResource UntagResource",
    },
    "aws:efs/mountTarget:MountTarget": {
        Scope.FILES: "CreateMountTarget DescribeMountTargets DescribeMountTargetSecurityGroups "
        "ModifyMountTargetSecurityGroups DeleteMountTarget",
        Scope.REGION: "ec2:DescribeSubnets ec2:DescribeNetworkInterfaces",
        Scope.EC2: "CreateNetworkInterface DeleteNetworkInterface ModifyNetworkInterfaceAttribute",
    },
    "aws:efs/backupPolicy:BackupPolicy": {Scope.FILES: "PutBackupPolicy DescribeBackupPolicy"},
    "aws:efs/fileSystemPolicy:FileSystemPolicy": {
        Scope.FILES: "PutFileSystemPolicy DescribeFileSystemPolicy DeleteFileSystemPolicy",
    },
    "aws:s3/bucket:Bucket": {
        Scope.BUCKET: "CreateBucket DeleteBucket ListBucket ListBucketVersions GetBucketLocation GetBucketTagging "
        "PutBucketTagging GetBucketPolicy GetBucketAcl GetBucketCORS GetBucketWebsite GetBucketVersioning "
        "GetAccelerateConfiguration GetBucketRequestPayment GetBucketLogging GetLifecycleConfiguration "
        "GetReplicationConfiguration GetEncryptionConfiguration GetBucketObjectLockConfiguration",
        Scope.OBJECTS: "DeleteObject DeleteObjectVersion",
    },
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": {
        Scope.BUCKET: "GetBucketPublicAccessBlock PutBucketPublicAccessBlock",
    },
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": {
        Scope.BUCKET: "GetBucketOwnershipControls PutBucketOwnershipControls",
    },
    "aws:s3/bucketVersioning:BucketVersioning": {Scope.BUCKET: "GetBucketVersioning PutBucketVersioning"},
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": {
        Scope.BUCKET: "GetEncryptionConfiguration PutEncryptionConfiguration",
    },
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": {
        Scope.BUCKET: "GetLifecycleConfiguration PutLifecycleConfiguration",
    },
    "aws:s3/bucketPolicy:BucketPolicy": {Scope.BUCKET: "GetBucketPolicy PutBucketPolicy DeleteBucketPolicy"},
    "aws:s3/bucketObjectv2:BucketObjectv2": {
        Scope.OBJECTS: "PutObject GetObject GetObjectTagging PutObjectTagging DeleteObject DeleteObjectVersion",
        Scope.BUCKET: "ListBucket ListBucketVersions",
        Scope.KEY: "GenerateDataKey Decrypt",
    },
    "aws:kms/key:Key": {
        Scope.REGION: "kms:CreateKey",
        Scope.KEY: "DescribeKey GetKeyPolicy PutKeyPolicy GetKeyRotationStatus EnableKeyRotation DisableKeyRotation "
        "ListResourceTags TagResource UntagResource UpdateKeyDescription EnableKey DisableKey ScheduleKeyDeletion",
    },
    "aws:kms/alias:Alias": {
        Scope.REGION: "kms:ListAliases",
        Scope.KEY: "CreateAlias UpdateAlias DeleteAlias",
        Scope.ALIAS: "CreateAlias UpdateAlias DeleteAlias",
    },
    "aws:kms/grant:Grant": {Scope.DISK_KEY: "CreateGrant ListGrants RevokeGrant DescribeKey"},
    "aws:cloudwatch/logGroup:LogGroup": {
        Scope.REGION: "logs:DescribeLogGroups",
        Scope.LOGS: "CreateLogGroup DeleteLogGroup PutRetentionPolicy DeleteRetentionPolicy AssociateKmsKey "
        "DisassociateKmsKey ListTagsForResource TagResource UntagResource",
    },
}

OPTIONAL: Mapping[str, Actions] = {
    "aws:sqs/queue:Queue": {
        Scope.QUEUE: "CreateQueue DeleteQueue GetQueueUrl GetQueueAttributes SetQueueAttributes ListQueueTags TagQueue "
        "UntagQueue",
    },
    "aws:sqs/queuePolicy:QueuePolicy": {Scope.QUEUE: "GetQueueAttributes SetQueueAttributes"},
    "aws:cloudwatch/eventRule:EventRule": {
        Scope.RULES: "PutRule DescribeRule DeleteRule ListTagsForResource TagResource UntagResource",
    },
    "aws:cloudwatch/eventTarget:EventTarget": {Scope.RULES: "PutTargets RemoveTargets ListTargetsByRule"},
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": {
        Scope.REGION: "ecr:CreatePullThroughCacheRule ecr:DescribePullThroughCacheRules "
        "ecr:DeletePullThroughCacheRule ecr:UpdatePullThroughCacheRule",
    },
    "aws:amp/workspace:Workspace": {
        Scope.REGION: "aps:CreateWorkspace",
        Scope.METRICS: "DescribeWorkspace UpdateWorkspaceAlias DeleteWorkspace ListTagsForResource TagResource "
        "UntagResource DescribeWorkspaceConfiguration DescribeLoggingConfiguration",
    },
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": {
        Scope.METRICS: "CreateRuleGroupsNamespace DescribeRuleGroupsNamespace PutRuleGroupsNamespace "
        "DeleteRuleGroupsNamespace",
    },
    "aws:amp/scraper:Scraper": {
        Scope.REGION: "aps:CreateScraper",
        Scope.METRICS: "DescribeScraper UpdateScraper DeleteScraper",
        Scope.CLUSTER: "DescribeCluster CreateAccessEntry AssociateAccessPolicy DeleteAccessEntry",
        Scope.SERVICE_ROLES: "CreateServiceLinkedRole",
    },
}

TYPES: Mapping[str, Actions] = {**NETWORK, **EC2, **EKS, **IAM, **DATA, **OPTIONAL}
"""By the type of the resource."""

OF_OWN_FILES = (
    *(f"aws:efs/{kind}" for kind in ("fileSystem:FileSystem", "mountTarget:MountTarget", "backupPolicy:BackupPolicy")),
    *("aws:efs/fileSystemPolicy:FileSystemPolicy", "aws:ec2/securityGroup:SecurityGroup"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
)
"""The types of a file system that the stack makes, with its mount targets."""

"""AWS's APIs on one endpoint: moto behind a gateway that checks signatures and policies, and adds what moto lacks.

gateway      the WSGI application; read it first
access       checks a request's signature and the policies
principals   finds the owner of credentials; the reader of moto's IAM and STS
policy       evaluates policy documents
requests/    finds the one operation that a request is for
replies      refusals in the form of each AWS protocol; pages: pages of lists
eks/         the EKS API; ec2: the EC2 operations that it needs; webhooks: the HTTPS server that API servers call
compute/     launches, capacity, fleets, prices and lists of EC2; eks_images: the images of nodes, in EC2 and SSM
events/      what EC2 and AWS Health tell EventBridge, and Spot interruptions; commands: localcloud's own commands
moto_rules, ecr_rules, s3_rules, files/   rules of AWS that moto lacks
"""

"""Find the one operation that a request is for, and write the request for moto from that operation.

received    the request as it arrived
sigv4       checks the signature
payload     compares the body with the signed hash, and decodes it
operations  finds the operation by botocore's models; rest: the same for REST protocols
questions   the operation in IAM's terms: action, resource and condition keys; ec2_queries: the same for EC2's launches
resources   the tags and launch templates that conditions ask for
outgoing    the request for moto, written from the operation
errors      Refused, the exception for a request that may not pass
"""

"""What API servers ask of EKS by webhook.

token        authentication: checks a token of `aws eks get-token` and returns the user
pod_webhook  admission: adds the variables and the token of its pod identity to a pod
"""

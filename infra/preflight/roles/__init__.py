"""Whether the IAM roles can be as the settings say.

given     whether those in `roleArns` can be used; pure, but for what asks
boundary  whether the policy that limits them allows what they do; pure, but for what asks
path      whether those of a stack that exists stay in their path; pure
"""

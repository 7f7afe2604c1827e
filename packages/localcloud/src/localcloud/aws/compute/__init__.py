"""What EC2 does about launches, capacity, fleets, prices and lists, and moto doesn't.

launch_rules   what an instance has from its first moment, and which launches are refused
capacity       which instance types have none, where, and what EC2 says then; pure
fleets         how a fleet chooses among its overrides, and the errors in its answer; shortages: refuses a launch
repetition     a launch that is repeated with its ClientToken launches nothing
quotas         how many vCPUs may run, and the launches that are refused for it. quota_service: the Service Quotas API
prices         what an instance type costs; pure. pricing: the Pricing API
listings       pages of long lists, the filters of DescribeInstanceStatus, and lists that moto lacks
"""

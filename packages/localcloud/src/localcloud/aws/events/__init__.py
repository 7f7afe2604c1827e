"""What EC2 and AWS Health tell EventBridge about instances, and what Spot interruptions do to them.

messages        the events, in the form that AWS documents; pure
bus             sends an event through moto's EventBridge: rules, patterns, targets, queue policies
states          sends an event whenever an instance changes its state, for any reason
interruptions   gives Spot notices and ends the instances
"""

"""How many workers each job may have if teams have quotas and lend to each other what they leave. Pure arithmetic.

claims    what a job asks for and has
targets   how many workers each job may have in the end
shares    how many it may have now, while others still give theirs back, with sentences for people
"""

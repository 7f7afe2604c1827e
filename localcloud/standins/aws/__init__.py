"""The stand-in for pulumi-aws: `python -m localcloud.standins.aws ENGINE_ADDRESS`, started by the Pulumi engine.

`resources/` holds one declarative entry per resource type, `provider.py` what all types have in common, `schema.json`
the names that the SDK allows.
"""

"""The stand-in for pulumi-aws: `python -m localcloud.standins.aws ENGINE_ADDRESS`, started by the Pulumi engine.

resources/     one declarative entry (`entry.py`) per resource type, a module per service; `registry.py` lists them
functions.py   the functions (invokes)
provider.py    what all types have in common; `equality.py` decides whether two inputs are equivalent
schema.json    the SDK's names and types of what is covered; `schema_from_sdk.py` writes it, `schema.py` checks inputs
clients.py     the provider's configuration, and boto3 clients made from it
"""

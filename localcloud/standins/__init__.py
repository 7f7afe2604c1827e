"""Pulumi plug-ins that stand in for the official ones: a language host and the `aws`, `eks` and `kubernetes` providers.

The engine starts them as `pulumi-language-python` and `pulumi-resource-*` from PATH; `bin/` holds these scripts.
"""

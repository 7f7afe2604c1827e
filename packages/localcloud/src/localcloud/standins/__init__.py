"""Pulumi plug-ins that stand in for the official ones: a language host and the `aws`, `eks` and `kubernetes` providers.

bin/                  the executables that the engine starts; `scripts/toolchain/plugins.py` installs them
aws/                  resources and functions, through boto3
eks/                  components only; their children are resources of aws
kubernetes/           objects of any API server
language_host.py      runs Python programs, each in a process (`run_program.py`)
serve.py, values.py   what the providers share: the gRPC server, and property values
components.py         what the providers with components share, with monitor.py, the engine's resource monitor, called
                      directly, and algebra.py, values that may be unknown or secret
"""

"""What is raised for an application that can't run as it is, or for a question about one that can't be answered.

ValueError
└── Refused          nothing has been made; the message names the option, the role or the mount, and the remedy
    └── Unreadable   the job exists and its fields can't be read; it can be cancelled and deleted

`ValueError` is what TorchX's own schedulers raise. An option that doesn't exist, or has the wrong type, is TorchX's
`InvalidRunConfigException`, as everywhere in TorchX. What the API server answers is an error of `tidewater.cli.errors`.
"""

from __future__ import annotations


class Refused(ValueError):
    """The application, an option or a question is wrong. Nothing has been made."""


class Unreadable(Refused):
    """The job exists, and its fields can't be read."""

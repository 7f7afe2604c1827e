"""Where the controller's zip finds its packages: the zip itself and the manifests that start it agree on this."""

from __future__ import annotations

REQUIREMENTS = "tidewater/controller/requirements.txt"
"""Locked packages that the controller needs, with their hashes; a file of the program."""

PACKAGES_DIRECTORY = "/packages"
"""Where the init container puts the packages that the image lacks."""

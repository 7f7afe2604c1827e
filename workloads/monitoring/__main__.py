"""Print the alert rules or the dashboard, for a Prometheus and a Grafana that you have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import yaml

from workloads.monitoring import alerts, dashboard
from workloads.monitoring.scrape import Parts


def main(arguments: Sequence[str]) -> None:
    """Print one of the two on standard output."""
    parser = argparse.ArgumentParser(prog="python -m workloads.monitoring", description=__doc__)
    parser.add_argument("what", choices=("alerts", "dashboard"))
    parser.add_argument("--gpus", action="store_true", help="with what DCGM exporter measures")
    parser.add_argument("--karpenter", action="store_true", help="with what Karpenter measures")
    given = parser.parse_args(arguments)
    parts = Parts(gpus=given.gpus, karpenter=given.karpenter)
    if given.what == "alerts":
        print(yaml.safe_dump(alerts.rules(parts), sort_keys=False, allow_unicode=True, width=120), end="")
    else:
        print(dashboard.to_json(dashboard.dashboard(parts)), end="")


if __name__ == "__main__":
    main(sys.argv[1:])

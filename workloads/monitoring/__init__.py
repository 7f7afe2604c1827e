"""Prometheus for the training: what it reads, what it warns of, and the Grafana dashboard.

    python -m workloads.monitoring dashboard > dashboard.json      # to import into a Grafana of yours
    python -m workloads.monitoring alerts > alerts.yaml            # rules for a Prometheus of yours

scrape       which pods' and nodes' metrics are read, and the labels that they get
alerts       the alert rules
dashboard    the Grafana dashboard, generated
server       Prometheus on the cluster: its manifests
component    the Pulumi component, and DCGM exporter, which measures the GPUs
__main__     prints rules and dashboard
"""

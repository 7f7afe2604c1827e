"""What a person or Prometheus sees of the controller.

log       one logfmt line per event
events    Kubernetes events about jobs, few and late
metrics   metrics for Prometheus
probes    the HTTP endpoints
"""

"""The alert rules: what a person should look at, and what to do then.

    rules(Parts(gpus=True))        # the `groups` of a Prometheus rule file

Every rule has tests that Prometheus' own promtool runs: one in which it fires, and one in which it must not.
docs/monitoring.md lists the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workloads.monitoring import scrape

PAGE = "critical"
LOOK = "warning"
"""The values of the label `severity`: training stands still or computes nonsense; or it may soon."""

JOB = "namespace, elasticjob"


@dataclass(frozen=True)
class Alert:
    """One rule.

    Attributes:
        minutes: how long the expression must hold without a break.
        action: what to do; the names of labels in `{{ $labels.NAME }}` are replaced by Prometheus.
    """

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    action: str


TRAINING = (
    Alert(
        "TrainingStalled",
        f"sum by ({JOB}) (rate(tidewater_useful_seconds_total[5m])) == 0",
        10,
        PAGE,
        "Job {{ $labels.elasticjob }} has workers and has committed no step for 15 minutes.",
        "`kubectl describe ej` and the event `silent` in the log name the worker that the others wait for. Without a "
        "name they wait for etcd or for workers to come, or a step takes longer than that.",
    ),
    Alert(
        "TrainingGoodputLow",
        # Time by time: `rate` alone divides by the whole interval, also for a worker that came in the middle of it.
        f"sum by ({JOB}) (rate(tidewater_useful_seconds_total[15m]))"
        f" / sum by ({JOB}) (rate(tidewater_training_seconds_total[15m])) < 0.8",
        15,
        LOOK,
        "Job {{ $labels.elasticjob }} uses {{ $value | humanizePercentage }} of its time for steps that count.",
        "See the causes of its recoveries: Spot interruptions, failing nodes, or workers that come and go too often.",
    ),
    Alert(
        "TrainingKeepsLosingWorkers",
        f'max by ({JOB}) (increase(tidewater_recovery_seconds_count{{cause="lost"}}[1h])) > 5',
        0,
        LOOK,
        "Job {{ $labels.elasticjob }} has lost workers more than 5 times within an hour.",
        "`kubectl describe ej` says which pods failed and why. For Spot nodes, allow more instance types.",
    ),
    Alert(
        "TrainingLossNotFinite",
        # Only NaN differs from itself.
        f"max by ({JOB}) ((tidewater_loss != bool tidewater_loss) or (abs(tidewater_loss) == bool Inf)) > 0",
        0,
        PAGE,
        "The loss of job {{ $labels.elasticjob }} is no number any more.",
        "Further steps are wasted. Start again from a checkpoint before it, with a lower learning rate for example.",
    ),
    Alert(
        "TrainingStateDrifted",
        f"sum by ({JOB}) (increase(tidewater_drifts_total[15m])) > 0",
        0,
        PAGE,
        "Workers of job {{ $labels.elasticjob }} had different states.",
        "The trainer has copied the state of one of them to all. Its log names it: look for a defective GPU or node.",
    ),
    Alert(
        "TrainingCheckpointsFail",
        f"sum by ({JOB}) (increase(tidewater_checkpoint_failures_total[1h])) > 0",
        0,
        LOOK,
        "Job {{ $labels.elasticjob }} could not write a checkpoint.",
        "Training goes on, and its last checkpoint gets older. The worker's log has the error, as a full volume.",
    ),
    Alert(
        "TrainingWorkerSilent",
        f'up{{job="{scrape.WORKERS}"}} == 0',
        5,
        LOOK,
        "Worker {{ $labels.pod }} of job {{ $labels.elasticjob }} answers no requests for its metrics.",
        "It hangs, its node is lost, or a network policy keeps Prometheus out.",
    ),
    Alert(
        "TrainingStraggler",
        f"max by ({JOB}, pod, node) (tidewater_straggler_seconds) > 0",
        15,
        LOOK,
        "The others wait for worker {{ $labels.pod }} of job {{ $labels.elasticjob }} in every step.",
        "Compare its GPU's temperature and clock, and its node's disk and network, with the others'. Cordon the node "
        "and delete the pod, and the worker gets another node.",
    ),
    Alert(
        "TrainingProcessLeftOut",
        f"max by ({JOB}, pod, gpu) (tidewater_process_left_out) > 0",
        0,
        LOOK,
        "Worker {{ $labels.pod }} of job {{ $labels.elasticjob }} trains without its GPU {{ $labels.gpu }}.",
        "Its log names the GPU and the error. Cordon the node and delete the pod, and the worker gets another node.",
    ),
)

CONTROL = (
    Alert(
        "ElasticJobWaits",
        'max by (state) (elasticjob_jobs{state=~"Created|Restarting"}) > 0',
        15,
        LOOK,
        "{{ $value }} jobs have been {{ $labels.state }} for 15 minutes: their workers don't come.",
        "`kubectl describe ej -A` says what they wait for: capacity, quota, an image.",
    ),
    Alert(
        "ElasticJobFailed",
        'max by (state) (elasticjob_jobs{state="Failed"}) > 0',
        0,
        LOOK,
        "{{ $value }} jobs have failed.",
        "`kubectl get ej -A` shows which, `kubectl describe ej` why. The alert ends when they are deleted.",
    ),
    Alert(
        "ElasticJobControllerGone",
        "absent(elasticjob_leader == 1)",
        5,
        PAGE,
        "No replica of the ElasticJob controller leads.",
        "Training goes on, and lost workers are not replaced. Look at the pods in tidewater-system.",
    ),
    Alert(
        "ElasticJobReconcilesFail",
        'sum(rate(elasticjob_reconciles_total{result="failed"}[5m])) > 0',
        10,
        LOOK,
        "The ElasticJob controller has failed to act for 10 minutes.",
        "Its log has the errors: rights that it lacks, or an API server that refuses.",
    ),
    Alert(
        "EtcdHasNoLeader",
        f'min by (namespace) (etcd_server_has_leader) == 0 or absent(up{{job="{scrape.ETCD}"}} == 1)',
        2,
        PAGE,
        "etcd, in which the workers find each other, has no leader or doesn't answer.",
        "Steps go on, and no worker can join, leave or be replaced. Look at the pods of the StatefulSet etcd.",
    ),
)

NODES = (
    Alert(
        "NodeSilent",
        f'up{{job="{scrape.NODES}"}} == 0',
        5,
        LOOK,
        "The kubelet of node {{ $labels.node }} answers no requests for its metrics.",
        "The node is lost or overloaded. Node repair replaces it if its Ready condition is not True.",
    ),
)

KARPENTER = (
    Alert(
        "NodesDoNotStart",
        "sum by (error) (increase(karpenter_cloudprovider_errors_total"
        '{method="Create",error!="NodeClaimNotFoundError"}[10m])) > 0',
        10,
        LOOK,
        "Karpenter can't start nodes: {{ $labels.error }}.",
        "InsufficientCapacityError: EC2 has none of these types; name more in surgeInstanceTypes. Else see its log.",
    ),
)

GPUS = (
    Alert(
        "GpuFault",
        "DCGM_FI_DEV_XID_ERRORS > 0",
        0,
        LOOK,
        "GPU {{ $labels.gpu }} of node {{ $labels.node }} has reported the Xid {{ $value }}.",
        "https://docs.nvidia.com/deploy/xid-errors/ says what the number means. Replace a node with a defective GPU.",
    ),
    Alert(
        "GpuHot",
        "DCGM_FI_DEV_GPU_TEMP > 90",
        10,
        LOOK,
        "GPU {{ $labels.gpu }} of node {{ $labels.node }} has {{ $value }} °C, and computes slower.",
        "All workers wait for the slowest. Replace the node.",
    ),
    Alert(
        "GpuIdle",
        "avg by (node) (DCGM_FI_DEV_GPU_UTIL) < 5",
        30,
        LOOK,
        "The GPUs of node {{ $labels.node }} have done nothing for half an hour.",
        "They cost money. The job waits, has ended, or loads its data too slowly.",
    ),
)


def chosen(parts: scrape.Parts) -> dict[str, tuple[Alert, ...]]:
    """Return the rules by group: only those with something to measure."""
    groups = {"training": TRAINING, "control": CONTROL, "nodes": NODES}
    if parts.karpenter:
        groups["karpenter"] = KARPENTER
    if parts.gpus:
        groups["gpus"] = GPUS
    return groups


def rules(parts: scrape.Parts) -> dict[str, Any]:
    """Return the content of a rule file. https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/"""
    return {
        "groups": [
            {"name": f"tidewater-{name}", "rules": [_rule(each) for each in found]}
            for name, found in chosen(parts).items()
        ]
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.action},
    }

"""The status of an ElasticJob: the part of the model that the controller writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from tidewater.elasticjob import indexes
from tidewater.elasticjob.about import About
from tidewater.elasticjob.choices import State

MOST_TYPES = 8
"""Replica types of a job."""


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """Numbers of one type's pods, by state."""

    active: Annotated[int, About("Pods that run and are not being deleted.")] = 0
    pending: Annotated[int, About("Pods that have not started, for example because no node has room.")] = 0
    succeeded: Annotated[int, About("Pods that exited with 0; some of them may be gone.")] = 0
    failed: Annotated[
        int, About("Pods that failed: for good, or to be replaced. Those that failed for good may be gone.")
    ] = 0
    completed_indexes: Annotated[
        str,
        About(
            "Indexes of the pods that exited with 0, as 0-2,5. Their pods are not made again if they are deleted,"
            " unless a template changes or the job is suspended and resumed.",
            pattern=indexes.PATTERN,
        ),
    ] = ""
    failed_indexes: Annotated[
        str,
        About(
            "Indexes of the pods that failed for good, as 0-2,5. Their pods are not made again if they are deleted,"
            " unless a template changes or the job is suspended and resumed.",
            pattern=indexes.PATTERN,
        ),
    ] = ""
    template_hash: Annotated[
        str,
        About("Hash of the template of the pods with these indexes. If it changes, the indexes are forgotten."),
    ] = ""
    yielded_at: Annotated[
        int | None,
        About(
            "Number of pods that were left when one last gave way to a pod of the minimum that a quota refuses; absent"
            " when the minimum is complete."
        ),
    ] = None
    next_index: Annotated[
        int | None,
        About("With podNames Successive: the lowest number that no pod of this type has had or is about to get."),
    ] = None
    replaced_indexes: Annotated[
        str,
        About(
            "With podNames Successive: numbers of the pods that were replaced and stay for their logs, as 0-2,5.",
            pattern=indexes.PATTERN,
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One thing that is true or false of the job, since when and why."""

    type: Annotated[
        str,
        About(
            "Created, Running, Restarting, Suspended, Succeeded, Failed or DeviceFailing; for tools that know no"
            " ElasticJob: Ready, Reconciling or Stalled.",
            min_length=1,
            max_length=316,
        ),
    ]
    status: Annotated[str, About("True, False or Unknown.", pattern="^(True|False|Unknown)$", max_length=7)]
    reason: Annotated[str, About("Why, in one word for programs.", max_length=1024)] = ""
    message: Annotated[str, About("Why, in a sentence for people.", max_length=32768)] = ""
    observed_generation: Annotated[int, About("The job's metadata.generation that the condition is about.")] = 0
    last_update_time: Annotated[datetime | None, About("When anything of the condition last changed.")] = None
    last_transition_time: Annotated[datetime | None, About("When the condition last became true or false.")] = None


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """What the job has seen of one node's devices, such as GPUs."""

    device_failures: Annotated[
        int, About("Workers of the job that ended there by an error of a device (exit code 200).")
    ] = 0
    uid: Annotated[str, About("The node's uid. Another node of the same name begins anew.")] = ""
    tainted: Annotated[
        bool, About("Whether the node had the taint tidewater.dev/device-failing after the last of them.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Status:
    """What the controller has seen and done. It alone writes it."""

    state: Annotated[State | None, About("Where the job is in its life, in one word.")] = None
    waiting: Annotated[
        str,
        About("Why pods that the job aims for don't run, in one word; empty if they do, or only have to start."),
    ] = ""
    conditions: Annotated[
        tuple[Condition, ...], About("What is true of the job, by type.", most=16, list_type="map", list_key="type")
    ] = ()
    replica_statuses: Annotated[
        Mapping[str, ReplicaStatus], About("Numbers of pods by type and state.", most=MOST_TYPES)
    ] = field(default_factory=dict)
    replicas: Annotated[int, About("Workers that exist and are not ending, as the scale subresource shows.")] = 0
    selector: Annotated[str, About("Label selector of the workers, for autoscalers.")] = ""
    desired: Annotated[int, About("Number of workers that the controller aims for now.")] = 0
    settled_replicas: Annotated[
        int | None,
        About(
            "The wanted number of workers that was last reached: that many were ready, or had exited with 0. Or the one"
            " with which the job finished; 0 while suspended."
        ),
    ] = None
    restarts: Annotated[int, About("Failures that count against backoffLimit.")] = 0
    counted: Annotated[
        Mapping[str, int], About("Of pods that still exist, by uid: how many of their failures are in restarts.")
    ] = field(default_factory=dict)
    out_of_memory: Annotated[
        Mapping[str, int],
        About(
            "By pod: how many times in a row it used more memory than its limit, each within ten minutes. With podNames"
            " Successive it counts for the pods that it replaced, too."
        ),
    ] = field(default_factory=dict)
    signals: Annotated[
        Mapping[str, int],
        About(
            "By pod: how many times in a row it exited with 137 or 143 without a disruption, each within ten minutes."
            " With podNames Successive it counts for the pods that it replaced, too."
        ),
    ] = field(default_factory=dict)
    nodes: Annotated[
        Mapping[str, NodeStatus], About("By name: the nodes on which devices have failed, as long as they exist.")
    ] = field(default_factory=dict)
    job_restarts: Annotated[
        int | None,
        About(
            "With restartScope Job: how many times all pods were deleted to be made anew, or because the job was"
            " suspended or waited in its queue."
        ),
    ] = None
    restart_time: Annotated[
        datetime | None, About("With restartScope Job: not before this time are the pods made anew.")
    ] = None
    observed_generation: Annotated[int, About("The metadata.generation that this status is about.")] = 0
    start_time: Annotated[
        datetime | None, About("Since when the job is active: has been neither suspended nor queued.")
    ] = None
    completion_time: Annotated[datetime | None, About("When the job succeeded or failed.")] = None
    last_reconcile_time: Annotated[datetime | None, About("When this status was last changed.")] = None
    last_failure_time: Annotated[
        datetime | None, About("When the last failure was counted; the back-off starts then.")
    ] = None
    last_failure: Annotated[
        str, About("Which pod failed last, how, and what it printed at the end. It stays when the pod is gone.")
    ] = ""
    snoozed_until: Annotated[datetime | None, About("With autoscale: not to grow before this time.")] = None
    whole_since: Annotated[
        datetime | None, About("Since when a job of a queue has had room for all of its minimum.")
    ] = None
    queued_since: Annotated[
        datetime | None,
        About(
            "Since when the job waits in the queue; if it missed a turn, since the end of the last. With wholeSince:"
            " the job went ahead of its turn, and may have to give its pods back."
        ),
    ] = None
    turn_since: Annotated[
        datetime | None, About("Since when it is the job's turn in the queue, while its minimum has no room.")
    ] = None
    turns_missed: Annotated[
        int, About("Turns in the queue in which the job found no room for its minimum, since it last had it.")
    ] = 0

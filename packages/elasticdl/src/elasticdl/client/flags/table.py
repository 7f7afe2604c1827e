"""Every flag of `elasticdl train`, `evaluate` and `predict`: how its text is read, and which commands have it.

    for flag in of(JobMode.TRAIN): ...

The names are ElasticDL's. A flag of a process is a field of `elasticdl.job.JobArgs`, from which it has its default; the
others belong to the deployment. The table in packages/elasticdl/docs/elasticdl.md is made from this one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elasticdl.client.flags import values
from elasticdl.client.flags.request import PullPolicy, Restart, Ship
from elasticdl.job import JobArgs, JobMode, Strategy

_ALL = frozenset(JobMode)
_TRAIN = frozenset({JobMode.TRAIN})
_PREDICT = frozenset({JobMode.PREDICT})
_WITH_METRICS = frozenset({JobMode.TRAIN, JobMode.EVALUATE})

MODEL, DATA, STRATEGY = "The model", "The data", "How it is trained"
CHECKPOINTS, FAULTS, LOGS = "Checkpoints and output", "When something fails", "Logs and evaluation"
PODS, JOB = "The pods", "The job and its cluster"
PANELS = (MODEL, DATA, STRATEGY, CHECKPOINTS, FAULTS, LOGS, PODS, JOB)

BOOLEAN = "BOOL"
"""The form of a flag that is true or false."""

RESOURCES = {"master": "cpu=0.1,memory=1024Mi", "ps": "cpu=1,memory=4096Mi", "worker": "cpu=1,memory=4096Mi"}
"""What the pods request by default: as in ElasticDL."""


class Level(StrEnum):
    """Levels of Python's logging."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True)
class Flag:
    """One flag."""

    name: str
    """Without dashes."""
    panel: str
    help: str
    read: Callable[[str], Any] = values.text
    """From the text to the value; raises WrongValue."""
    form: str = "TEXT"
    """What kind of text, for the help."""
    default: str = ""
    """As a text, for the help; empty: nothing."""
    modes: frozenset[JobMode] = _ALL
    """The commands that have it."""

    @property
    def is_boolean(self) -> bool:
        """Return whether the flag may stand without a value."""
        return self.form == BOOLEAN


def of(mode: JobMode) -> Sequence[Flag]:
    """Return the flags of a command, in the order of its help."""
    found = [flag for flag in (*PROCESS, *DEPLOYMENT) if mode in flag.modes]
    return sorted(found, key=lambda flag: PANELS.index(flag.panel))


def known() -> Mapping[str, Flag]:
    """Return the flags of all commands by their names."""
    return {flag.name: flag for flag in (*PROCESS, *DEPLOYMENT)}


def _process(
    name: str, panel: str, help: str, read: Callable[[str], Any] = values.text, modes: frozenset[JobMode] = _ALL
) -> Flag:
    """Return a flag of the processes, which is a field of JobArgs."""
    default = next(each.default for each in dataclasses.fields(JobArgs) if each.name == name)
    shown = "" if default in (None, dataclasses.MISSING) else f"{default:g}" if type(default) is float else str(default)
    return Flag(name, panel, help, read, _form(read), shown.lower() if isinstance(default, bool) else shown, modes)


def _form(read: Callable[[str], Any]) -> str:
    if read is values.boolean:
        return BOOLEAN
    return "TEXT" if read in (values.text, values.path, values.parameters) else "NUMBER"


def _choice(flag: Flag, kind: type[StrEnum]) -> Flag:
    return dataclasses.replace(flag, read=values.choice(kind), form="|".join(kind))


def _pods(kind: str, what: str) -> tuple[Flag, ...]:
    """Return the flags of the resources of one kind of pods."""
    asked = f"What {what} requests, as cpu=2,memory=2048Mi,disk=1Gi,gpu=1."
    limit = f"What {what} may use. Default: what it requests."
    form = "RESOURCES"
    return (
        Flag(f"{kind}_resource_request", PODS, asked, values.resources, form, RESOURCES[kind]),
        Flag(f"{kind}_resource_limit", PODS, limit, values.resources, form),
    )


_count, _at_least_one = values.whole(0), values.whole(1)

PROCESS: Sequence[Flag] = (
    _process(
        "model_zoo",
        MODEL,
        "Folder of the models. Without --image_name one on this machine, else in the image.",
        values.path,
    ),
    _process("model_def", MODEL, "The model's class or function in the zoo: mnist.mnist_functional_api.custom_model."),
    _process("model_params", MODEL, "Arguments of the model: hidden=64; activation='relu'.", values.parameters),
    _process("loss", MODEL, "Name of the model's function of the loss.", modes=_TRAIN),
    _process("optimizer", MODEL, "Name of its function of the optimizer.", modes=_TRAIN),
    _process("feed", MODEL, "Name of its function from records to tensors."),
    _process("eval_metrics_fn", MODEL, "Name of its function of the metrics.", modes=_WITH_METRICS),
    _process("callbacks", MODEL, "Name of its function of callbacks, if it has one.", modes=_TRAIN),
    _process("custom_data_reader", MODEL, "Name of its own reader of data, if it has one."),
    _process("prediction_outputs_processor", MODEL, "Name of its class that stores predictions.", modes=_PREDICT),
    _process("training_data", DATA, "Address of the training data: a path, file:// or s3://.", values.path, _TRAIN),
    _process("validation_data", DATA, "Address of the data for evaluation.", values.path, _WITH_METRICS),
    _process("prediction_data", DATA, "Address of the data to predict.", values.path, _PREDICT),
    _process("data_reader_params", DATA, "Arguments of the reader: reader_type=CSV; …", values.parameters),
    _process("minibatch_size", DATA, "Records of a minibatch.", _at_least_one),
    _process("num_minibatches_per_task", DATA, "Minibatches of a task, which one worker does.", _at_least_one),
    _process("num_epochs", DATA, "How often all data is used.", _at_least_one, _TRAIN),
    _process("max_step", DATA, "Updates after which training ends; 0: none.", _count, _TRAIN),
    _process("seed", DATA, "From which tasks are shuffled, anew in each epoch.", _count, _TRAIN),
    _choice(_process("distribution_strategy", STRATEGY, "Who holds the model. Local: this process alone."), Strategy),
    _process("num_workers", STRATEGY, "Number of workers.", _at_least_one),
    _process("num_ps_pods", STRATEGY, "Number of parameter servers.", _count),
    _process("use_async", STRATEGY, "Apply each gradient at once.", values.boolean, _TRAIN),
    _process("grads_to_wait", STRATEGY, "Number of gradients averaged into one update.", _at_least_one, _TRAIN),
    _process("get_model_steps", STRATEGY, "Minibatches of a worker from one pull to the next.", _at_least_one, _TRAIN),
    _process("lr_staleness_modulation", STRATEGY, "Damp a gradient by its age.", values.boolean, _TRAIN),
    _process("sync_version_tolerance", STRATEGY, "Age above which a gradient is refused.", _count, _TRAIN),
    _process("job_command", STRATEGY, "A training script of your own, which takes shards of the data.", modes=_TRAIN),
    _process("checkpoint_steps", CHECKPOINTS, "Updates from one checkpoint to the next; 0: none.", _count, _TRAIN),
    _process("checkpoint_dir", CHECKPOINTS, "Where they go: a path on a volume, or s3://.", values.path, _TRAIN),
    _process("checkpoint_dir_for_init", CHECKPOINTS, "The checkpoint with which to begin.", values.path),
    _process("keep_checkpoint_max", CHECKPOINTS, "How many checkpoints are kept; 0: all.", _count, _TRAIN),
    _process("output", CHECKPOINTS, "Where the final model goes.", values.path, _TRAIN | _PREDICT),
    _process("task_fault_tolerance", FAULTS, "Go on without a task that fails again and again.", values.boolean),
    _process("max_task_retries", FAULTS, "How often a task that has failed is tried again.", _count),
    _process("relaunch_timeout_worker", FAULTS, "Seconds for which a process waits for another one.", values.seconds),
    _choice(_process("log_level", LOGS, "Level of the logs."), Level),
    _process("log_loss_steps", LOGS, "Minibatches of a worker for each line with the loss; 0: none.", _count, _TRAIN),
    _process("evaluation_steps", LOGS, "Updates between evaluations; 0: only at the end.", _count, _TRAIN),
)
"""What the processes get."""

DEPLOYMENT: Sequence[Flag] = (
    Flag("job_name", JOB, "Name of the job: its pods are elasticdl-NAME-master and so on.", form="NAME"),
    Flag("image_name", PODS, "Image of all pods; also as the argument. Default: the stack's.", form="IMAGE"),
    Flag("worker_image", PODS, "Image of the workers. Default: --image_name.", form="IMAGE"),
    Flag("ps_image", PODS, "Image of the servers. Default: --image_name.", form="IMAGE"),
    _choice(Flag("image_pull_policy", PODS, "When a node pulls the image. Default: Kubernetes' own."), PullPolicy),
    _choice(
        Flag("ship", PODS, "What goes with the job: code and zoo, or code. With --image_name the zoo is in the image."),
        Ship,
    ),
    *_pods("master", "the master"),
    *_pods("ps", "a parameter server"),
    *_pods("worker", "a worker"),
    Flag("master_pod_priority", PODS, "Priority class of the master.", values.priority, "CLASS"),
    Flag("ps_pod_priority", PODS, "Priority class of the servers.", values.priority, "CLASS"),
    Flag(
        "worker_pod_priority",
        PODS,
        "Priority class of the workers; high=0.5: that of half of them, the others have low.",
        values.worker_priority,
        "CLASS",
    ),
    Flag(
        "volume",
        PODS,
        "claim_name=C,mount_path=/data[,sub_path=F][,read_only=true] or host_path=/P,mount_path=/Q[,type=Directory]; "
        'several with ";". Default with a stack: its file system at /data, and one of Lustre at /lustre.',
        values.volumes,
        "VOLUMES",
    ),
    Flag("envs", PODS, "Variables of all containers: A=1,B=2.", values.environment, "A=1,B=2"),
    Flag("cluster_spec", PODS, "File with additions to the pods, see --cluster_spec_json.", values.path, "FILE"),
    Flag(
        "cluster_spec_json",
        PODS,
        "Additions to the pods: labels, annotations, tolerations, affinity, nodeSelector, env under pod_spec, "
        "master_spec, ps_spec, worker_spec.",
        values.cluster_spec,
        "JSON",
    ),
    _choice(Flag("restart_policy", FAULTS, "OnFailure: in the same pod.", default=Restart.NEVER), Restart),
    Flag(
        "relaunch_on_worker_failure",
        FAULTS,
        "Failures for each worker after which it is still replaced. A lost or deleted pod always is.",
        _count,
        "NUMBER",
        "1",
    ),
    Flag(
        "need_pod_manager",
        FAULTS,
        "As in ElasticDL: pods are always replaced.",
        values.always("a lost pod is always replaced by the ElasticJob"),
        BOOLEAN,
        "true",
    ),
    Flag(
        "need_task_manager",
        FAULTS,
        "As in ElasticDL: the master always deals out the data.",
        values.always("without tasks there is nothing of ElasticDL in a job: `tidewater job submit` runs others"),
        BOOLEAN,
        "true",
    ),
    *(
        Flag(
            name,
            FAULTS,
            "Accepted and ignored: --job_command already says that the job runs a script of its own.",
            values.boolean,
            BOOLEAN,
        )
        for name in ("custom_training_loop", "need_elasticdl_job_service")
    ),
    Flag("max_workers", JOB, "Up to how many workers `kubectl scale` may go.", _at_least_one, "NUMBER"),
    Flag("etcd", JOB, "Address of the etcd in which the master keeps its state. Default: the stack's.", form="URL"),
    Flag("namespace", JOB, "Namespace. Default: that of the kubeconfig's context.", form="NAME"),
    Flag("context", JOB, "Context of the kubeconfig. Default: its current one.", form="NAME"),
    Flag("kubeconfig", JOB, "Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config.", values.path, "FILE"),
    Flag("force_use_kube_config_file", JOB, "Use no service account.", values.boolean, BOOLEAN, "false"),
    Flag("yaml", JOB, "Write the job to this file instead of submitting it.", values.path, "FILE"),
)
"""What the command itself uses."""

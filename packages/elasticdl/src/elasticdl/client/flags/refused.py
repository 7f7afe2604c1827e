"""Flags of ElasticDL's client, of whatever version, that have no meaning here: why, and what to use instead.

REFUSED["tensorboard_log_dir"]
"""

from __future__ import annotations

from collections.abc import Mapping

_SHAPE = "the pods of a job are those of an ElasticJob: master, ps and worker; leave it out"
_CHIEF = "there is no chief and no evaluator, which are TensorFlow's: workers evaluate; leave it out"
_PS = "a parameter server that fails is started again from the newest checkpoint; leave it out, or set checkpoint_steps"
_TIME = "evaluation goes by versions of the model, not by time: use --evaluation_steps"
_BUILD = "it is of `elasticdl zoo init`, which writes it into the Dockerfile"

REFUSED: Mapping[str, str] = {
    "aux_params": "its only parameter switches off relaunching: use --relaunch_on_worker_failure=0",
    "chief_pod_priority": _CHIEF,
    "chief_resource_limit": _CHIEF,
    "chief_resource_request": _CHIEF,
    "critical_worker_index": "no worker is critical: the others do its tasks; leave it out",
    "dataset_fn": "later versions call the function feed: use --feed",
    "docker_base_url": "the Docker daemon is that of the docker command: set DOCKER_HOST",
    "docker_tlscert": "the Docker daemon is that of the docker command: set DOCKER_CERT_PATH",
    "docker_tlskey": "the Docker daemon is that of the docker command: set DOCKER_CERT_PATH",
    "enable_automate_memory": "memory is what is requested: use --worker_resource_request",
    "evaluation_start_delay_secs": _TIME,
    "evaluation_throttle_secs": _TIME,
    "evaluator_pod_priority": _CHIEF,
    "evaluator_resource_limit": _CHIEF,
    "evaluator_resource_request": _CHIEF,
    "extra_pypi_index": _BUILD,
    "image_base": "an image is built by `elasticdl zoo build`, and named with --image_name",
    "launch_worker_after_ps_running": "all pods start at once, and workers wait for the servers; leave it out",
    "local_pkg_dir": _BUILD,
    "log_file_path": "a pod's log is what it prints: `kubectl logs POD > FILE`; leave it out",
    "need_tf_config": "TF_CONFIG is TensorFlow's, and models are PyTorch's; leave it out",
    "num_evaluators": _CHIEF,
    "populate_env_names": "all pods have the same variables: name them in --envs",
    "ps_is_critical": _PS,
    "ps_relaunch_max_num": _PS,
    "tensorboard_log_dir": "no process writes TensorFlow's event files: loss and metrics are in the logs; leave it out",
    "use_go_ps": "there is one implementation of parameter servers; leave it out",
    "worker_pod_name": _SHAPE,
}
"""Flag, without its dashes → a reason that ends with the remedy."""

"""A training that torch itself divides among processes, or sums over them, is refused before the worker joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed._composable.replicate_with_fsdp import replicate as replicate_with_fsdp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from tests.elastic.alone import default_group_alone
from tidewater.contract import env
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.checks import check
from tidewater.elastic.method.parallel import refuse_parallel
from tidewater.elastic.training import Training


@pytest.fixture(scope="module", autouse=True)
def default_group() -> Iterator[None]:
    """torch's default group, as such a script makes it."""
    yield from default_group_alone()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def checked(model: nn.Module, optimizer: Any = None) -> None:
    """Check a training with that model, as a worker does before it joins."""
    training = Training(
        model=model,
        optimizer=optimizer or torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=TensorDataset(torch.zeros(9)),
        loss=lambda model, batch: model(batch),
    )
    environ = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: "/checkpoints"}
    check(training, Config.parse(["--epochs", "2", "--batch-size", "10"], environ))


def refused(model: nn.Module, optimizer: Any = None) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(model, optimizer)
    return str(caught.value)


def test_a_model_that_fully_shard_divides_as_a_whole_is_accepted() -> None:
    model = net()
    fully_shard(model[1])
    fully_shard(model)
    checked(model)


def test_a_single_layer_with_fully_shard_is_refused_with_the_name_of_another_parameter() -> None:
    model = net()
    fully_shard(model[1])
    assert refused(model).startswith("0.weight of the training's model isn't divided, and other parameters are")


def test_a_model_that_is_divided_among_other_processes_is_refused() -> None:
    model = net()
    fully_shard(model)
    with pytest.raises(ConfigError, match=r"0\.weight of .* is divided among 1 processes, and --shard is 2"):
        refuse_parallel(model, (), 2)


def test_a_model_without_fully_shard_is_refused_with_shard() -> None:
    with pytest.raises(ConfigError, match="--shard is 2, and no layer of the training's model is divided"):
        refuse_parallel(net(), (), 2)


def test_a_model_in_fully_sharded_data_parallel_is_refused_by_name() -> None:
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    assert "is divided among processes with FullyShardedDataParallel" in refused(model)


@pytest.mark.parametrize("replicate", [replicate, replicate_with_fsdp], ids=["DDP", "FSDP"])
def test_a_model_with_replicate_is_refused_by_name(replicate: Any) -> None:
    model = net()
    replicate(model)
    message = refused(model)
    assert message.startswith("the training's model is summed over processes with replicate")
    assert message.endswith("Leave replicate out")


def test_a_tensor_parallel_model_is_refused_with_the_name_of_a_parameter() -> None:
    model = net()
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"1": ColwiseParallel()})
    message = refused(model)
    assert message.startswith("1.weight of the training's model is a DTensor")
    assert message.endswith("leave parallelize_module and distribute_tensor out")


def test_a_mesh_of_two_dimensions_is_refused_with_the_name_of_a_parameter() -> None:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard")))
    assert refused(model).startswith("0.weight of the training's model is a DTensor, as tensor parallelism makes it")


def test_a_layer_in_distributed_data_parallel_is_refused_with_its_name() -> None:
    message = refused(nn.Sequential(nn.Linear(4, 4), DistributedDataParallel(nn.Linear(4, 2))))
    assert message.startswith("the layer 1 of the training's model is a DistributedDataParallel")
    assert message.endswith("give the model in it, model.1.module")


def test_an_optimizer_that_divides_its_state_among_processes_is_refused_by_name() -> None:
    model = net()
    message = refused(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1))
    assert message.startswith("the training's optimizer is a ZeroRedundancyOptimizer")
    assert message.endswith("give the optimizer that it wraps")


def test_activation_checkpointing_of_torch_distributed_is_accepted() -> None:
    checked(nn.Sequential(nn.Linear(4, 4), checkpoint_wrapper(nn.Linear(4, 2))))

"""Plain training as torch's tutorials have it, with the minibatches of a job's tasks: what jobs are compared with."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Shard, exactly
from elasticdl.job import JobArgs
from elasticdl.master.resume import prepared
from elasticdl.worker.assembly import model_of, spec_of
from elasticdl.zoo.spec import Mode, ModelSpec


def trained(args: JobArgs) -> Iterator[torch.nn.Module]:
    """Yield the model after each minibatch. It is the same module each time."""
    plan = prepared(args, servers=args.num_ps_pods).plans.work
    assert plan is not None
    spec = spec_of(args)
    model = model_of(spec, args.seed)
    optimizer = spec.optimizer.torch(model.parameters())
    with open_reader(args.training_data) as reader:
        for task in plan.tasks:
            piece = plan.piece(task)
            taken = list(exactly(reader, Shard(piece.shard, piece.start, piece.end)))
            for start in range(0, len(taken), args.minibatch_size):
                batch = spec.feed(taken[start : start + args.minibatch_size], Mode.TRAINING, reader.metadata)
                optimizer.zero_grad()
                loss = spec.loss(batch.labels, model(batch.features))
                loss.backward()  # type: ignore[no-untyped-call] # torch doesn't annotate it
                optimizer.step()
                yield model


def metrics_of(model: torch.nn.Module, spec: ModelSpec, data: str) -> dict[str, float]:
    """Return the metrics of a model on all records of an address."""
    metrics = spec.eval_metrics()
    with open_reader(data) as reader, torch.no_grad():
        for shard in reader.shards():
            batch = spec.feed(list(reader.read(shard)), Mode.EVALUATION, reader.metadata)
            metrics.update(batch.labels, model(batch.features))
    return metrics.compute()

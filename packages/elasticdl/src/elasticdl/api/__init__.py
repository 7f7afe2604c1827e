"""For a training script with a loop of its own: shards from the master, elastic all-reduce, a fixed global batch.

    model, data = Net(), ImageFolder("/data/digits/train")
    optimizer = FixedBatchOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def train_one_batch(images, labels):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    with create_elastic_controller(Data(len(data), epochs=3), model, optimizer) as controller:
        loader = DataLoader(data, batch_sampler=controller.batch_sampler)
        train = controller.elastic_run(train_one_batch)
        for images, labels in controller.batches(loader):
            loss = train(images, labels)

`elasticdl train --distribution_strategy=AllreduceStrategy --job_command "python3 script.py" …` runs it. Names are near
those of ElasticDL's `elasticai_api`.

| promise           |                                                                                                  |
|-------------------|--------------------------------------------------------------------------------------------------|
| global batch      | each update of the model is the mean over `num_workers` minibatches, for any number of workers;  |
|                   | only at the end of all data it is the mean over what is left                                     |
| lost worker       | the others repeat the update without it; its shards go to them as a whole                        |
| new worker        | gets model, optimizer and what the script keeps from the others, and then its first shard        |
| shards            | each is reported done once, after an update with its records is final                            |
| records           | if a worker is lost half-way through a shard, all records of the shard are used again            |
| all workers lost  | the model begins anew, or from the last checkpoint with `--checkpoint_dir`;                      |
|                   | shards that this model has not seen are done again                                               |
| enough            | `controller.stop()` in any worker ends the training of all, and the job succeeds                 |

controller    wraps the script's function; `create_elastic_controller`
optimizer     collects gradients until the global batch is whole
master        the script's side of the protocol with the master
shards        which records come next, and which shards are done
agreement     how many minibatches each worker contributes to an update. Pure
update        the sums of an update, in the runtime's session
assembly      what the job tells the process, and the session
"""

from __future__ import annotations

from elasticdl.api.controller import ElasticController, create_elastic_controller
from elasticdl.api.optimizer import FixedBatchOptimizer
from elasticdl.api.shards import Data, ShardService

__all__ = ["Data", "ElasticController", "FixedBatchOptimizer", "ShardService", "create_elastic_controller"]

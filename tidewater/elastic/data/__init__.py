"""Which samples a step uses, and how a dataset gets onto the volume.

sampler   one cursor over a seeded permutation, the same for all ranks
loader    the batches of one rank, prepared ahead
stream    the same for an IterableDataset, which has no index
probes    a few samples, for a comparison with those of other workers
seeds     the random generators that datasets draw from, seeded per sample
dataset   the `dataset` sub-command: puts a dataset on the volume once, and verifies it
archive   downloads and unpacks an archive of images
folders   lists the images of each class in a folder
source    the batch of a request, in the training process or in one that prepares data
reading   knows what each process reads now, and ends a read that blocks
descriptors   the open files of a process that was forked to prepare data
device    batches of any kind: on the device that computes with them, and what they consist of
sample_errors   errors of a dataset, with the samples that they are about
"""

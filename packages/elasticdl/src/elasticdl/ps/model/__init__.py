"""What one server holds of the model, without files and network.

part         everything together, safe for threads: push, read, snapshots
policy       when a gradient is used, and how much of it counts
deduplication which minibatches have been counted
gradients    the mean of gradients that waited for each other
dense        dense parameters, changed by torch's own optimizer
rows         rows of an embedding table: a growing tensor, snapshots by copy on write
row_updates  one step of an optimizer for the rows that have a gradient
"""

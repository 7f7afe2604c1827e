"""The model zoo: ElasticDL's functional API, in PyTorch.

spec        what a model consists of, once loaded and checked
optimizers  SGD, Adagrad and Adam as descriptions, for one process and for parameter servers
callbacks   a learning rate by version, a last step
metrics     metrics that combine exactly, in any order
exact       a sum of floats that does not depend on the order of its terms
"""

"""The model zoo: ElasticDL's functional API, in PyTorch.

load        a model's functions, checked before anything is started, and what each call returns
spec        what a model consists of, once loaded
module      finds a module of the zoo, and a function in it
optimizers  SGD, Adagrad and Adam as descriptions, for one process and for parameter servers
callbacks   a learning rate by version, a last step
metrics     metrics that combine from parts
project     the zoo's folder: `zoo init`, `zoo build`, `zoo push`; how it is shipped
templates/  the examples that `zoo init` writes
"""

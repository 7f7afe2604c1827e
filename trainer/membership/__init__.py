"""Who trains together, decided in etcd by compare-and-set.

rules        frozen records and one pure function that decides the next generation
records      members and generations as etcd keeps them
coordinator  applies the decisions to etcd, in threads of its own, beside the training
missing      members without a record: gone, or only out of touch
traits       what must be equal in all workers of a job
ending       the records by which everybody knows that the job is done
"""

"""Who trains together, decided in etcd by compare-and-set.

rules        frozen records, and what they say: who is lost, who asks for a place, who reaches whom
decision     one pure function that decides the next generation
deciders     which members of a large job read everything, and decide for the others
votes        what members of a large job say about themselves, sent to those that decide
need         since when the current generation needs a successor
arrivals     how long newcomers wait for more, so that one generation admits them together
records      members and generations as etcd keeps them
follower     reads the records in etcd, then their changes
coordinator  applies the decisions to etcd, in its own threads, while training runs
hooks        what a coordinator asks of the process in which it runs
suspects     members without a record: dead, or only unreachable for etcd
traits       what must be equal in all workers of a job
evidence     what is compared in addition, with tolerance: modules, versions, samples
modules      finds the script's modules, and the versions of the packages that they import
"""

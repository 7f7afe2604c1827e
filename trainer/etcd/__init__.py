"""etcd v3: the only way in which the trainer reaches it.

client   the operations that are needed, over the JSON gateway of etcd
access   address, TLS files, user and password, and what to say when etcd cannot be reached
contact  the first request, which shows whether etcd can be reached and lets this worker in
mirror   a copy of one prefix, kept current by a watch, and one record kept by a lease
codec    records as JSON with a version
"""

"""Access to etcd v3. The trainer uses etcd only through this package.

client   the necessary operations, over the JSON gateway of etcd
ranges   what a read or a watch is about: all keys with a prefix, one key, or the oldest ones
access   address, TLS files, user and password, and the error messages when etcd can't be reached
probe    the first request, which shows whether etcd can be reached and lets this worker in
secret   the secret with which the processes of a job authenticate to each other
mirror   a copy of one prefix, updated by a watch, and one record bound to a lease
codec    records as JSON with a version
"""

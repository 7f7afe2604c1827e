"""Access to etcd v3. The trainer uses etcd only through this package.

client   the necessary operations, over the JSON gateway of etcd
access   address, TLS files, user and password, and the error messages when etcd can't be reached
mirror   a copy of one prefix, updated by a watch, and one record bound to a lease
codec    records as JSON with a version
"""

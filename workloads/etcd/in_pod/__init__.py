"""What runs in etcd's pods before etcd: the standard library only."""

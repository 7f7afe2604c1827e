"""The elastic trainer: data-parallel training that goes on while workers come and go.

    python -m trainer train --job digits --etcd http://127.0.0.1:2379 --data /data/digits \\
        --checkpoints /data/checkpoints/digits

How the parts hang together:

    main         command line -> config -> loop
    membership   who trains together: frozen records and one pure function that decides
    store        etcd, behind a small protocol        coordinator  applies the decisions, in threads
    group        torch's process group, re-formed in the process
    loop         forward, backward, vote, commit      handover, sync   state from a peer
    sampler      one cursor for all ranks             checkpoint   the volume, for when everyone is gone
    metrics      what Prometheus is shown         report, chart    logs -> summary and picture
    torchrun     etcd v3 as a rendezvous for plain torchrun, independent of the loop
    data, dataset, model, log, config, errors

Importing any of these has no effect, and torch is imported only where it is used, so that
a worker's first log line does not wait for it.
"""

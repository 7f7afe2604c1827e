"""A virtual machine with Debian's own kernel, where cgroup v2 alone is mounted, to run tests of this checkout.

    python3 -m scripts.virtual_machine make machine      # ends with the exit status of `make machine`

A machine has one layout of cgroups, so its tests show nothing about the other one. The virtual machine sees this
machine's files under their own paths; what it writes is in its memory and is gone afterwards. It has no network and
needs no KVM: qemu emulates the processor, which takes many times as long. So waits for a control plane run out there.

kernel     Debian's kernel, and the RAM disk that it starts from
qemu       starts it, prints what the command prints, returns its exit status
init.sh    process 1: mounts the files, runs the command, switches the machine off
"""

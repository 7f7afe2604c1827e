#!/bin/busybox sh
# Process 1 of the virtual machine: mounts the host's files below a layer in memory, runs the script that the kernel's
# command line names, prints its exit status, and switches the machine off.
set -e
/bin/busybox --install -s /bin
export PATH=/bin TERM=dumb
mkdir -p /proc /sys /dev /host /memory /new
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do insmod "$module"; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host
mount -t tmpfs -o size=75% memory /memory
mkdir /memory/changes /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/changes,workdir=/memory/work files /new
mount -t tmpfs run /new/run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for folder in proc sys dev; do mount --move "/$folder" "/new/$folder"; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
mount -t tmpfs shm /new/dev/shm
ln -s /proc/self/fd /new/dev/fd
ip link set lo up
hostname virtual-machine
set +e
script=$(sed 's/.* script=\([^ ]*\).*/\1/' /new/proc/cmdline)
chroot /new /bin/sh "$script" </new/dev/null
printf '\nvirtual machine: exit status %s\n' "$?" # on a line of its own, however the command's output ends
stty -F /new/dev/console sane # returns when the console has sent everything
poweroff -f

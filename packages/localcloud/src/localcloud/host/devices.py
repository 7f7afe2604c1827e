"""Keeps a node away from the host's disks and memory: a program in the kernel lists the devices that it may open.

    restrict(Path("/sys/fs/cgroup/unified/lc-1f2e3d/i-0abc"))

A privileged container may make any device node or mount a devtmpfs. The kernel asks a BPF program of the cgroup before
it opens one or makes one; the program belongs to the cgroup and goes with it. Only cgroup v2 has such programs, but its
hierarchy needs no controllers for them. So the v2 hierarchy that systems with v1 also mount is sufficient.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

from localcloud.errors import KernelFeature

# Character devices, as major and minor number; None allows all minors of a major.
ALLOWED: tuple[tuple[int, int | None], ...] = (
    (1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (1, 11),  # null, zero, full, random, urandom, kmsg
    (5, 0), (5, 1), (5, 2),  # tty, console, ptmx
    *((major, None) for major in range(136, 144)),  # pseudo-terminals
    (10, 200), (10, 229),  # net/tun, fuse
)  # fmt: skip

SYS_BPF = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, PROG_ATTACH = 5, 8
TYPE_CGROUP_DEVICE, ATTACH_CGROUP_DEVICE, ALLOW_MULTI = 15, 6, 2
CHARACTER = 2
LOAD_WORD, AND, MOVE, JUMP_NOT_EQUAL, EXIT = 0x61, 0x57, 0xB7, 0x55, 0x95
RESULT, CONTEXT, KIND, MAJOR, MINOR = 0, 1, 2, 3, 4  # registers
INSTRUCTION_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)


def restrict(cgroup: Path) -> None:
    """Let processes in a cgroup of v2 and below open and make the devices of `ALLOWED` only.

    Raises:
        KernelFeature: The kernel refuses the program.
    """
    instructions = program(ALLOWED)
    code, licence = ctypes.create_string_buffer(instructions), ctypes.create_string_buffer(b"GPL")
    head = (TYPE_CGROUP_DEVICE, len(instructions) // INSTRUCTION_BYTES)
    loaded = _bpf(PROG_LOAD, struct.pack("IIQQ", *head, ctypes.addressof(code), ctypes.addressof(licence)))
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _bpf(PROG_ATTACH, struct.pack("IIII", folder, loaded, ATTACH_CGROUP_DEVICE, ALLOW_MULTI))
    finally:
        os.close(folder)
        os.close(loaded)


def program(allowed: tuple[tuple[int, int | None], ...]) -> bytes:
    """The instructions: read kind, major and minor from the context; 1 if they are in the list, else 0.

    The context is `struct bpf_cgroup_dev_ctx`: access and kind, major, minor, 32 bits each.
    """
    code = [
        _instruction(LOAD_WORD, KIND, CONTEXT),
        _instruction(AND, KIND, value=0xFFFF),
        _instruction(LOAD_WORD, MAJOR, CONTEXT, offset=4),
        _instruction(LOAD_WORD, MINOR, CONTEXT, offset=8),
        _instruction(JUMP_NOT_EQUAL, KIND, value=CHARACTER, offset=sum(_length(minor) for _, minor in allowed)),
    ]
    for major, minor in allowed:
        code.append(_instruction(JUMP_NOT_EQUAL, MAJOR, value=major, offset=_length(minor) - 1))
        if minor is not None:
            code.append(_instruction(JUMP_NOT_EQUAL, MINOR, value=minor, offset=2))
        code += [_instruction(MOVE, RESULT, value=1), _instruction(EXIT)]
    code += [_instruction(MOVE, RESULT, value=0), _instruction(EXIT)]
    return b"".join(code)


def _length(minor: int | None) -> int:
    """How many instructions an entry of the list takes."""
    return 3 if minor is None else 4


def _instruction(code: int, target: int = 0, source: int = 0, *, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("BBhi", code, target | source << 4, offset, value)


def _bpf(command: int, attributes: bytes) -> int:
    """bpf(2); a struct that is shorter than the kernel's is filled up with zeros."""
    number = SYS_BPF.get(platform.machine())
    done: int = _libc.syscall(number, command, attributes, len(attributes)) if number else -1
    if done < 0:
        reason = os.strerror(ctypes.get_errno())
        raise KernelFeature(f"devices of nodes can't be restricted ({reason}): use a kernel with CONFIG_CGROUP_BPF")
    return done

"""Executes a program to which the kernel refuses system calls: refuse.py NAME,NAME... PROGRAM ARGUMENT...

A seccomp filter answers these calls with an error, as older kernels, containers and security modules do.
"""
import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"ioctl": 16, "socket": 41, "setsockopt": 54, "sched_setscheduler": 144, "unshare": 272},
    "aarch64": {"ioctl": 29, "socket": 198, "setsockopt": 208, "sched_setscheduler": 119, "unshare": 97},
}[platform.machine()]

EQUAL, ANY_BIT = 0x15, 0x45
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
TUN_F_USO = 0x60
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
IPPROTO_TCP, TCP_CONGESTION, IPPROTO_MPTCP = 6, 13, 262
SOL_SOCKET, SO_RCVBUFFORCE = 1, 33

# Each refusal: the call, conditions on its arguments (number, comparison, value), and the error.
REFUSALS = {
    "tun": ("ioctl", [(1, EQUAL, TUNSETIFF)], errno.EPERM),
    "udp-segmentation": ("ioctl", [(1, EQUAL, TUNSETOFFLOAD), (2, ANY_BIT, TUN_F_USO)], errno.EINVAL),
    "user-namespaces": ("unshare", [(0, ANY_BIT, CLONE_NEWUSER)], errno.ENOSPC),
    "network-namespaces": ("unshare", [(0, ANY_BIT, CLONE_NEWNET)], errno.EPERM),
    "mptcp": ("socket", [(2, EQUAL, IPPROTO_MPTCP)], errno.EPROTONOSUPPORT),
    # The last argument is the length of the name: `bbr` alone has three letters.
    "bbr": ("setsockopt", [(1, EQUAL, IPPROTO_TCP), (2, EQUAL, TCP_CONGESTION), (4, EQUAL, 3)], errno.ENOENT),
    "large-buffers": ("setsockopt", [(1, EQUAL, SOL_SOCKET), (2, EQUAL, SO_RCVBUFFORCE)], errno.EPERM),
    "real-time": ("sched_setscheduler", [], errno.EPERM),
}

LOAD_WORD, RETURN = 0x20, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def refusal(call, conditions, error):
    """Returns the instructions of a refusal, after which the filter goes on if the refusal does not apply."""
    # `struct seccomp_data` has the number of the call first, and the arguments of 8 bytes from byte 16 on.
    tests = [(0, EQUAL, NUMBERS[call])] + [(16 + 8 * n, how, value) for n, how, value in conditions]
    code = b""
    for left, (at, how, value) in zip(range(len(tests), 0, -1), tests):
        code += instruction(LOAD_WORD, at) + instruction(how, value, 0, 2 * left - 1)
    return code + instruction(RETURN, ERROR | error)


code = b"".join(refusal(*REFUSALS[name]) for name in sys.argv[1].split(","))
code += instruction(RETURN, ALLOW)
instructions = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(instructions))
place = ctypes.create_string_buffer(program, len(program))
prctl = ctypes.CDLL(None, use_errno=True).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
# Without privileges a process may set a filter once it can gain none.
for words in [(PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(place))]:
    if prctl(*words, 0, 0) != 0:
        sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[2], sys.argv[2:])

"""Runs a command whose system calls fail in one way: python3 tests/refused_calls.py CALL[>=BYTES]=ERRNO[,...] COMMAND...

The command and all that it starts get ERRNO (a name: EPERM, EIO) from each CALL named, by a seccomp filter: io_uring_setup as many containers
refuse it, pread64 or fsync as a failing disk does; with >=BYTES only if the third argument, a length, is at least that. Exits 77 where the
system allows no such filter or the machine's calls are not known here.
"""
import ctypes
import errno
import os
import platform
import re
import sys

CALLS = {"x86_64": {"io_uring_setup": 425, "pread64": 17, "fsync": 74}, "aarch64": {"io_uring_setup": 425, "pread64": 67, "fsync": 82}}
NO_NEW_PRIVILEGES, SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
REFUSE, ALLOW = 0x00050000, 0x7FFF0000
NUMBER, LENGTH = 0, 32  # where the filter finds the call's number, and the low half of its third argument


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("if_true", ctypes.c_uint8), ("if_false", ctypes.c_uint8), ("operand", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction))]


def instructions_of(rules):
    """The filter: one call after the other; what no rule refuses is allowed."""
    filter_ = []
    for rule in rules.split(","):
        call, least, error = re.fullmatch(r"(\w+)(?:>=(\d+))?=(\w+)", rule).groups()
        filter_ += [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 3 if least else 1, CALLS[platform.machine()][call])]
        filter_ += [(LOAD, 0, 0, LENGTH), (JUMP_IF_AT_LEAST, 0, 1, int(least))] if least else []
        filter_ += [(RETURN, 0, 0, REFUSE | getattr(errno, error))]
    return [*filter_, (RETURN, 0, 0, ALLOW)]


def refuse(rules):
    """Whether the system allowed it; for the rest of this process's life."""
    if platform.machine() not in CALLS:
        return False
    instructions = [Instruction(*fields) for fields in instructions_of(rules)]
    program = Program(len(instructions), (Instruction * len(instructions))(*instructions))
    library = ctypes.CDLL(None, use_errno=True)
    return library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and library.prctl(SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0) == 0


if __name__ == "__main__":
    if not refuse(sys.argv[1]):
        print("skipped: no seccomp filters here", file=sys.stderr)
        sys.exit(77)
    os.execvp(sys.argv[2], sys.argv[2:])

"""Runs a command that the system refuses io_uring, as many containers do: python3 tests/without_uring.py ERRNO COMMAND...

ERRNO is a name (EPERM, ENOMEM, ENOSYS). The command and all that it starts get it from io_uring_setup, by a seccomp filter. Exits 77
where the system allows no such filter.
"""
import ctypes
import errno
import os
import sys

IO_URING_SETUP = 425  # on every architecture
NO_NEW_PRIVILEGES, SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x00050000, 0x7FFF0000


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("if_true", ctypes.c_uint8), ("if_false", ctypes.c_uint8), ("operand", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction))]


def refuse_uring(error):
    """Whether the system allowed it; for the rest of this process's life."""
    instructions = (Instruction * 4)((LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, REFUSE | error), (RETURN, 0, 0, ALLOW))
    library = ctypes.CDLL(None, use_errno=True)
    return (library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
            and library.prctl(SET_SECCOMP, MODE_FILTER, ctypes.byref(Program(len(instructions), instructions)), 0, 0) == 0)


if __name__ == "__main__":
    if not refuse_uring(getattr(errno, sys.argv[1])):
        print("skipped: no seccomp filters here", file=sys.stderr)
        sys.exit(77)
    os.execvp(sys.argv[2], sys.argv[2:])

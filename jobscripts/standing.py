"""Where a run stands, from what it leaves in its directory (jobscripts/README.md): its state, its progress, how an attempt ended.

Reads only; attempt.sh writes.
"""
import fcntl
import os
import re
import signal

import keeping

DONE, BUSY, STOPPED = 0, 11, 75  # exit codes of attempts
SHAPE = {"state": {"running", "stopped", "done", "failed"}, "exit_code": (int, type(None)), "attempts": int, "seconds": (int, float),
         "begin": (str, type(None)), "end": (str, type(None)), "reason": (str, type(None))}


def is_locked(path):
    """Whether somebody holds this lock, None where the file system has no locks; of one that does not exist, nobody does."""
    try:
        file = open(path, "r+")
    except OSError:  # none was begun
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
    return False


def state_of(directory):
    """state.json of a run as a dict; `state` is `waiting` where there is none, and `killed` where it says running and nobody runs it; without
    locks nobody can tell, and it is `running`. One that is damaged, as a power cut may leave it, says as little as one that was killed."""
    path = directory / "state.json"
    nothing = {"state": "waiting", "exit_code": None, "attempts": 0, "seconds": 0, "begin": None, "end": None, "reason": None}
    try:
        state = keeping.read(path, SHAPE, "the run goes on from its newest checkpoint all the same")
    except FileNotFoundError:
        return nothing
    except keeping.Damaged as damaged:
        attempts = re.search(rb'(?m)^ *"attempts": (\d+),*$', path.read_bytes())  # attempt.sh counts from what it can read, too
        state = nothing | {"state": "running", "attempts": int(attempts[1]) if attempts else 0, "reason": str(damaged)}
    if state["state"] == "running" and is_locked(directory / "lock") is False:
        state["state"] = "killed"
    return state


def ended(directory, code):
    """(state, exit code, why) of the attempt that ended so; `why` is None where state.json tells it. Its exit code is right where the two differ."""
    state = state_of(directory)
    if code == -signal.SIGTERM:
        return "stopped", STOPPED, "stopped before it had begun"
    code = 128 - code if code < 0 else code
    if code in (state["exit_code"], BUSY):
        return state["state"], code, None
    word = {DONE: "done", STOPPED: "stopped"}.get(code, "failed")
    return word, code, (f"exit code {code}, of which state.json says nothing (there it is {state['state']}): see {directory}/log.txt, and whether "
                        "files can be written there")


def steps_of(directory):
    """(step, steps) of the last line of a run's log that tells of progress, or of a stop; None where there is none."""
    try:
        with open(directory / "log.txt", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            found = re.findall(rb"(?m)^(?:step +|quadrille: stopped after step )(\d+)(?:/| of )(\d+)", file.read())
    except OSError:
        return None
    return (int(found[-1][0]), int(found[-1][1])) if found else None

"""What jobscripts/setup.sh says where things are missing: three kinds of hints and exit code 2, and what it does when apt fails.

Nothing is installed and nothing built: the script sees a folder of the tools that it uses itself, and stand-ins that print their arguments.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOOLS = ("bash", "sh", "env", "echo", "dirname", "cut", "sed", "awk", "xargs", "tr", "grep", "cat", "mkdir", "touch")
SOURCE = pathlib.Path(sys.argv[1])


class Machine:
    """A folder that is the whole PATH: the plain tools, and stand-ins."""

    def __init__(self, folder):
        self.bin = pathlib.Path(folder) / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))

    def add(self, name, script):
        """A stand-in for the command `name`: what it does, in sh."""
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def setup(self, *arguments, prefix=(), **variables):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("QUADRILLE_") and name not in ("CC", "CXX", "MPICC", "CMAKE_PREFIX_PATH", "HDF5_ROOT", "CRAYPE_VERSION")}
        command = [*prefix, self.bin / "bash", SOURCE / "jobscripts/setup.sh", *arguments]
        return subprocess.run(command, env=kept | {"PATH": str(self.bin)} | variables, capture_output=True, text=True, check=False, timeout=60)


def expect(result, exit_code, *words):
    missing = [word for word in words if word not in result.stderr + result.stdout]
    return [] if result.returncode == exit_code and not missing else [
        f"exit {exit_code} was due, came {result.returncode}; not said: {missing}\n{result.stdout}{result.stderr}"]


NEEDED = ("C++20 compiler", "CMake", "Ninja", "MPI", "HDF5", "yaml-cpp", "oneDNN", "fmt", "xxHash", "JSON for Modern C++")
HINTS = ("setup.sh: missing here:", "sudo apt-get install ", "spack install ", "module load ", "CMAKE_PREFIX_PATH")


def without_anything(machine):
    """An empty machine, and no leave to install: what is missing, by name, and a line each for apt, Spack and modules, without repeats."""
    result = machine.setup("--no-install")
    complaints = expect(result, 2, *NEEDED, *HINTS, "libopenmpi-dev", "onednn", "gcc/12")
    for hint in HINTS[1:4]:
        words = next((line for line in result.stderr.splitlines() if hint in line), "").split("    (")[0].split("&&")[0].split()
        if len(set(words)) != len(words):
            complaints.append(f"said twice: {words}")
    return complaints + expect(machine.setup("--no-install", "--tests"), 2, "doctest", *HINTS)


def other_machines(machine):
    """MPICH has other packages; clang is asked for by name; an unknown machine and an unknown argument are refused."""
    return (expect(machine.setup("--no-install", "--machine", "debian-mpich"), 2, "libmpich-dev", "libhdf5-mpich-dev")
            + expect(machine.setup("--no-install", CXX="clang++"), 2, "clang 14 or newer", "clang's sanitizers")
            + expect(machine.setup("--no-install", "--machine", "atlantis"), 2, "no machine 'atlantis'", "cray", "debian-mpich")
            + expect(machine.setup("--nonsense"), 2, "unknown argument '--nonsense'"))


def ordinary_user(machine):
    """Without root and sudo apt is not touched: the hints, and exit code 2."""
    machine.add("apt-get", 'echo "apt-get was called"')
    prefix = [shutil.which("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    machine.bin.parent.chmod(0o755)
    if prefix and (not prefix[0] or subprocess.run([*prefix, "test", "-r", SOURCE / "jobscripts/setup.sh"], check=False).returncode != 0):
        print("        not checked as another user: no setpriv, or that user may not read", SOURCE)
        return []
    result = machine.setup(prefix=prefix)
    return expect(result, 2, *HINTS, *NEEDED) + (["apt-get was called"] if "apt-get was called" in result.stdout + result.stderr else [])


def apt_fails(machine):
    """apt that fails is told of, and then the hints stand there all the same."""
    machine.add("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    machine.add("apt-get", 'echo "E: Unable to fetch some archives" >&2; exit 100')
    return expect(machine.setup(), 2, "Unable to fetch", "setup.sh: apt could not install them", *HINTS, *NEEDED)


def stand_ins(machine, missing="nothing"):
    """Every tool that setup.sh asks for, but the header whose name contains `missing`; cmake says with what it was called."""
    for tool in ("g++", "cc", "ninja", "mpicc", "h5pcc"):
        machine.add(tool, f'input=$(cat); case $input in *{missing}*) exit 1 ;; esac')
    machine.add("cmake", 'echo "cmake $@"; [ "$1" = --build ] || { mkdir -p "$4" && touch "$4/build.ninja"; }')


def one_build(machine):
    """The README's two commands configure alike but for the tests themselves, so that the second builds on what the first has built."""
    stand_ins(machine)
    for tool, does in (("nproc", "echo 2"), ("ctest", "exit 0"), ("python3", "exit 0")):
        machine.add(tool, does)
    tree = machine.bin.parent / "tree"
    shutil.copytree(SOURCE / "jobscripts", tree / "jobscripts")
    (tree / "tests").mkdir()
    shutil.copy(SOURCE / "tests/run.sh", tree / "tests/run.sh")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("QUADRILLE_")}
    kept |= {"PATH": str(machine.bin), "QUADRILLE_PYTHON": str(machine.bin / "python3")}
    said = []
    for script in ("jobscripts/setup.sh", "tests/run.sh"):
        result = subprocess.run([machine.bin / "bash", tree / script], env=kept, capture_output=True, text=True, check=False, timeout=60)
        calls = [line for line in result.stdout.splitlines() if line.startswith("cmake -S")]
        if result.returncode != 0 or len(calls) != 1:
            return [f"{script}: exit 0 and one configuration were due, came {result.returncode}\n{result.stdout}{result.stderr}"]
        said.append(calls[0].replace("-DQUADRILLE_TESTS=ON", "-DQUADRILLE_TESTS=OFF").replace(" -DQUADRILLE_FULL=OFF", ""))
    return [] if said[0] == said[1] else [f"the second configures otherwise: {said}"]


def apt_fails_for_a_wish(machine):
    """With only a wish missing, a failing apt does not end the script: it goes on to build without it."""
    machine.add("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    machine.add("apt-get", 'echo "apt-get $@"; exit 100')
    stand_ins(machine, missing="liburing")
    build = machine.bin.parent / "build"
    result = machine.setup("--build", str(build))
    return expect(result, 0, "setup.sh: installing liburing-dev", "apt could not install them", "goes on without liburing", f"cmake --build {build}")


def reports_are_a_wish(machine):
    """What reports need is installed where they are asked for, and done without where that fails."""
    machine.add("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    machine.add("apt-get", "exit 100")
    stand_ins(machine)
    machine.add("python3", 'case $2 in *matplotlib*) exit 1 ;; esac')
    build, python = machine.bin.parent / "build", str(machine.bin / "python3")
    plain = machine.setup("--build", str(build), QUADRILLE_PYTHON=python)
    complaints = ["matplotlib was asked for without --reports"] if "matplotlib" in plain.stdout + plain.stderr else expect(plain, 0)
    return complaints + expect(machine.setup("--build", str(build), "--reports", QUADRILLE_PYTHON=python), 0,
                               "installing python3 python3-h5py python3-matplotlib python3-yaml", "goes on without Python 3 with h5py, matplotlib")


def main():
    failed = 0
    for check in (without_anything, other_machines, ordinary_user, apt_fails, apt_fails_for_a_wish, reports_are_a_wish, one_build):
        with tempfile.TemporaryDirectory(prefix="setup-") as folder:
            complaints = check(Machine(folder))
        failed += bool(complaints)
        print("FAILED" if complaints else "ok    ", check.__name__, *complaints)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

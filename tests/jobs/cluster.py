"""A Slurm of the test's own: one slurmctld, slurmd and munged on loopback, with their own ports, key and folder, and nothing left of them afterwards.

A Slurm that is already on this computer is not touched: all commands and daemons are told of their own configuration and socket.
"""
import os
import pathlib
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time

CORES = 4  # that the node says it has, whatever this computer's
# A job that is queued again waits until the credential of its former start is out of date: two minutes, unless cred_expire says less.
CONFIGURATION = """\
ClusterName=quadrille
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo="socket={folder}/munge.socket,cred_expire=5"
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
MinJobAge=300
KillWait=30
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
DAEMONS = ("munged", "slurmctld", "slurmd")


def program(name):
    """The path of a daemon, which is not in every user's PATH; None where it is not installed."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def why_not():
    """Why there can be no Slurm here, "" where there can."""
    missing = [name for name in (*DAEMONS, "sbatch", "srun", "squeue", "scontrol") if not program(name)]
    return f"no {', '.join(missing)}: on Debian, apt-get install slurm-wlm (jobscripts/setup.sh --tests)" if missing else ""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """While inside, a Slurm that runs; its commands find it by the variables of `environment`. Raises RuntimeError where it does not start."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        self.daemons = []

    def __enter__(self):
        try:
            self._write()
            self._start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munge.socket",
                        f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
            self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
            self._start("slurmctld", "-D", "-i")
            self._start("slurmd", "-D")
            self._wait(lambda: self.ask("sinfo", "--noheader", "--format=%T").stdout.strip() == "idle", "the node")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *ignored):
        """Ends all jobs and daemons, whatever has happened."""
        if len(self.daemons) > 1:
            self.ask("scancel", f"--user={os.getuid()}", seconds=10)
            for _ in range(50):
                if not self.ask("squeue", "--noheader", seconds=10).stdout.strip():
                    break
                time.sleep(0.1)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for step in pathlib.Path("/proc").glob("[0-9]*/cmdline"):  # slurmstepd outlives slurmd, with its job
            try:
                if b"slurmstepd" in step.read_bytes() and f"SLURM_CONF={self.folder}".encode() in (step.parent / "environ").read_bytes():
                    os.kill(int(step.parent.name), signal.SIGKILL)
            except OSError:
                pass

    def _write(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], controller_port=free_port(), node_port=free_port(), user=pwd.getpwuid(os.getuid()).pw_name,
            folder=self.folder, cores=CORES, memory=max(1, memory // 2)))
        # Nothing here asks for cgroups; v1 is the plug-in that then touches none, from 23.11 on there is a word for that.
        version = re.search(r"(\d+)\.(\d+)", subprocess.run([program("slurmd"), "-V"], capture_output=True, text=True, check=False).stdout)
        new = version and (int(version[1]), int(version[2])) >= (23, 11)
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={'disabled' if new else 'cgroup/v1'}\n")

    def _start(self, name, *options):
        with open(self.folder / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([program(name), *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                                                 env=os.environ | self.environment, start_new_session=True))

    def _wait(self, condition, what):
        end = time.monotonic() + 30
        while not condition():
            dead = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > end:
                raise RuntimeError(f"{what} does not come up; ended: {dead}\n{self.words()}")
            time.sleep(0.1)

    def ask(self, *command, seconds=30):
        """A command of Slurm's, as a CompletedProcess; one that does not answer in time has said nothing."""
        try:
            return subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, check=False, timeout=seconds,
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", "no answer")

    def words(self):
        """What the daemons said last, for a failure's report."""
        parts = []
        for path in sorted(self.folder.glob("*.out")):
            parts.append(f"{path.name}:\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        return "\n".join(parts)

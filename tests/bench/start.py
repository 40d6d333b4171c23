"""How long a user waits for the quickstart's first step: from the launcher's start to the step's begin, all set-up included."""
import pathlib
import subprocess
import time

from trainer import LAUNCH, read_record

INPUT = pathlib.Path(__file__).resolve().parents[2] / "inputs/quickstart.yaml"
RANKS = 4


def seconds_to_first_step(trainer):
    """Runs one step of inputs/quickstart.yaml; the time at which its line comes out, less the step's own seconds."""
    output = trainer.folder / "start-output"
    command = [str(LAUNCH), str(RANKS), str(trainer.binary), "train", str(INPUT), f"output.directory={output}", "output.overwrite=true",
               "train.steps=1", "evaluation.interval=0"]
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=trainer.environment, cwd=trainer.folder) as process:
        printed, seconds = [], None
        for line in process.stdout:
            printed.append(line)
            if seconds is None and line.startswith("step"):
                seconds = time.monotonic() - begin
    if process.returncode != 0 or seconds is None:
        raise SystemExit("the quickstart failed:\n" + "".join(printed))
    return seconds - read_record(output)["steps/seconds"][0]

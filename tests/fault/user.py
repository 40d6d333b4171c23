"""Runs of an ordinary user: what root may do hides mistakes about permissions. Where the tests run as root they give that up with setpriv."""
import os
import shutil

from trainer import read_record, show

from cases import DONE, INPUT
from midrun import ours

NOBODY = 65534
GIVE_UP = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def ordinary_user(trainer):
    """Trains on 4 ranks through the launcher; a folder and a file that are not this user's end a run with one line that says so."""
    locked, secret = trainer.folder / "locked", trainer.folder / "secret.txt"
    locked.mkdir(mode=0o555)
    secret.write_text("1 2 3 4 5 6 7 8 9 10" * 100)
    secret.chmod(0)
    if os.geteuid() == 0:
        trainer.prefix = GIVE_UP
        os.chown(trainer.folder, NOBODY, NOBODY)
        if not shutil.which("setpriv"):
            return "skipped: no setpriv, with which root runs as another user"
        if trainer.run(["--version"]).exit_code != DONE:
            return f"skipped: user {NOBODY} may not run {trainer.binary}, or setpriv may not change to that user"
    trainer.environment |= {"HOME": str(trainer.folder)}
    result = trainer.train(INPUT, 4, ["grid.tp=2", "grid.pp=2"])
    if result.exit_code != DONE or len(read_record(result.output)["steps/step"]) != 3:
        return [show(result)]
    complaints = [] if (result.output / "run.h5").stat().st_uid == (NOBODY if os.geteuid() == 0 else os.geteuid()) else ["the record is another's"]
    for change, exit_code, name in ((f"output.directory={locked / 'run'}", 2, "locked"), (f"data.train=[{secret}]", 2, "secret.txt")):
        result = trainer.run(["train", "run.yaml", change, "output.overwrite=true"], 2)
        said = ours(result.stderr)
        if result.exit_code != exit_code or len(said) != 1 or name not in said[0] or "Permission denied" not in said[0]:
            complaints.append(f"{change}: exit {exit_code} and one line with 'Permission denied' were due\n{show(result)}")
    return complaints


CHECKS = [("an ordinary user", ordinary_user)]

"""PyTorch's side of the comparison, from the side of the bench: a process that waits while ours runs, and steps when told to."""
import json
import pathlib
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).with_name("torch_gpt2.py")


class TorchSide:
    """Starts torch_gpt2.py under --torch's python; it tries its settings once, keeps the fastest, and then sleeps between steps."""

    def __init__(self, options, source, precision, threads):
        model, train = source["model"], source["train"]
        self.steps = options.steps
        arguments = {"model": model, "batch": train["micro_batch_size"], "precision": precision, "threads": threads}
        self.process = subprocess.Popen([options.torch, str(PROGRAM), json.dumps(arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        about = self._answer()
        self.version = about["version"]
        self.chosen = about["chosen"]
        print(f"# PyTorch {self.version} {precision}: " + ", ".join(f"{name} {rate:.4g} tokens/s" for name, rate in about["tried"].items()),
              file=sys.stderr, flush=True)

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{PROGRAM.name} ended with exit code {self.process.wait()}")
        return json.loads(line)

    def tokens_per_second(self):
        """One step that is not counted, then the counted ones."""
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        return self._answer()["tokens_per_second"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()

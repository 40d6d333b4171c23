"""What the job scripts show while they work: a bar that redraws on a terminal, lines elsewhere, and the table of a sweep's points."""
import collections
import shutil
import sys
import time


class Bar:
    """`of` equal parts of something, and what is under way. On a terminal one line that redraws; elsewhere nothing but what `line` is given."""

    def __init__(self, what, of):
        self.what, self.of, self.done, self.begin = what, of, 0, time.monotonic()
        self.terminal = sys.stdout.isatty()

    def step(self):
        self.done += 1

    def show(self, under_way, part=0.0):
        """`part`: how much of the part under way is done, 0 to 1."""
        if not self.terminal or not self.of:
            return
        width, whole = 24, (self.done + part) / self.of
        filled = int(width * whole)
        text = f"{self.what} [{'#' * filled}{'.' * (width - filled)}] {self.done}/{self.of}{self._left(whole)}  {under_way}"
        columns = shutil.get_terminal_size().columns - 1
        sys.stdout.write("\r" + text[:columns].ljust(columns))
        sys.stdout.flush()

    def _left(self, whole):
        spent = time.monotonic() - self.begin
        return f"  {clock(spent / whole - spent)} left" if whole > 0.02 else ""

    def line(self, text):
        """Stays: above the bar."""
        self.end()
        print(text, flush=True)

    def end(self):
        """Takes the bar away."""
        if self.terminal:
            sys.stdout.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            sys.stdout.flush()


def clock(seconds):
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def counted(states, dropped):
    """2 done, 1 failed, 1 dropped"""
    counts = collections.Counter(states)
    order = ("done", "running", "stopped", "killed", "waiting", "failed")
    words = [f"{counts[state]} {state}" for state in order if counts[state]] + ([f"{dropped} dropped"] if dropped else [])
    return ", ".join(words) or "no points"


def table(rows):
    """Rows of texts, the first of them the heads, in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip() for row in rows)

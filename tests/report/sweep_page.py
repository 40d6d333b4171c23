"""Reports of sweeps whose directories are made by hand: what is on the page and in the tables, and what is said of points without numbers."""
import csv
import fcntl
import json
import pathlib
import subprocess
import sys
import tempfile

import hand_made  # first: it finds postproc/, or skips
import numpy

import axes
import report as program

FOLDER = tempfile.TemporaryDirectory(prefix="sweep-page-")
HERE = pathlib.Path(FOLDER.name)
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "postproc/report.py"
FACTS = {"schema": "quadrille-sweep-1", "about": "made by hand", "scales": None, "grows": "dp", "base": "base.yaml", "commit": "abc", "version": "1",
         "machine": "laptop", "repetitions": 1, "axes": []}


def data(ranks, seconds, waits, device=1000, copied=0):
    """A record's tables: steps of `seconds` but the first, of which each rank waits for gradients `waits` of the time and else computes."""
    found = hand_made.tables(5, [(rank, 0, 0, 0) for rank in range(ranks)], ("dp",), evaluations=0)
    times = numpy.full(5, float(seconds))
    times[0] *= 3
    found["steps/seconds"] = times
    shares = [{"compute": 1 - waits, "exposed_dp": waits}.get(category, 0.0) for category in hand_made.CATEGORIES]
    found["time/seconds"] = times[:, None, None] * numpy.array(shares) * numpy.ones((1, ranks, 1))
    found["wire/exposed"] = waits * times[:, None, None] * numpy.ones((1, ranks, 1))
    found["wire/busy"] = 2 * found["wire/exposed"]
    found["memory/measured_peak"][:, 0] = [device, 0, 0, 0, 0]
    found["copies/moved"][:] = copied
    return found


class Sweep:
    """A sweep's directory under the hand."""

    def __init__(self, name, kind="product"):
        self.place, self.kind, self.points = HERE / name, kind, []
        self.place.mkdir()

    def add(self, at, ranks=1, table=None, state="done", dropped=None, repetition=1, **told):
        """A point: with a record where `table` is given."""
        name = " ".join(f"{key}={value}" for key, value in at.items()) + (f" #{repetition}" if repetition > 1 else "")
        index = len(self.points)
        self.points.append({"index": index, "name": name, "at": at, "repetition": repetition, "ranks": ranks, "nodes": 1, "ranks_per_node": ranks,
                            "overrides": [], "dropped": dropped, "directory": None if dropped else f"points/{index}"})
        if dropped:
            return None
        folder = self.place / f"points/{index}"
        (folder / "output").mkdir(parents=True)
        if state:
            (folder / "state.json").write_text(json.dumps({"state": state, "exit_code": 0, "attempts": 1, "reason": None} | told))
        if table:
            hand_made.write(folder / "output/run.h5", table)
        return folder

    def report(self, **facts):
        """(exit code, stderr, the page, {name of a table: its rows})."""
        text = json.dumps(FACTS | {"name": self.place.name, "kind": self.kind, "points": self.points} | facts)
        (self.place / "sweep.json").write_text(text)
        return report(self.place, [self.place])


def report(place, paths):
    """As Sweep.report; the axes of what is drawn have units."""
    where = ["--output", place / "report.html", "--csv", place / "csv", "--figures", place / "figures"]
    result = subprocess.run([sys.executable, SCRIPT, *paths, *where], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        options = program.parse(list(map(str, paths)))
        assert not axes.of_page(program.build(options.paths, options)), axes.of_page(program.build(options.paths, options))
    html = place / "report.html"
    tables = {path.stem: list(csv.DictReader(path.open())) for path in sorted((place / "csv").glob("*.csv"))}
    return result.returncode, result.stderr, html.read_text() if html.exists() else "", tables


def check_scaling_of_a_sweep():
    """1, 2 and 4 ranks at 10, 6 and 5 s: throughput, efficiency and a loss that its categories add up to; a dropped, a failed and a damaged point."""
    sweep = Sweep("strong", "strong")
    for ranks, seconds, waits in ((1, 10, 0.0), (2, 6, 0.1), (4, 5, 0.4)):
        sweep.add({"ranks": ranks}, ranks, data(ranks, seconds, waits))
    sweep.add({"ranks": 3}, 3, dropped="16 sequences do not divide by 3 ranks")
    sweep.add({"ranks": 8}, 8, state="failed", exit_code=6, reason="rank 3 was lost", attempts=2)
    damaged = sweep.add({"ranks": 16}, 16, data(1, 1, 0))
    (damaged / "output/run.h5").write_bytes(b"no record")
    sweep.add({"ranks": 32}, 32, state=None)
    (sweep.add({"ranks": 64}, 64, state="running") / "lock").touch()  # nobody holds it
    held = open(sweep.add({"ranks": 128}, 128, state="running") / "lock", "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    code, said, html, tables = sweep.report()
    assert code == 0 and not said, said
    figures = {path.stem for path in (sweep.place / "figures").glob("*.png")}
    assert {"throughput", "efficiency", "eaten", "transfers"} == figures, figures
    rates = [float(row["median [token/s]"]) for row in tables["throughput"]]
    assert rates == [51.2, 512 / 6, 102.4] and [float(row["ideal [token/s]"]) for row in tables["throughput"]] == [51.2, 102.4, 204.8], rates
    assert [row["ranks"] for row in tables["efficiency"]] == ["1", "2", "4"], tables["efficiency"]
    for row, efficiency in zip(tables["efficiency"], (1, 5 / 6, 1 / 2)):
        for name in ("efficiency [1]", "lower quartile [1]", "upper quartile [1]"):
            near(row, name, efficiency)
    lost = {int(row["ranks"]): row for row in tables["eaten"]}
    near(lost[4], "efficiency [%]", 50)
    near(lost[4], "exposed_dp [%]", 40)  # all of what the ranks waited: 4 × 5 s × 0.4 of 20 rank-seconds
    near(lost[4], "compute [%]", 10)  # 12 rank-seconds where one rank takes 10
    for row in lost.values():
        parts = sum(float(value) for name, value in row.items() if name not in ("point", "ranks", "efficiency [%]", "loss [%]"))
        assert abs(parts - float(row["loss [%]"])) < 1e-9 and abs(100 - float(row["efficiency [%]"]) - parts) < 1e-9, row
    for words in ("4 ranks do 2.00 × the work of 1 in the same time, of an ideal 4 ×", "Strong scaling: every point does the same work",
                  "At ranks=4 50.0 % of each rank-second is lost; most of it to exposed_dp 40.0 %, compute 10.0 %",
                  "The lowest is 50.0 %, of ranks=4", "16 sequences do not divide by 3 ranks", "rank 3 was lost",
                  "3 points with numbers, 1 dropped, 5 runs not finished"):
        assert words in html, words
    rows = tables["unfinished"]
    assert [row["state"] for row in rows] == ["failed", "done", "not begun", "killed", "running"] and "run.h5" in rows[1]["reason"], rows


def near(row, name, wanted):
    assert abs(float(row[name]) - wanted) < 1e-9, f"{name}: {row[name]}, wanted {wanted}"


def check_offload_of_a_sweep():
    """None, cpu and nvme with two repetitions: time against memory, copies with and without a trace, and each key by itself."""
    sweep = Sweep("offload")
    for repetition in (1, 2):
        for kind, seconds, device, copied in (("none", 9, 4000, 0), ("cpu", 11, 1000, 600)):
            for micro in (1, 4):
                at = {"offload": kind, "train.micro_batch_size": micro}
                sweep.add(at, 1, data(1, seconds + repetition, 0.0, device, copied), repetition=repetition)
    code, said, html, tables = sweep.report()
    assert code == 0 and not said, said
    assert [row["runs"] for row in tables["points"]] == ["2"] * 4 and tables["points"][2]["point"] == "offload=cpu train.micro_batch_size=1"
    times = [float(row["step time [s]"]) for row in tables["memory"]]
    assert times == [10.5, 10.5, 12.5, 12.5], times
    assert [row["device peak [byte]"] for row in tables["memory"]] == ["4000", "4000", "1000", "1000"]
    for row, seconds in zip(tables["rates"], (10, 10, 12, 12)):  # repetitions of so many seconds, and of one less by rate
        near(row, "slowest repetition [token/s]", 512 / (seconds + 1))
        near(row, "fastest repetition [token/s]", 512 / seconds)
        near(row, "median [token/s]", (512 / seconds + 512 / (seconds + 1)) / 2)
    by_offload = tables["by-offload"]
    assert [row["pairs"] for row in by_offload] == ["2", "2"] and abs(float(by_offload[1]["device memory: median × [1]"]) - 0.25) < 1e-12
    rate = (512 / 12 + 512 / 13) / (512 / 10 + 512 / 11)  # medians of two values each
    assert abs(float(by_offload[1]["median × [1]"]) - rate) < 1e-12, by_offload
    copies = [row for row in tables["transfers"] if row["transfer"] == "copies"]
    assert len(copies) == 2 and copies[0]["bytes per rank and step [byte]"] == "1200.0" and copies[0]["hidden [1]"] == "", copies
    for words in ("25.0 % of that) at 1.19 × the step time", "only the exposed part is known", "have the same loss, bit for bit",
                  "Bars are medians"):
        assert words in html, words


def check_weak_scaling_by_layers():
    """Twice the layers on twice the ranks, in 10 and 12.5 s: rates in FLOPs, an efficiency of 80 %, and the batch is no choice of its own."""
    sweep = Sweep("weak", "weak")
    for ranks, seconds in ((1, 10), (2, 12.5)):
        table = data(ranks, seconds, 0.0, 1000 * ranks)
        table["flops/model"] = numpy.float64(1e12 * ranks)
        sweep.add({"ranks": ranks}, ranks, table)
    code, said, html, tables = sweep.report(scales="layers")
    assert code == 0 and not said, said
    assert [float(row["median [FLOP/s]"]) for row in tables["throughput"]] == [1e11, 1.6e11]
    near(tables["eaten"][1], "efficiency [%]", 80)
    near(tables["eaten"][1], "compute [%]", 20)
    assert [float(row["step time [s]"]) for row in tables["memory"]] == [10, 12.5]
    for words in ("Weak scaling: every rank has the same work in a step", "With the ranks grow dp and the number of layers.",
                  "2 ranks do 1.60 × the work of 1"):
        assert words in html, words


def check_bubbles_of_a_sweep():
    """Two stages that idle 4 s and 2 s of 10: 30 % beside the theory's (2 − 1)/(m + 1), of 4 and 16 microbatches; one stage is not in it."""
    sweep = Sweep("schedules")
    for count in (4, 16):
        folder = sweep.add({"micro": count}, 4, hand_made.tables(5))
        config = hand_made.INPUT.replace("gradient_accumulation_steps: 4", f"gradient_accumulation_steps: {count}")
        hand_made.write(folder / "output/run.h5", hand_made.tables(5), config)
    sweep.add({"micro": 1}, 1, data(1, 10, 0))
    code, said, html, tables = sweep.report()
    assert code == 0 and not said, said
    assert [row["point"] for row in tables["bubbles"]] == ["micro=4", "micro=16"], tables["bubbles"]
    for row, theory in zip(tables["bubbles"], (1 / 5, 1 / 17)):
        near(row, "pipeline_idle [1]", 0.3)
        near(row, "theory [1]", theory)
    assert "Furthest from its theory is ranks=4 micro=16: 30.0 % where (p−1)/(m+p−1) gives 5.9 %" in html, html[html.find("Furthest"):][:200]


def check_unlike_points_of_one_name():
    """Two runs of the same values that were made otherwise are no repetitions of one point."""
    sweep = Sweep("mixed")
    for repetition, batch in ((1, 8), (2, 16)):
        sweep.add({"ranks": 2}, 2, data(2, 10, 0), repetition=repetition)
        sweep.points[-1]["overrides"] = [f"train.global_batch_size={batch}"]
    code, said, _, _ = sweep.report()
    assert code == 5 and "points/0 and points/1" in said and "unlike overrides" in said and len(said.splitlines()) == 1, said


def check_odd_sweeps():
    """One point, none, a schema of tomorrow, and half a file."""
    one = Sweep("one")
    one.add({}, 1, data(1, 10, 0))
    code, said, html, _ = one.report()
    assert code == 0 and "1 point with numbers" in html, said
    none = Sweep("none")
    none.add({"ranks": 2}, 2, dropped="it does not fit")
    code, said, html, _ = none.report()
    assert code == 0 and "No point has finished yet" in html and "it does not fit" in html, said
    code, said, _, _ = none.report(schema="quadrille-sweep-9")
    assert code == 5 and "quadrille-sweep-9" in said and len(said.splitlines()) == 1, said
    for broken in ('{"schema": "quadrille-sweep-1", "points": [{}]}', '{"schema": "quadr', "[]"):
        (none.place / "sweep.json").write_text(broken)
        code, said, _, _ = report(none.place, [none.place])
        assert code == 5 and "sweep.json" in said and len(said.splitlines()) == 1, said


def check_runs_side_by_side():
    """Runs of no sweep: what was varied is seen in their inputs; what differs with the ranks, or by name only, is no choice. One has no steps."""
    paths = []
    for ranks, stage in ((1, 0), (2, 0), (2, 2)):
        folder = HERE / f"run-{ranks}-{stage}"
        folder.mkdir()
        config = f"grid: {{dp: {ranks}, tp: 1}}\nsharding: {{zero_stage: {stage}}}\noutput: {{directory: {folder}}}\ntrain: {{seed: {stage}}}\n"
        hand_made.write(folder / "run.h5", data(ranks, 10 / ranks, 0.0, 4000 - 1000 * stage), config)
        paths.append(folder)
    idle = HERE / "run-idle"
    idle.mkdir()
    hand_made.write(idle / "run.h5", hand_made.tables(0), exit_code=75)
    place = HERE / "beside"
    place.mkdir()
    code, said, html, tables = report(place, [*paths, idle])
    assert code == 0 and not said, said
    assert [row["point"] for row in tables["beside-points"]] == ["run-1-0", "run-2-0", "run-2-2"]
    assert [row["point"] for row in tables["beside-throughput"]] == ["run-1-0", "run-2-0"]  # the third differs in its stage
    assert "beside-by-sharding-zero_stage" in tables and not any("dp" in name or "seed" in name for name in tables if name.startswith("beside-by"))
    assert tables["beside-unfinished"][0]["point"] == "run-idle" and "2 ranks do 2.00 × the work of 1" in html


sys.exit(hand_made.run_checks([check for name, check in list(globals().items()) if name.startswith("check_")]))

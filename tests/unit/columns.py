"""No line of the sources, tests and scripts has more than 150 columns; golden texts, which are what a program prints, may."""
import pathlib
import sys

MOST = 150
ENDINGS = {".cpp", ".hpp", ".py", ".sh", ".txt", ".cmake"}


def main(source):
    long = [f"{path.relative_to(source)}:{number}: {len(line)} columns"
            for folder in ("src", "tests", "jobscripts", "postproc") for path in sorted((source / folder).rglob("*"))
            if path.suffix in ENDINGS and "golden" not in path.parts
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if len(line) > MOST]
    print("\n".join([*long, f"{len(long)} lines have more than {MOST} columns"]))
    return len(long) > 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

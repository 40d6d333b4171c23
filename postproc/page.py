"""A report: chapters of figures, tables and notes, as one HTML file that needs nothing beside it, as PNG and PDF, and as CSV.

    page = Page("Run quickstart", "4 ranks, 120 steps")
    page.chapter("Losses", prefix="")
    page.add(Figure("loss", "Loss", "It falls from 5.5 to 2.1.", canvas, Table("loss", ...)))
    page.write(path); page.write_figures(folder); page.write_csv(folder)

The page has no script and asks the network for nothing: pictures are in it, and its policy forbids the rest. A figure's caption says what is to be
seen, with the figures' numbers, which its table has in full. Knows no record.
"""
import base64
import csv
import dataclasses
import html
import io
import pathlib

MOST_ROWS = 60  # of a table on the page; its CSV has all


@dataclasses.dataclass(frozen=True)
class Column:
    """`text` turns a cell into what the page shows; the CSV has the number itself."""

    name: str
    unit: str = ""
    text: object = None

    @property
    def heading(self):
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    @property
    def shown_heading(self):
        """Where `text` tells the unit in each cell, without it."""
        return self.name if self.text else self.heading

    def shown(self, cell):
        if cell is None:
            return ""
        if self.text:
            return self.text(cell)
        return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


@dataclasses.dataclass(frozen=True)
class Table:
    """`name` is the CSV's; rows hold numbers and words as they are, None where there is none."""

    name: str
    title: str
    caption: str
    columns: list
    rows: list

    def html(self):
        first = self.rows[0] if self.rows else [None] * len(self.columns)
        heads = "".join(f"<th{_kind(cell)}>{html.escape(column.shown_heading)}</th>" for column, cell in zip(self.columns, first))
        body = "".join("<tr>" + "".join(_cell(column, cell) for column, cell in zip(self.columns, row)) + "</tr>\n" for row in self.rows[:MOST_ROWS])
        rest = len(self.rows) - MOST_ROWS
        more = f'<p class="note">{rest} more rows are in {html.escape(self.name)}.csv (report.py --csv DIR).</p>' if rest > 0 else ""
        return f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table></div>{more}'

    def write_csv(self, path):
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([column.heading for column in self.columns])
            writer.writerows([[repr(float(cell)) if isinstance(cell, float) else cell for cell in row] for row in self.rows])


@dataclasses.dataclass(frozen=True)
class Figure:
    """`name` is that of its files; `canvas` a matplotlib figure (look.axes begins one); `table` the numbers that it shows."""

    name: str
    title: str
    caption: str
    canvas: object
    table: Table = None

    def svg(self):
        file = io.BytesIO()
        self.canvas.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()


@dataclasses.dataclass(frozen=True)
class Note:
    """A paragraph: what is not there and why, or what follows."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """Text as it is, folded away."""

    title: str
    text: str


class Page:
    """In order of its chapters. Names of figures and tables are unique; a chapter's prefix makes those of two runs so."""

    def __init__(self, title, subtitle=""):
        self.title, self.subtitle = title, subtitle
        self.chapters = []  # (title, prefix, text, items)
        self._names = set()

    def chapter(self, title, prefix="", text=""):
        """What is added from now on stands under this heading, and its files' names begin with `prefix`."""
        self.chapters.append((title, prefix, text, []))

    def add(self, *items):
        _, prefix, _, held = self.chapters[-1]
        for item in items:
            if isinstance(item, Figure) and not item.caption.strip():
                raise ValueError(f"page: the figure {item.name} has no caption that says what to see")
            names = {item.name} if isinstance(item, (Figure, Table)) else set()
            if isinstance(item, Figure) and item.table:
                names.add(item.table.name)
            for name in sorted(names):
                if prefix + name in self._names:
                    raise ValueError(f"page: two items are called {prefix + name}")
                self._names.add(prefix + name)
            held.append(item)

    def figures(self):
        """(name of its files, figure) of all."""
        return [(prefix + item.name, item) for _, prefix, _, items in self.chapters for item in items if isinstance(item, Figure)]

    def tables(self):
        """(name of its file, table) of all, those of figures too."""
        found = []
        for _, prefix, _, items in self.chapters:
            for item in items:
                table = item.table if isinstance(item, Figure) else item
                if isinstance(table, Table):
                    found.append((prefix + table.name, table))
        return found

    def html(self):
        contents = "".join(f'<li><a href="#chapter-{number}">{html.escape(title)}</a></li>' for number, (title, *_) in enumerate(self.chapters))
        body = "".join(_chapter(number, *chapter) for number, chapter in enumerate(self.chapters))
        navigation = f"<nav><ol>{contents}</ol></nav>" if len(self.chapters) > 1 else ""
        return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{_POLICY}<link rel="icon" href="data:,">\n'
                f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(self.title)}</title>\n'
                f"<style>{_STYLE}</style></head><body>\n<header><h1>{html.escape(self.title)}</h1>"
                f"<p>{html.escape(self.subtitle)}</p></header>\n{navigation}\n{body}</body></html>\n")

    def write(self, path):
        """Into a folder that is there. Raises OSError."""
        pathlib.Path(path).write_text(self.html(), encoding="utf-8")

    def write_figures(self, folder):
        """NAME.png and NAME.pdf of every figure; their captions in captions.txt."""
        folder = _folder(folder)
        for name, figure in self.figures():
            figure.canvas.savefig(folder / f"{name}.png", dpi=150)
            figure.canvas.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        captions = "".join(f"{name}: {figure.title}. {figure.caption}\n" for name, figure in self.figures())
        (folder / "captions.txt").write_text(captions, encoding="utf-8")

    def write_csv(self, folder):
        folder = _folder(folder)
        for name, table in self.tables():
            table.write_csv(folder / f"{name}.csv")


def _folder(path):
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _kind(cell):
    return "" if cell is None or isinstance(cell, str) else ' class="number"'


def _cell(column, cell):
    return f"<td{_kind(cell)}>{html.escape(column.shown(cell))}</td>"


def _chapter(number, title, prefix, text, items):
    lead = f"<p>{html.escape(text)}</p>" if text else ""
    return f'<section id="chapter-{number}"><h2>{html.escape(title)}</h2>{lead}\n{"".join(_item(prefix, item) for item in items)}</section>\n'


def _item(prefix, item):
    title = html.escape(item.title)
    if isinstance(item, Note):
        return f'<p class="note"><b>{title}</b> {html.escape(item.text)}</p>\n'
    if isinstance(item, Listing):
        return f"<details><summary>{title}</summary><pre>{html.escape(item.text)}</pre></details>\n"
    name, caption = html.escape(prefix + item.name), html.escape(item.caption)
    if isinstance(item, Table):
        return f'<figure id="{name}"><h3>{title}</h3>{item.html()}<figcaption>{caption}</figcaption></figure>\n'
    numbers = f"<details><summary>The numbers</summary>{item.table.html()}</details>" if item.table else ""
    picture = base64.b64encode(item.svg()).decode()
    return (f'<figure id="{name}"><h3>{title}</h3><img alt="{title}" src="data:image/svg+xml;base64,{picture}">'
            f"<figcaption>{caption}</figcaption>{numbers}</figure>\n")


_POLICY = ("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.6em; margin-bottom: 0; } h2 { border-bottom: 1px solid #999; margin-top: 2em; } h3 { margin: 0 0 .4em; font-size: 1.05em; }
figure { margin: 1.6em 0; break-inside: avoid; } figure img { width: 100%; height: auto; } figcaption { color: #444; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: .85em; margin: .4em 0; }
th, td { border-bottom: 1px solid #ddd; padding: .15em .5em; text-align: left; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; } td.number { white-space: nowrap; } th { background: #f3f3f3; }
.note { background: #f7f3e8; padding: .5em .8em; } pre { overflow-x: auto; background: #f3f3f3; padding: .6em; font-size: .85em; }
summary { cursor: pointer; color: #0050a0; } nav ol { columns: 2; }
"""

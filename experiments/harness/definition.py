"""What an experiment is: experiment.toml, read and checked. The format is told in ../README.md."""

import dataclasses
import difflib
import hashlib
import importlib.util
import itertools
import json
import re
import tomllib
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[1]
FILE = "experiment.toml"
DRIVER = "driver.py"
PLOT = "plot.py"  # may be missing
TEMPLATE = "template"  # a folder to copy, no experiment
PAPER_NODE = EXPERIMENTS / "lab" / "paper_node.h"  # the constants of the paper's nodes and disks
PLACEMENTS = ("client", "adaptive", "server")
PAPER_PROFILE = "paper"
STATICS = ("client", "server")
SIZES = ("full", "quick", "ci")
RUNS_MAX = 30  # of one placement

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SHARE = re.compile(r"\d+(\.\d+)?%")


class ExperimentError(Exception):
    """What is wrong and how to go on, for the user."""


# --- what may stand in the file ------------------------------------------------------------------
# {key: (check, default)}; a default of ... must be given. A check returns what is wrong, or None.

def _text(value):
    return None if isinstance(value, str) and value else "a text in quotes"


def _name(value):
    good = isinstance(value, str) and _NAME.fullmatch(value)
    return None if good else "a name of small letters, digits and _, a letter first"


def _positive(value):
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return None if good else "a number above 0"


def _not_negative(value):
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    return None if good else "a number from 0"


def _count(value):
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if good else "a whole number from 0"


def _several(value):
    good = _count(value) is None and value >= 2
    return None if good else "a whole number from 2"


def _flag(value):
    return None if isinstance(value, bool) else "true or false"


def _table(value):
    return None if isinstance(value, dict) else "a table: {key = value, ...}"


def _one_of(*words):
    return lambda value: None if value in words else f"one of {', '.join(words)}"


def _list_of(check, what, or_empty=False):
    def checked(value):
        good = isinstance(value, list) and (value or or_empty) and all(
            check(item) is None for item in value)
        return None if good else f"a list of {what}{'' if or_empty else ', not empty'}"
    return checked


def _some_placements(value):
    good = isinstance(value, list) and value and set(value) <= set(PLACEMENTS)
    return None if good and len(set(value)) == len(value) else \
        f"a list of some of {', '.join(PLACEMENTS)}"


def _numbers_by_key(value):
    good = isinstance(value, dict) and value and all(
        isinstance(of, list) and of and len(set(of)) == len(of) and
        all(_count(item) is None for item in of) for of in value.values())
    return None if good else "a table of lists of whole numbers: {window_ms = [250, 1000]}"


def _shares(value):
    good = isinstance(value, dict) and value and all(
        isinstance(share, str) and _SHARE.fullmatch(share) for share in value.values())
    return None if good else 'a table of shares of a core: {s1 = "6%"}'


def _by_placement(check, what):
    def checked(value):
        good = isinstance(value, dict) and value and set(value) <= set(PLACEMENTS) and all(
            check(item) is None for item in value.values())
        return None if good else f"a table of {what} for some of {', '.join(PLACEMENTS)}"
    return checked


_EXPERIMENT = {
    "title": (_text, ...), "figure": (_text, ...), "section": (_text, ""),
    "bars": (_text, ""), "topology": (_text, "paper"), "object": (_text, ""),
    "not_runnable": (_text, ""), "profile": (_name, PAPER_PROFILE), "beyond": (_flag, False),
    "assumptions": (_list_of(_text, "texts"), ()), "progress": (_table, None),
    "retries": (_list_of(_name, "names of rows"), ()),
    "sweep": (_table, None), "heat_map": (_list_of(_table, "tables, written [[heat_map]]"), ()),
    "row": (_list_of(_table, "tables, written [[row]]"), ...),
}
_PROGRESS = {
    "rows": (_list_of(_name, "names of rows"), ...),
    "placement": (_one_of(*PLACEMENTS), "adaptive"),
    "clients": (_count, 8), "what": (_text, ...), "figure": (_text, ...),
}
_SWEEP = {
    "rows": (_list_of(_name, "names of rows"), ...), "phase": (_name, ...),
    "what": (_text, ...), "figure": (_text, ...),
}
OVER = ("optimal", "static")  # the optimum of the phases, or the better static placement
_HEAT_MAP = {
    "grid": (_name, ...), "x": (_text, ...), "y": (_text, ...), "x_title": (_text, ...),
    "y_title": (_text, ...), "default": (_table, ...), "over": (_one_of(*OVER), OVER[0]),
    "figure": (_text, ...),
}
# A row with these stands for many, a row for each of all combinations of their values.
_GRID = {"grid": _numbers_by_key, "quick_grid": _numbers_by_key}
# What the harness reads of a row; all else in it is the workload's, and handed to the driver.
_ROW = {
    "name": (_name, ...), "title": (_text, ""), "network": (_text, ...),
    "grid": (_name, ""),  # of which it is a cell: what _rows() makes of the file's table
    "placements": (_some_placements, None), "statics_of": (_name, ""), "shares": (_shares, None),
    "full": (_table, {}), "quick": (_table, {}), "ci": (_table, {}), "full_only": (_flag, False),
    "simulated": (_flag, False),
    "paper_retries": (_by_placement(_not_negative, "numbers"), None),
    "paper_phases": (_by_placement(_list_of(_not_negative, "seconds"), "lists of seconds"), None),
    "claim": (_list_of(_table, "tables", or_empty=True), ()),
}
_CLAIM = {"kind": (_text, ...), "text": (_text, ""), "paper": (_text, "")}
CLAIM_KINDS = {
    "direction": {"winner": (_one_of(*STATICS), ...)},
    "speedup": {"winner": (_one_of(*STATICS), ...), "at_least": (_positive, ...)},
    "speedup_below": {"limit": (_positive, ...)},
    "adaptive": {"within": (_not_negative, ...)},
    "engine": {"choice": (_one_of(*STATICS), ...), "moves_max": (_count, None),
               "once": (_flag, False)},
    "retries": {"placement": (_one_of(*PLACEMENTS), "adaptive"), "fewer_than": (_positive, None),
                "at_most": (_not_negative, None)},
    "total": {"at_most": (_positive, ...)},
    "beats_statics": {},
    "near_best": {"grid": (_name, ...), "within": (_not_negative, ...)},
    "together": {}, "apart": {},
    "visits": {"sequence": (_list_of(_one_of(*STATICS), "client, server"), ...)},
    "exchange": {"first": (_text, ...), "second": (_text, ...)},
    "rises": {"at_least": (_positive, 1.0)},
    "one_by_one": {"apart_s": (_positive, ...), "clients": (_several, 2)},
}


class _Place:
    """Where in which file, and the mistakes found so far."""

    def __init__(self, path):
        self.path, self.errors = path, []

    def wrong(self, where, text):
        self.errors.append(f"{self.path}: {where + ': ' if where else ''}{text}")

    def read(self, where, table, schema, open_ended=False):
        """{key: value} of the schema's keys, and the mistakes noted."""
        read = {}
        for key, value in table.items():
            if key not in schema:
                if not open_ended:
                    self.wrong(where, unknown("key", key, schema))
                continue
            problem = schema[key][0](value)
            if problem:
                self.wrong(where, f"{key} = {json.dumps(value, default=str)}: wanted is {problem}")
            else:
                read[key] = value
        for key, (check, default) in schema.items():
            if key not in table and default is ...:
                self.wrong(where, f"lacks the key {key}, {check(None) or 'a value'}")
            read.setdefault(key, None if default is ... else default)
        return read


def unknown(what, word, known):
    """'unknown WHAT 'WORD'; did you mean NEAR?' with all that there are."""
    near = difflib.get_close_matches(str(word), [str(item) for item in known], 1)
    return f"unknown {what} '{word}'" + (f"; did you mean {near[0]}?" if near else
                                         f"; there are: {', '.join(known)}")


# --- the parsed file -----------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says of a row; `options` are those of its kind in CLAIM_KINDS."""
    kind: str
    text: str
    paper: str
    options: dict

    def __getattr__(self, key):
        try:
            return self.options[key]
        except KeyError:
            raise AttributeError(key) from None


@dataclasses.dataclass(frozen=True)
class Row:
    """One setting that is run at each of its placements."""
    experiment: str
    name: str
    title: str
    network: str
    placements: tuple
    statics_of: str  # the row whose static runs stand for this one's, or ""
    shares: dict     # of the testbed's nodes, where they differ from its topology
    workload: dict   # for all sizes
    sizes: dict      # {"full": {...}, "quick": {...}, "ci": {...}}; ci empty: CI leaves it out
    full_only: bool  # too long for a quick look
    paper_retries: dict
    paper_phases: dict
    claims: tuple
    grid: str = ""  # the name of the grid of which it is a cell
    simulated: bool = False  # its records are the placement simulator's

    @property
    def path(self):
        return f"{self.experiment}/{self.name}"

    def for_driver(self, quick, ci=False):
        """The row as driver.py gets it: its own size on top of what all sizes have in common."""
        size = "ci" if ci and self.sizes["ci"] else "quick" if quick else "full"
        return {"name": self.name, "network": self.network, **self.workload, **self.sizes[size]}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A folder of experiments/."""
    name: str
    folder: Path
    title: str
    figure: str
    section: str
    bars: str  # which of its figures the bars are
    topology: str
    object: str  # the class whose place is the engine's choice; "": of all objects
    not_runnable: str
    profile: str  # that it is made for, and that its claims are held to
    beyond: bool  # the paper has no such experiment: its claims are expectations of ours
    assumptions: tuple
    progress: dict | None
    retries: tuple
    rows: tuple
    sweep: dict | None = None  # the curve over the length of phases
    heat_maps: tuple = ()

    def cells(self, grid, quick=False):
        """The rows of a grid; `quick`: of its quick size."""
        return [row for row in self.rows
                if grid and row.grid == grid and not (quick and row.full_only)]

    def row(self, name):
        return next(row for row in self.rows if row.name == name)

    @property
    def driver(self):
        return self.folder / DRIVER


def _read_claims(place, where, row, placements):
    claims = []
    for i, table in enumerate(row["claim"] or (), 1):
        here = f"{where}, claim {i}"
        kind = table.get("kind")
        if kind not in CLAIM_KINDS:
            place.wrong(here, "lacks the key kind" if kind is None else
                        unknown("kind", kind, CLAIM_KINDS))
            continue
        read = place.read(f"{here} ({kind})", table, {**_CLAIM, **CLAIM_KINDS[kind]})
        if kind == "retries" and (read["fewer_than"] is None) == (read["at_most"] is None):
            place.wrong(here, "wanted is one of fewer_than and at_most")
        if kind in ("direction", "speedup", "speedup_below", "adaptive", "total",
                    "beats_statics") and not set(STATICS) <= placements:
            place.wrong(here, f"{kind} compares with the static placements, and the row runs "
                        f"{', '.join(sorted(placements))} only; add placements or statics_of")
        claims.append(Claim(kind, read.pop("text"), read.pop("paper"),
                            {key: value for key, value in read.items() if key != "kind"}))
    return tuple(claims)


def _read_row(place, experiment, i, table):
    where = f"row {table.get('name', i)}"
    row = place.read(where, table, _ROW, open_ended=True)
    workload = {key: value for key, value in table.items() if key not in _ROW}
    for key in workload:
        near = difflib.get_close_matches(key, [*_ROW], 1, 0.85)
        if near:
            place.wrong(where, f"key '{key}' would be handed to the driver; did you mean "
                        f"{near[0]}? A parameter needs a name less like that")
    for size in SIZES:
        for key in row[size] or ():
            if key in _ROW or key in workload:
                place.wrong(where, f"{size}.{key} is given for all sizes already: take one away")
    if not row["full_only"] and set(row["full"] or ()) != set(row["quick"] or ()):
        place.wrong(where, "full and quick must have the same keys, or full_only = true")
    if row["ci"] and set(row["ci"]) != set(row["quick"] or ()):
        place.wrong(where, "ci must have the keys of quick, or be left out")
    placements = tuple(row["placements"] or PLACEMENTS)
    compared = set(placements)
    if row["statics_of"]:
        placements, compared = ("adaptive",), set(PLACEMENTS)
    return Row(experiment, row["name"], row["title"] or row["name"], row["network"], placements,
               row["statics_of"], row["shares"] or {}, workload,
               {size: row[size] for size in SIZES}, row["full_only"],
               row["paper_retries"] or {}, row["paper_phases"] or {},
               _read_claims(place, where, row, compared), row["grid"] or "",
               bool(row["simulated"]))


def _rows(place, tables):
    """The tables of the file, each with a grid as those of its cells.

    A cell has the grid's values as parameters and in its name, and is left out of quick runs where
    a value is not in quick_grid.
    """
    for table in tables:
        if not set(_GRID) & set(table):
            yield table
            continue
        where = f"row {table.get('name')}"
        read = place.read(where, {key: table[key] for key in _GRID if key in table},
                          {"grid": (_GRID["grid"], ...), "quick_grid": (_GRID["quick_grid"], None)})
        if not read["grid"]:
            continue
        grid, quick = read["grid"], {**read["grid"], **(read["quick_grid"] or {})}
        for key, values in quick.items():
            if not set(values) <= set(grid.get(key, ())):
                place.wrong(where, f"quick_grid.{key} has what grid.{key} has not")
        common = {key: value for key, value in table.items() if key not in _GRID}
        for values in itertools.product(*grid.values()):
            cell = dict(zip(grid, values))
            yield {**common, **cell, "grid": table.get("name"),
                   "name": "_".join([str(table.get("name")), *map(str, values)]),
                   "title": f"{table.get('title', table.get('name'))}: " + ", ".join(
                       f"{key} {value}" for key, value in cell.items()),
                   "full_only": table.get("full_only", False) or any(
                       cell[key] not in quick[key] for key in cell)}


def _check_names(place, experiment):
    """That what names rows names rows there are."""
    names = [row.name for row in experiment.rows]
    for name in {name for name in names if names.count(name) > 1}:
        place.wrong(f"row {name}", "is there twice")
    for row in experiment.rows:
        if not row.statics_of:
            continue
        if row.statics_of not in names:
            place.wrong(f"row {row.name}", unknown("row", row.statics_of, names))
        elif experiment.row(row.statics_of).placements != PLACEMENTS:
            place.wrong(f"row {row.name}", f"row {row.statics_of} lacks static runs of its own")
    _check_heat_maps(place, experiment)
    for key, wanted in (("retries", experiment.retries),
                        ("progress.rows", (experiment.progress or {}).get("rows") or ()),
                        ("sweep.rows", (experiment.sweep or {}).get("rows") or ())):
        for name in wanted:
            if name not in names:
                place.wrong(key, unknown("row", name, names))


def _check_heat_maps(place, experiment):
    """That what names grids and their values names those there are."""
    grids = list(dict.fromkeys(row.grid for row in experiment.rows if row.grid))
    wanted = [("heat_map", of["grid"]) for of in experiment.heat_maps]
    wanted += [(f"row {row.name}", claim.grid) for row in experiment.rows for claim in row.claims
               if claim.kind == "near_best"]
    for where, grid in wanted:
        if grid not in grids:
            place.wrong(where, unknown("grid", grid, grids))
    for of in experiment.heat_maps:
        cells = [{key: row.workload.get(key) for key in (of["x"], of["y"])}
                 for row in experiment.cells(of["grid"])]
        if cells and of["default"] not in cells:
            place.wrong("heat_map",
                        f"default is no cell of {of['grid']} by {of['x']} and {of['y']}")


def load(folder):
    """The Experiment of a folder; raises ExperimentError with every mistake, a line each."""
    folder = Path(folder)
    path = folder / FILE
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror}; copy "
                              f"{EXPERIMENTS / TEMPLATE} to begin with") from error
    except ValueError as error:  # of TOML, with line and column, or of UTF-8
        raise ExperimentError(f"{path}: {error}") from error
    place = _Place(path)
    top = place.read("", table, _EXPERIMENT)
    if top["progress"] is not None:
        top["progress"] = place.read("progress", top["progress"], _PROGRESS)
    if top["sweep"] is not None:
        top["sweep"] = place.read("sweep", top["sweep"], _SWEEP)
    heat_maps = tuple(place.read(f"heat_map {i}", of, _HEAT_MAP)
                      for i, of in enumerate(top["heat_map"] or (), 1))
    rows = tuple(_read_row(place, folder.name, i, row)
                 for i, row in enumerate(_rows(place, top["row"] or ()), 1))
    experiment = Experiment(
        folder.name, folder, top["title"], top["figure"], top["section"],
        top["bars"] or top["figure"], top["topology"], top["object"], top["not_runnable"],
        top["profile"], bool(top["beyond"]), tuple(top["assumptions"]), top["progress"],
        tuple(top["retries"]), rows, top["sweep"], heat_maps)
    if not place.errors:
        _check_names(place, experiment)
    if place.errors:
        raise ExperimentError("\n".join(place.errors))
    return experiment


def names(root=EXPERIMENTS):
    """The folders that hold an experiment."""
    return sorted(path.parent.name for path in Path(root).glob(f"*/{FILE}")
                  if path.parent.name != TEMPLATE)


def in_order(experiments):
    """As the paper has them, section by section."""
    return sorted(experiments, key=lambda of: (of.section or "~", of.figure, of.name))


def find(name, root=EXPERIMENTS):
    """The experiment of that name; raises ExperimentError."""
    known = names(root)
    if name in known:
        return load(Path(root) / name)
    folder = Path(name)
    if (folder / FILE).is_file():  # of one's own, elsewhere
        return load(folder.resolve())
    raise ExperimentError(unknown("experiment", name, known) +
                          f" Or give a folder with an {FILE}.")


def load_module(path, name):
    """A folder's Python file, run; raises ExperimentError with what it raised."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ExperimentError(f"{path}: {type(error).__name__}: {error}") from error
    return module


@dataclasses.dataclass(frozen=True)
class Profile:
    """A frozen set of constants; `sha256`: of its bytes, `node_sha256`: of PAPER_NODE where it is
    for that."""
    name: str
    path: Path
    text: str
    sha256: str
    node_sha256: str = ""

    @property
    def hashes(self):
        """Its name and what it can be known by, for people."""
        return f"{self.name}, SHA-256 {self.sha256}" + (
            f", with {PAPER_NODE.name} of {self.node_sha256}" if self.node_sha256 else "")

    def facts(self):
        """[(what, value)] of its contents that a reader of figures asks for first."""
        values = tomllib.loads(self.text)
        planner = values.get("config", {}).get("planner", {})
        part, gain = (planner.get(key) for key in ("fast_window", "fast_gain"))
        if part is None:
            lane = "on, with the engine's own constants"
        elif part >= 1:
            lane = "off"
        else:
            lane = f"on: {100 * part:g} % of a window may decide" + (
                f" where the gain is over {gain:g} x" if gain is not None else "")
        return [("repetition", f"{values.get('lab', {}).get('repetition', 'not stated')}, how often "
                 "the paper's work is done"),
                ("fast lane", f"{lane}; rows may say otherwise")]


def load_profile(name, root=EXPERIMENTS):
    """The Profile of that name; raises ExperimentError."""
    folder = Path(root) / "profiles"
    path = folder / f"{name}.toml"
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in known:
        raise ExperimentError(unknown("profile", name, known) if known else
                              f"there are no profiles in {folder}")
    data = path.read_bytes()
    try:
        values = tomllib.loads(data.decode())
    except ValueError as error:
        raise ExperimentError(f"{path}: {error}") from error
    of_paper = values.get("lab", {}).get("paper_node", False)
    return Profile(name, path, data.decode(), hashlib.sha256(data).hexdigest(),
                   hashlib.sha256(PAPER_NODE.read_bytes()).hexdigest() if of_paper else "")

"""Real programs: unmodified ones on a mount, and this project's applications on the same files.

What differs between placements: client and server have the engine suspended and what can move pinned
there before the program begins; adaptive has neither. What a program makes while it runs is made at
the client, and stays there where the engine is suspended.
"""

import datetime
import json
import os
import select
import shutil
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

from lab import LabError  # noqa: E402
from programs import JOBS, PROGRAMS, need_pil  # noqa: E402
from volume import END_S, Process, Volume  # noqa: E402

LIMIT_S = 900  # of a program
LOOK_S = 0.5   # until the server has been told of objects that are new
LOOKS = 20
MOVES_TOLD = 64  # a server keeps no more
# What moves of each application of `abacus run`.
CLASSES = {"grep": "apps.Grep", "word-count": "apps.WordCount", "aggregate": "apps.ColumnAggregate"}
# The program has the pipe open, as its descriptor 3, until it has ended.
STARTED = 'cd "$1" && out=$2 && shift 2 && echo ready && read -r go && exec "$@" 3>&1 >"$out"'

_kept = {}  # {row and seed: Inputs} of the run before, which the other placements use as well


class Inputs:
    """What a program reads, and what it did with it on the local disk of the client's node."""

    def __init__(self, lab, row, seed):
        self._owned = tempfile.TemporaryDirectory(prefix=lab.testbed.folder_prefix)
        self.folder = Path(self._owned.name) / "inputs"
        self.folder.mkdir()
        self.program = PROGRAMS[row["program"]]
        self.notes = self.program.inputs(self.folder, row, seed)
        scratch = Path(self._owned.name) / "local"
        shutil.copytree(self.folder, scratch)
        _, self.local_s, self.printed = timed(
            lab, row["clients"][0], self.program.words(row, seed), scratch, Path(self._owned.name),
            self.program.sorted)
        shutil.rmtree(scratch)

    def remove(self):
        self._owned.cleanup()


def inputs_of(lab, row, seed):
    key = json.dumps([row, seed], sort_keys=True)
    if key not in _kept:
        for kept in _kept.values():
            kept.remove()
        _kept.clear()
        _kept[key] = Inputs(lab, row, seed)
    return _kept[key]


def timed(lab, node, words, folder, files, in_any_order=False):
    """(begin by the clock of the day, seconds, what it printed) of a program that runs in `folder`
    on a node; raises LabError."""
    out = files / "printed"
    process = Process(lab, node, ["bash", "-c", STARTED, "bash", str(folder), str(out), *words],
                      files / "program.err", env={**os.environ, "LC_ALL": "C"})
    try:
        process.expect_ready()
        began, begun = time.time(), time.monotonic()
        process.popen.stdin.write(b"go\n")
        process.popen.stdin.flush()
        ended, _, _ = select.select([process.popen.stdout], [], [], LIMIT_S)
        elapsed_s = time.monotonic() - begun
        if not ended or process.popen.wait(END_S) != 0:
            raise LabError(f"{' '.join(words)[:200]}: {process.words()}")
    finally:
        process.end(gently=False)
    printed = out.read_bytes()
    return began, elapsed_s, (b"".join(sorted(printed.splitlines(True))) if in_any_order
                              else printed)


def run(lab, row, placement, seed, quick):
    if row["program"] == "thumbnails":
        need_pil()
    inputs = inputs_of(lab, row, seed)
    topology = getattr(lab.testbed, "topology", None)
    console = row["console"] if topology else row["clients"][0]
    with Volume(lab, inputs.folder, row["server"], row["clients"][0], console,
                lab.profile.stack(row["stack"])) as volume:
        job = Application if inputs.program.app else OnMount
        return job(lab, row, placement, seed, inputs, volume).record()


run.needs_root = ("these programs are not the lab's, so that links in user space would not carry what "
                  "they send")


class _Job:
    """One run, of which record() tells."""

    def __init__(self, lab, row, placement, seed, inputs, volume):
        self.lab, self.row, self.placement, self.seed = lab, row, placement, seed
        self.inputs, self.volume, self.program = inputs, volume, inputs.program
        self.client, self.server = row["clients"][0], row["server"]

    def _place(self, node_name):
        """Where a node's name is, as records have it."""
        return "server" if node_name == self.server else "client"

    def _compare(self, printed):
        if printed == self.inputs.printed:
            return
        theirs, ours = self.inputs.printed.splitlines(), printed.splitlines()
        differs = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b),
                       min(len(theirs), len(ours)))
        told = [lines[differs][:120] if differs < len(lines) else b"nothing"
                for lines in (ours, theirs)]
        raise LabError(f"a wrong result: line {differs + 1} is {told[0]!r} here and {told[1]!r} on "
                       f"the local disk ({len(ours)} and {len(theirs)} lines)")

    def _record(self, elapsed_s, begun, status, link_bytes, places, explanations):
        """`begun`: by the clock of the day; `places`: {key: place}."""
        moves = [move for move in status["moves"] if move["committed"] and
                 _seconds(move["ended"]) >= begun]
        migrations = [{"t_s": _seconds(move["ended"]) - begun, "client": self.client,
                       "object": what["class"], "from": self._place(move["from_name"]),
                       "to": self._place(move["to_name"]), "explanation": move["reason"]}
                      for move in moves for what in move["objects"]]
        if self.placement != "adaptive" and migrations:
            raise LabError(f"{len(migrations)} object(s) moved though all are held: "
                           f"{migrations[0]['explanation'] or migrations[0]['object']}")
        degraded = list(self.inputs.notes)
        if len(status["moves"]) >= MOVES_TOLD:
            degraded.append(f"the last {MOVES_TOLD} moves are told, and there were more")
        # What a client that has left by now had is not known any more.
        sources = {node["source"].split(";")[0] for node in status["nodes"] if "source" in node}
        return {"elapsed_s": elapsed_s, "phases": [],
                "clients": [{"node": self.client, "elapsed_s": elapsed_s, "operations": 1,
                             "retries": 0, "progress": [], "link_bytes": link_bytes}],
                "migrations": sorted(migrations, key=lambda move: move["t_s"]),
                "final_placement": places, "explanations": explanations,
                "source": ", ".join(sorted(sources)) or "unknown", "degraded": degraded,
                "window_s": self.lab.window_s,
                "baseline": {"name": "the same program on the client's local disk",
                             "elapsed_s": self.inputs.local_s}}


class OnMount(_Job):
    """A program that knows nothing of all this, in a mount at the client."""

    def record(self):
        folder = self.volume.mount()
        self._hold(folder)
        if self.placement != "adaptive":
            self.volume.command("engine", "--suspend")
            for one in self._movable(self._looked_at()):
                self.volume.command("pin", one["rid"], getattr(self, self.placement))
        before = self.volume.status()
        begun, elapsed_s, printed = timed(
            self.lab, self.client, self.program.words(self.row, self.seed), folder,
            self.volume.folder, self.program.sorted)
        after = self.volume.status()
        self._compare(printed)
        movable = self._movable(after)
        self._check_pins(before, after)
        return self._record(elapsed_s, begun, after, _bytes(after) - _bytes(before),
                            places(self.client, [(one["class"], self._place(one["node_name"]))
                                                 for one in movable]),
                            self._explanations(movable))

    def _hold(self, folder):
        """Has the objects made that can be made before, the same at each placement."""
        there = self.inputs.folder
        directories = [there, *(path for path in sorted(there.rglob("*")) if path.is_dir())]
        files = [path for pattern in self.program.held for path in sorted(there.glob(pattern))]
        names = [f"{folder / path.relative_to(there)}/" for path in directories]
        opened = [str(folder / path.relative_to(there)) for path in files]
        self.volume.hold([sys.executable, "-B", JOBS, "hold", *names, *opened], opened)
        self.held = len(names) + len(opened)  # an object of each can move

    def _movable(self, status):
        return [one for one in status["objects"] if one["mobile"]]

    def _looked_at(self):
        """The status, once all that is held is in it."""
        for _ in range(LOOKS):
            status = self.volume.status()
            if len(self._movable(status)) >= self.held:
                return status
            time.sleep(LOOK_S)
        raise LabError(f"of {self.held} objects that can move {len(self._movable(status))} are "
                       "known to the server")

    def _check_pins(self, before, after):
        """That what was pinned is where it was pinned."""
        if self.placement == "adaptive":
            return
        pinned = {one["rid"] for one in self._movable(before)}
        away = [one for one in self._movable(after) if one["rid"] in pinned and
                self._place(one["node_name"]) != self.placement]
        if away or len(pinned) < self.held:
            raise LabError(f"{len(away)} of {len(pinned)} objects are not where they were pinned; "
                           f"{self.held} are held")

    def _explanations(self, movable):
        """Of the busiest object of each class."""
        if self.placement != "adaptive":
            return {}
        busiest = {}
        for one in movable:
            if one["bytes_s"] >= busiest.get(one["class"], one)["bytes_s"]:
                busiest[one["class"]] = one
        told = {f"{self.client}/{name}": self.volume.explain(one["rid"])
                for name, one in busiest.items()}
        return {key: text for key, text in told.items() if text}


class Application(_Job):
    """`abacus run` with the same file, by an object that can go to the server; no mount."""

    def record(self):
        name, *arguments = self.program.app
        told = self.volume.folder / "run.json"
        words = [self.volume.abacus, "run", name, "--quiet", *self.volume.client_options(),
                 "--json", str(told)]
        if self.placement != "adaptive":
            words += ["--pin", self.placement]
        words += arguments
        if self.program.pipe:
            words = ["bash", "-c", 'set -o pipefail; count=$1; shift; "${@:1:count}" | '
                     '"${@:count+1}"', "bash", str(len(words)), *words, *self.program.pipe]
        begun, _, printed = timed(self.lab, self.client, words, self.volume.folder,
                                  self.volume.folder)
        ended = time.time()
        done = json.loads(told.read_text())
        status = self.volume.status()
        self._compare(printed)
        at = done["moves"][-1]["to"] if done["moves"] else ""
        place = self._place(at) if at else \
            "client" if self.placement == "adaptive" else self.placement
        # The time of the work itself: joining the server takes longer than a little work, and a
        # mount has joined before. Its moves are told by the time since the program began to join.
        elapsed_s = done["elapsed_s"]
        key = f"{self.client}/{CLASSES[name]}"
        explanations = {key: done["explanation"]} if self.placement == "adaptive" else {}
        if self.placement != "adaptive":  # the pin has moved it before it began to work
            begun = ended - elapsed_s
        return self._record(elapsed_s, begun, status, done["link_bytes"],
                            {key: place}, explanations)


def places(client, found):
    """{"client/class": place} of [(class, place)]; a class at both has a key of each, with how many."""
    counts = {}
    for pair in found:
        counts[pair] = counts.get(pair, 0) + 1
    both = {name for name, place in counts if (name, "client" if place == "server" else "server")
            in counts}
    return {f"{client}{f', {count} at the {place}' if name in both else ''}/{name}": place
            for (name, place), count in sorted(counts.items())}


def _seconds(text):
    return datetime.datetime.fromisoformat(text).timestamp()


def _bytes(status):
    counters = status["counters"]
    return counters["transport.sent_bytes"] + counters["transport.received_bytes"]

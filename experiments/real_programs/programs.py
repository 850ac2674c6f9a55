"""The programs of this experiment: what each reads, how it is started, and what it must print.

A program runs in a folder that holds its inputs: a mount, or a copy of them on the local disk. What
it prints there must be the same.
"""

import dataclasses
import itertools
import random
import shutil
import subprocess
import sys
from pathlib import Path

from lab import LabError

DOCUMENTATION = Path("/usr/share/doc")
SOURCES = "linux-doc-*/html/_sources"  # of Debian's package linux-doc: the sources, not compressed
PATTERN = "scheduler"
GENERATED = 3183  # files, as many as linux-doc-6.1 has, of 8 KB on average as there
TABLE_BLOCK_BYTES = 32 << 20  # of random rows; a larger table is this one again and again
REGIONS = ["north", "south", "east", "west", *(f"region{i}" for i in range(16))]
REGION = "north"
IMAGE_SIZE = (1600, 1200)
JOBS = str(Path(__file__).with_name("jobs.py"))


# --- inputs ---------------------------------------------------------------------------------------

def _documentation(seed):
    """Yields (name, bytes) of each file of linux-doc's sources, or of generated ones in their place."""
    found = sorted(DOCUMENTATION.glob(SOURCES))
    if found:
        for path in sorted(path for path in found[-1].rglob("*") if path.is_file()):
            yield path.relative_to(found[-1]), path.read_bytes()
        return
    rng = random.Random(seed)
    for i in range(GENERATED):
        yield Path(f"part{i % 40}", f"{i}.txt"), _prose(rng, rng.randrange(200, 15800)).encode()


def _notes():
    return [] if any(DOCUMENTATION.glob(SOURCES)) else \
        ["linux-doc is not installed (apt-get install linux-doc): its text is generated"]


def documentation_tree(folder, row, seed):
    """The first files of linux-doc below `sources`."""
    for name, text in itertools.islice(_documentation(seed), row["files"]):
        path = folder / "sources" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return _notes()


def text_file(folder, row, seed):
    """`doc.txt`: the files of the tree one after the other, again from the first if need be."""
    left = row["bytes"]
    with open(folder / "doc.txt", "wb") as file:
        while left > 0:
            for _, text in _documentation(seed):
                left -= file.write(text[:left])
    return _notes()


def _prose(rng, size):
    words = ["the", "kernel", "lock", "page", "device", "driver", "memory", "queue", "interrupt"]
    lines, length = [], 0
    while length < size:
        line = " ".join(rng.choice(words) for _ in range(12))
        if rng.random() < 0.02:
            line += f" {PATTERN}"
        lines.append(line + "\n")
        length += len(line) + 1
    return "".join(lines)


def table(folder, row, seed):
    """`data.csv`: id, day, region, product, units, price; a twentieth of the rows is REGION's."""
    rng = random.Random(seed)
    lines, size = [], 0
    while size < min(row["bytes"], TABLE_BLOCK_BYTES):
        line = (f"{len(lines)},2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02},"
                f"{REGIONS[rng.randrange(len(REGIONS))]},item{rng.randrange(5000)},"
                f"{rng.randrange(1, 100)},{rng.randrange(100, 100000) / 100:.2f}\n")
        lines.append(line)
        size += len(line)
    block = "".join(lines).encode()
    with open(folder / "data.csv", "wb") as file:
        for _ in range(max(1, round(row["bytes"] / size))):
            file.write(block)
    return []


def images(folder, row, seed):
    """JPEG files below `images`: soft shapes with grain, so that they are as large as photographs."""
    need_pil()
    from PIL import Image
    rng = random.Random(seed)
    (folder / "images").mkdir()
    (folder / "thumbs").mkdir()
    for i in range(row["images"]):
        shapes = Image.frombytes("RGB", (32, 24), rng.randbytes(32 * 24 * 3))
        grain = Image.frombytes("RGB", (400, 300), rng.randbytes(400 * 300 * 3))
        image = Image.blend(shapes.resize(IMAGE_SIZE, Image.BICUBIC),
                            grain.resize(IMAGE_SIZE, Image.BILINEAR), 0.15)
        image.save(folder / "images" / f"{i:04}.jpg", quality=88)
    return []


def need_pil():
    """Raises LabError where the interpreter that runs the thumbnailer has no PIL."""
    if subprocess.run([sys.executable, "-c", "import PIL"], capture_output=True).returncode:
        raise LabError(f"{sys.executable} has no PIL: apt-get install python3-pil")


def empty_base(folder, row, seed):
    """An empty file is an empty database: so its object is there before the program begins."""
    (folder / "base.db").touch()
    return []


# --- programs -------------------------------------------------------------------------------------

_AGGREGATE = f"""$3 == "{REGION}" {{ rows++; units += $5; turnover += $5 * $6 }}
END {{ printf "%d %d %.2f\\n", rows, units, turnover }}"""
# What `abacus run aggregate` prints of one column.
_SUM = f"""$3 == "{REGION}" {{ units = $5 + 0
  if (!rows || units < least) least = units
  if (!rows || units > most) most = units
  rows++; sum += units }}
END {{ printf "rows   %d\\nsum    %.15g\\n", rows, sum
  printf "least  %.15g\\nmost   %.15g\\n", least, most }}"""


@dataclasses.dataclass(frozen=True)
class Program:
    """`inputs(folder, row, seed)` makes its files and returns what must be told of them.

    `words(row, seed)` is started in their folder. `held`: patterns of the files that somebody has
    open before and while it runs, so that their objects are there and can be pinned. `app`: an
    application of `abacus run` and its arguments, which does the same without a mount, its output
    being `pipe`d.
    """
    inputs: object
    words: object
    held: tuple = ()
    sorted: bool = False  # it prints in the order of directories, which is not the same everywhere
    app: tuple = ()
    pipe: tuple = ()


def _awk(row, seed):
    return ["awk", "-F,", _AGGREGATE, "data.csv"]


def _sum(row, seed):
    return ["awk", "-F,", _SUM, "data.csv"]


def _grep(row, seed):
    return ["grep", "-n", PATTERN, "doc.txt"]


def _wc(row, seed):
    return ["wc", "doc.txt"]


PROGRAMS = {
    "grep_tree": Program(documentation_tree,
                         lambda row, seed: ["grep", "-rn", PATTERN, "sources"], sorted=True),
    "grep": Program(text_file, _grep, ("doc.txt",)),
    "grep_app": Program(text_file, _grep, app=("grep", PATTERN, "doc.txt")),
    "wc": Program(text_file, _wc, ("doc.txt",)),
    "wc_app": Program(text_file, _wc, app=("word-count", "doc.txt")),
    "csv": Program(table, _awk, ("data.csv",)),
    # The filter goes to the data, the sum stays: grep's line number joins the first column, the id.
    "csv_app": Program(table, _awk, app=("grep", f",{REGION},", "data.csv"),
                       pipe=("awk", "-F,", _AGGREGATE)),
    "sum_app": Program(table, _sum, app=("aggregate", "--sum", "5", "--where", f"3={REGION}",
                                         "data.csv")),
    "thumbnails": Program(images, lambda row, seed: [sys.executable, "-B", JOBS, "thumbnails",
                                                     "images", "thumbs"], ("images/*",)),
    "sqlite": Program(empty_base, lambda row, seed: [
        sys.executable, "-B", JOBS, "sqlite", "base.db", str(row["transactions"]),
        str(row["rows_each"]), str(seed)], ("base.db",)),
}

"""Programs that are run as they are, on whatever folder they are in: they know of no mount.

    jobs.py sqlite FILE TRANSACTIONS ROWS SEED     inserts, queries, a check; prints what was found
    jobs.py thumbnails IMAGES THUMBS               a small copy of each image; prints their hashes
    jobs.py hold WORD...                           has files open until its input ends

`hold`: a WORD that ends with / is a directory, in which a name is looked up that is not there.
"""

import hashlib
import random
import sys
from pathlib import Path

LOOKUPS = 300
THUMB = (256, 256)


def sqlite(file, transactions, rows, seed):
    import sqlite3
    rng = random.Random(int(seed))
    base = sqlite3.connect(file)
    base.execute("pragma synchronous = full")
    with base:
        base.execute("create table sales(id integer primary key, region text, units integer)")
        base.execute("create index by_region on sales(region)")
    for _ in range(int(transactions)):
        with base:
            base.executemany("insert into sales(region, units) values (?, ?)",
                             [(f"region {rng.randrange(20)}", rng.randrange(100))
                              for _ in range(int(rows))])
    base.close()
    base = sqlite3.connect(file)
    for row in base.execute("select region, count(*), sum(units) from sales group by region "
                            "order by region"):
        print(*row)
    count = int(transactions) * int(rows)
    print(sum(base.execute("select units from sales where id = ?",
                           (rng.randrange(1, count + 1),)).fetchone()[0] for _ in range(LOOKUPS)))
    with base:
        base.execute("delete from sales where id % 10 = 0")
    print(*base.execute("select count(*), sum(units) from sales").fetchone())
    print(*base.execute("pragma integrity_check").fetchone())
    base.close()
    print(hashlib.sha256(Path(file).read_bytes()).hexdigest())


def thumbnails(images, thumbs):
    from PIL import Image
    for path in sorted(Path(images).iterdir()):
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail(THUMB)
            small.save(Path(thumbs) / path.name, quality=85)
    for path in sorted(Path(thumbs).iterdir()):
        print(path.name, hashlib.sha256(path.read_bytes()).hexdigest())


def hold(*words):
    files = []
    for word in words:
        if word.endswith("/"):
            (Path(word) / "a name that is not there").exists()
        else:
            files.append(open(word, "rb"))
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    {"sqlite": sqlite, "thumbnails": thumbnails, "hold": hold}[sys.argv[1]](*sys.argv[2:])

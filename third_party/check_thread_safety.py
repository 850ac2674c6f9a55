#!/usr/bin/env python3
"""Runs clang's thread-safety analysis over a build that another compiler made.

    check_thread_safety.py BUILD_FOLDER [JOBS]

Each source file of the project (none that was generated) that stands in the build's
compile_commands.json is parsed with clang++ -fsyntax-only; no object file is made. Exit 1 if the
analysis finds anything or a file does not parse.
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLANG = ["clang++", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]

# What a parse depends on. All else (code generation, g++'s own warnings, outputs) is left behind,
# so that flags which clang does not know cannot get in the way.
KEPT = ("-D", "-U", "-I", "-isystem", "-iquote", "-include", "-std=")


def kept_flags(arguments):
    """The flags of one compile command that clang shall see too."""
    flags = []
    rest = iter(arguments)
    for argument in rest:
        if argument in KEPT:  # its value is the next word
            flags += [argument, next(rest, "")]
        elif argument.startswith(KEPT):
            flags.append(argument)
    return flags


def commands(build):
    """(file, folder, flags) for each source file of the project, once."""
    build = build.resolve()
    seen = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        file = Path(entry["directory"], entry["file"]).resolve()
        if file.suffix == ".cc" and build not in file.parents:
            words = entry.get("arguments") or shlex.split(entry["command"])
            seen.setdefault(file, (file, entry["directory"], kept_flags(words)))
    return sorted(seen.values())


def analyse(command):
    file, folder, flags = command
    return subprocess.run([*CLANG, *flags, str(file)], cwd=folder, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    jobs = int(sys.argv[2]) if len(sys.argv) == 3 else os.cpu_count()
    todo = commands(Path(sys.argv[1]))
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(analyse, todo):
            if result.returncode != 0:
                failed += 1
                print(result.stdout, flush=True)
    print(f"thread safety: {len(todo)} files, {failed} with findings")
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs clang's thread-safety analysis over a build that another compiler made.

    check_thread_safety.py BUILD_FOLDER [JOBS]

Each source file of the project (none that was generated) that stands in the build's
compile_commands.json and can touch what a lock guards is parsed with clang++ -fsyntax-only; no
object file is made. Exit 1 if the analysis finds anything or a file does not parse.

Guarded members are private, so they are touched in the header that declares them and in files that
include it by name. A test sees them only where it has some of its own, or those of a */testing
header; what its other headers define is analysed with their own source files.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLANG = ["clang++", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]

# What a parse depends on. All else (code generation, g++'s own warnings, outputs) is left behind,
# so that flags which clang does not know cannot get in the way.
KEPT = ("-D", "-U", "-I", "-isystem", "-iquote", "-include", "-std=")


ANNOTATED = re.compile(r"ABSL_\w*(GUARDED_BY|LOCKS_\w+|LOCKABLE)|\bMutexLock\b")
INCLUDED = re.compile(r'^#include "([^"]+)"', re.M)
UNITY = re.compile(r"unity_\d+_cxx\.cxx")
TARGET = re.compile(r".*?/?CMakeFiles/[^/]+\.dir/")
TOGETHER_MAX = 16


def can_touch(file, folders):
    """Whether the file, or a header that it includes by name, knows locks."""
    text = file.read_text(encoding="utf-8")
    if ANNOTATED.search(text):
        return True
    is_test = re.search(r"_(test|benchmark|fuzz)\.cc$|/testing/", str(file))
    for name in INCLUDED.findall(text):
        if is_test and "/testing/" not in name:
            continue
        for folder in folders:
            header = Path(folder, name)
            if header.is_file() and ANNOTATED.search(header.read_text(encoding="utf-8")):
                return True
    return False


def include_folders(folder, flags):
    """Where the flags look for headers, those next to -I alone."""
    return [Path(folder, flag[2:]) if flag != "-I" else Path(folder, flags[i + 1])
            for i, flag in enumerate(flags) if flag.startswith("-I")]


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


def sources(build, entry):
    """The source files of one compile command; those that a unity build put together, apart."""
    file = Path(entry["directory"], entry["file"]).resolve()
    if build in file.parents and UNITY.fullmatch(file.name):
        return [Path(name) for name in INCLUDED.findall(file.read_text(encoding="utf-8"))]
    return [file]


def commands(build):
    """([file, ...], folder, flags): each source file of the project once, those of a target together.

    Files of one target can be parsed as one, for a unity build does it too; their headers are read
    once then.
    """
    build = build.resolve()
    seen = set()
    together = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        flags = kept_flags(entry.get("arguments") or shlex.split(entry["command"]))
        folders = include_folders(entry["directory"], flags)
        for file in sources(build, entry):
            if file.suffix != ".cc" or build in file.parents or file in seen:
                continue
            if can_touch(file, folders):
                seen.add(file)
                target = TARGET.match(entry.get("output", ""))
                key = (target[0] if target else str(file), entry["directory"], tuple(flags))
                together.setdefault(key, []).append(file)
    return [(files[i:i + TOGETHER_MAX], folder, flags)
            for (_, folder, flags), files in sorted(together.items())
            for i in range(0, len(files), TOGETHER_MAX)]


def analyse(command):
    files, folder, flags = command
    text = "".join(f'#include "{file}"\n' for file in files)
    return subprocess.run([*CLANG, *flags, "-x", "c++", "-"], input=text, cwd=folder, text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


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
    count = sum(len(files) for files, _, _ in todo)
    print(f"thread safety: {count} files, {'findings' if failed else 'no findings'}")
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs clang's thread-safety analysis over a build that another compiler made.

    check_thread_safety.py BUILD_FOLDER [JOBS] [CLANG_BUILD_FOLDER]

Each source file of the project (none that was generated) that stands in the build's
compile_commands.json and can touch what a lock guards is parsed with clang++ -fsyntax-only; no
object file is made. Exit 1 if the analysis finds anything or a file does not parse.

Left out is what a build by clang has compiled, since the source was changed last, with findings as
errors: that has none.

Where ccache is there, it tells of what has not changed since that it has no findings. It keeps no
answer of a parse that failed.

Guarded members are private, so they are touched in the header that declares them and in files that
include it by name. A test sees them only where it has some of its own, or those of a */testing
header; what its other headers define is analysed with their own source files.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ERROR = "-Werror=thread-safety"
CLANG = ["clang++", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", ERROR]

# By the headers' own digests it finds what is unchanged, without a run of the preprocessor, and for
# a miss it takes from clang which headers those are.
CCACHE = {"CCACHE_DEPEND": "true", "CCACHE_ABSSTDERR": "true"}

# What a parse depends on. All else (code generation, g++'s own warnings, outputs) is left behind,
# so that flags which clang does not know cannot get in the way.
KEPT = ("-D", "-U", "-I", "-isystem", "-iquote", "-include", "-std=")

ANNOTATED = re.compile(r"ABSL_\w*(GUARDED_BY|LOCKS_\w+|LOCKABLE)|\bMutexLock\b")
INCLUDED = re.compile(r'^#include "([^"]+)"', re.M)
UNITY = re.compile(r"unity_\d+_cxx\.cxx")


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


def output(arguments):
    """The object file that a compile command makes; CMake 3.25 says it nowhere else."""
    return arguments[arguments.index("-o") + 1] if "-o" in arguments[:-1] else ""


def sources(build, entry):
    """The source files of one compile command; those that a unity build put together, apart."""
    file = Path(entry["directory"], entry["file"]).resolve()
    if build in file.parents and UNITY.fullmatch(file.name):
        return [Path(name) for name in INCLUDED.findall(file.read_text(encoding="utf-8"))]
    return [file]


def entries(build):
    """(entry, words) of each compile command of a build."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        yield entry, entry.get("arguments") or shlex.split(entry["command"])


def analysed(build):
    """The source files that a build has compiled where a finding is an error."""
    files = set()
    for entry, arguments in entries(build):
        compiled = Path(entry["directory"], output(arguments))
        if ERROR not in arguments or not compiled.is_file():
            continue
        made = compiled.stat().st_mtime
        files.update(file for file in sources(build, entry)
                     if file.is_file() and file.stat().st_mtime < made)
    return files


def commands(build, but):
    """(name, [file, ...], folder, flags): each source file of the project once, under a name that
    stays, without those of `but`. Those that a unity build put together are so here too: their
    headers are read once.
    """
    seen = set(but)
    todo = []
    for entry, arguments in entries(build):
        flags = kept_flags(arguments)
        folders = include_folders(entry["directory"], flags)
        files = [file for file in sources(build, entry)
                 if file.suffix == ".cc" and build not in file.parents and file not in seen
                 and can_touch(file, folders)]
        seen.update(files)
        if files:
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", output(arguments) or str(files[0]))
            todo.append((f"{name}.cc", files, entry["directory"], flags))
    return todo


def spelled(file, folders):
    """The file as an #include can name it, so that clones of the project say the same."""
    for folder in folders:
        if folder.resolve() in file.parents:
            return file.relative_to(folder.resolve())
    return file


def analyse(unities, command):
    name, files, folder, flags = command
    unity = unities / name
    folders = include_folders(folder, flags)
    unity.write_text("".join(f'#include "{spelled(file, folders)}"\n' for file in files),
                     encoding="utf-8")
    ccache = ["ccache"] if shutil.which("ccache") else []
    return subprocess.run(
        [*ccache, *CLANG, *flags, "-MD", "-MF", unity.with_suffix(".d"), "-c", unity, "-o",
         unity.with_suffix(".o")], cwd=folder, text=True, check=False, env=os.environ | CCACHE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main():
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    build = Path(sys.argv[1]).resolve()
    but = analysed(Path(sys.argv[3]).resolve()) if len(sys.argv) > 3 else set()
    todo = commands(build, but)
    unities = build / "thread_safety"
    unities.mkdir(exist_ok=True)
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(partial(analyse, unities), todo):
            if result.returncode != 0:
                failed += 1
                print(result.stdout, flush=True)
    count = sum(len(files) for _, files, _, _ in todo)
    there = f", and {len(but)} that clang has compiled" if but else ""
    print(f"thread safety: {count} files{there}, {'findings' if failed else 'no findings'}")
    return 1 if failed or not (todo or but) else 0


if __name__ == "__main__":
    sys.exit(main())

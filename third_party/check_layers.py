#!/usr/bin/env python3
"""Checks who includes whom, and the few habits that a compiler does not see.

    check_layers.py [ROOT]      each finding: FILE:LINE: what; the rule; the way out. Exit 1 if any.

The tables below are the rooms' contract: a room sees those to its left and never those to its
right, so that each can be read, tested and replaced alone.
"""

import os
import re
import sys
from pathlib import Path

# Room -> project folders or single headers that it may include beside its own.
ROOMS = {
    "placement": [],
    "monitor-ebpf": ["placement/statistics.h"],
    "runtime": ["placement/", "monitor-ebpf/thread_clock.h", "monitor-ebpf/monitor.h"],
    "objfs": ["runtime/base/", "runtime/object/"],
    "apps": ["runtime/", "objfs/", "placement/", "monitor-ebpf/"],
    "experiments": ["apps/", "runtime/", "objfs/", "placement/", "monitor-ebpf/"],
}

# Parts of runtime/: each may include itself and those to its left.
RUNTIME_PARTS = ["base", "object", "transport", "binding", "migration", "resource", "node"]

# Libraries of third_party/packages.txt, by the prefix of their headers.
LIBRARIES = {
    "absl/": "Abseil",
    "grpc/": "gRPC",
    "grpcpp/": "gRPC",
    "google/protobuf/": "Protobuf",
    "boost/": "Boost",
    "spdlog/": "spdlog",
    "fmt/": "fmt",
    "toml++/": "toml++",
    "CLI/": "CLI11",
    "nlohmann/": "nlohmann-json",
    "isa-l": "ISA-L",
    "bpf/": "libbpf",
    "fuse3/": "libfuse",
    "gtest/": "GoogleTest",
    "gmock/": "GoogleTest",
    "benchmark/": "Google Benchmark",
}
HEADERS_MAY_SHOW = {"Abseil"}
TEST_HEADERS_MAY_SHOW = {"Abseil", "GoogleTest", "Google Benchmark"}
TEST_LIBRARIES = {"GoogleTest", "Google Benchmark"}
GENERATED = re.compile(r"\.(grpc\.)?pb\.h$")
# The compiler's and the kernel's own headers: <vector>, <unistd.h>, <sys/mman.h>, ...
SYSTEM = re.compile(r"^<([a-z0-9_]+(\.h)?|(sys|linux|asm|net|netinet|arpa|sanitizer)/[\w./-]+)$")
# What bpftool makes of a BPF program, and the kernel's types for one: found by a path of their own.
BPF_GENERATED = re.compile(r"^(vmlinux|\w+\.skel)\.h$")

# placement/ is a function of its input: what would let it wait, look at a clock or at the machine.
IMPURE = re.compile(
    r"^(thread|stop_token|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier"
    r"|chrono|ctime|time\.h|fstream|iostream|filesystem|unistd\.h|fcntl\.h|pthread\.h"
    r"|(sys|linux|net|netinet|arpa)/.*|absl/time/clock\.h)$")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
# In one pass, so that a quote in a comment and a // in a string mislead nobody.
COMMENT_OR_LITERAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>'(?:\\[^'\n]+|[^'\\\n])')""", re.S | re.X)

# (pattern, rule, way out), sought in code without comments and literals.
ABSL_MUTEX = (
    re.compile(r"\babsl::(\w*Mutex\w*|CondVar|Notification|BlockingCounter|Barrier)\b"),
    "Abseil's locks are invisible to ThreadSanitizer in the distribution's build",
    "use Mutex, MutexLock and CondVar of runtime/base/mutex.h")
STD_MUTEX = (
    re.compile(r"\bstd::\w*mutex\b"),
    "a bare mutex escapes thread-safety analysis and the count of held locks",
    "use Mutex and MutexLock of runtime/base/mutex.h")
SLEEP = (
    re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor)\b|(?<![\w.>])sleep\s*\("),
    "a sleep in a test hides a race or wastes time",
    "wait for the event itself: a sync point, a join, or a clock handed in")


def is_test(path):
    return bool(re.search(r"_(test|benchmark|fuzz)\.cc$|(^|/)testing/", path))


def blank(text, keep_strings):
    """`text` with comments and literals replaced by spaces, line numbers kept."""

    def replace(match):
        if keep_strings and match.lastgroup == "string":
            return match.group()
        return re.sub(r"[^\n]", " ", match.group())

    return COMMENT_OR_LITERAL.sub(replace, text)


def runtime_part(path):
    """The part of runtime/ that `path` is in, or None where it stands outside of all parts."""
    pieces = path.split("/")
    return pieces[1] if pieces[0] == "runtime" and len(pieces) > 2 else None


def check_project_include(path, target):
    """Why `path` must not include the project's header `target`, as (rule, way out), or None."""
    room, target_room = path.split("/")[0], target.split("/")[0]
    if target_room == "experiments" and room != "experiments":
        return ("nothing includes experiments/", "move what is shared into the room that owns it")
    if is_test(path):
        return None
    if "/testing/" in target:
        return ("only tests, benchmarks, fuzz targets and testing/ see testing/",
                "move what programs need out of testing/, or this use into a test")
    if target_room != room:
        if any(target == seen or (seen.endswith("/") and target.startswith(seen))
               for seen in ROOMS[room]):
            return None
        may = ", ".join(ROOMS[room]) or "no other room"
        return (f"{room}/ may include: {may}",
                "hand the thing in through an interface that this room declares")
    if room == "runtime":
        part, target_part = runtime_part(path), runtime_part(target)
        for name in (part, target_part):
            if name not in RUNTIME_PARTS:
                return (f"runtime/ has the parts {' <- '.join(RUNTIME_PARTS)}",
                        "put the file into the part it belongs to")
        if RUNTIME_PARTS.index(target_part) > RUNTIME_PARTS.index(part):
            return (f"{' <- '.join(RUNTIME_PARTS)}: left never includes right",
                    f"declare an interface in runtime/{part}/ that {target_part} implements")
    return None


def check_library_include(path, target, bracket):
    """The same for a header that the project does not hold; `bracket` is its include's < or "."""
    room = path.split("/")[0]
    if target.startswith("absl/synchronization/"):
        return ABSL_MUTEX[1:]
    if room == "placement" and not is_test(path) and IMPURE.match(target):
        return ("placement/ is pure: no threads, clocks, I/O or chance of its own",
                "take the value as an argument")
    if GENERATED.search(target):
        library = "generated Protobuf code"
    else:
        library = next((LIBRARIES[p] for p in LIBRARIES if target.startswith(p)), None)
    if library is None:
        if SYSTEM.match(bracket + target) or BPF_GENERATED.match(target):
            return None
        return ("includes are written from the project's root, and each library is known by name",
                "write the whole path; or, for a new library, add its package to "
                "third_party/packages.txt and its prefix to check_layers.py")
    if library in TEST_LIBRARIES and not is_test(path) and room != "experiments":
        return (f"{library} is for tests and benchmarks", "move this into a test or testing/")
    if room == "placement" and library != "Abseil" and not is_test(path):
        return ("placement/ uses the standard library and Abseil only",
                "let the caller hand the data in")
    if path.endswith(".h"):
        shown = TEST_HEADERS_MAY_SHOW if is_test(path) else HEADERS_MAY_SHOW
        if library not in shown:
            return (f"{library} stays in .cc files: headers show the standard library and Abseil",
                    "forward-declare, or hide it behind a class defined in the .cc")
    return None


def check_habits(path, text):
    """Yields (offset, what, rule, way out) for each banned name in `text`."""
    rules = [ABSL_MUTEX]
    if not is_test(path) and path != "runtime/base/mutex.h" \
            and not path.startswith("monitor-ebpf/"):
        rules.append(STD_MUTEX)
    if path.endswith("_test.cc"):
        rules.append(SLEEP)
    for pattern, rule, way_out in rules:
        for match in pattern.finditer(text):
            yield match.start(), match.group().strip(" ("), rule, way_out


def check_file(path, text):
    """Findings of one file; `path` is from the project's root."""
    found = []
    code = blank(text, keep_strings=True)
    for match in INCLUDE.finditer(code):
        bracket, target = match.groups()
        problem = None
        in_project = target.split("/")[0] in ROOMS
        if in_project:
            problem = check_project_include(path, target)
        if not in_project or GENERATED.search(target):
            problem = problem or check_library_include(path, target, bracket)
        if problem:
            found.append((match.start(2), f"includes {target}", *problem))
    found.extend(check_habits(path, blank(text, keep_strings=False)))
    return [f"{path}:{text.count(chr(10), 0, at) + 1}: {what}\n"
            f"    rule: {rule}\n    way out: {way_out}" for at, what, rule, way_out in sorted(found)]


def check_tree(root):
    """Findings of all rooms under `root`, and the number of files read."""
    findings, files = [], 0
    for room in ROOMS:
        for folder, _, names in sorted(os.walk(root / room)):
            for name in sorted(names):
                if not name.endswith((".h", ".cc", ".c")):
                    continue
                path = Path(folder, name)
                files += 1
                findings += check_file(path.relative_to(root).as_posix(),
                                       path.read_text(encoding="utf-8"))
    return findings, files


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    findings, files = check_tree(root)
    print("\n".join([*findings, f"layers: {files} files, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

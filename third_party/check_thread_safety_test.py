#!/usr/bin/env python3
"""check_thread_safety.py finds an unguarded access, whatever flags g++ was called with."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("check_thread_safety.py")
ROOT = Path(__file__).resolve().parent.parent

SOURCE = """
#include "runtime/base/mutex.h"
#ifndef NEEDED
#error the definition was lost
#endif
struct Counter {
  abacus::runtime::Mutex mutex;
  int value ABSL_GUARDED_BY(mutex) = 0;
};
void Add(Counter& counter) {
  %s
  ++counter.value;
}
"""

SHARED = """
#include "runtime/base/mutex.h"
inline abacus::runtime::Mutex shared_mutex;
inline int shared ABSL_GUARDED_BY(shared_mutex) = 0;
"""


@unittest.skipUnless(shutil.which("clang++"), "clang++ is not installed")
class ThreadSafety(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.build = self.folder / "build"
        self.build.mkdir()
        self.environment = {**os.environ, "CCACHE_DIR": str(self.folder / "cache")}

    def run_on(self, body, flags="-DNEEDED=1", generated="", other="", unity=False, shared=SHARED,
               but=()):
        folder, build = self.folder, self.build
        (folder / "counter.cc").write_text(SOURCE % body)
        (build / "generated.cc").write_text(generated)
        (folder / "other.cc").write_text(other)
        (folder / "shared.h").write_text(shared)
        names = ("../counter.cc", "../counter.cc", "../other.cc", "generated.cc")
        if unity:
            names = ("unity_0_cxx.cxx",)
            (build / names[0]).write_text(
                f'/* made */\n#include "{folder}/counter.cc"\n\n'
                f'#include "{folder}/other.cc"\n\n')
        command = (f"ccache /usr/bin/c++ {flags} -I {ROOT} -I{folder} -std=c++20 -O1 -Wno-tsan "
                   "-fno-sanitize-recover=all -fconcepts-diagnostics-depth=2 "
                   "-o CMakeFiles/target.dir/%s.o -c %s")
        (build / "compile_commands.json").write_text(json.dumps([
            {"directory": str(build), "file": name, "command": command % (name, name)}
            for name in names]))
        return subprocess.run([sys.executable, SCRIPT, build, "1", *but], capture_output=True,
                              text=True, check=False, env=self.environment)

    def clang_build(self, flags, made_s):
        """One that has compiled counter.cc so many seconds after it was changed."""
        clang = self.folder / "clang"
        clang.mkdir()
        (clang / "unity_0_cxx.cxx").write_text(f'#include "{self.folder}/counter.cc"\n')
        (clang / "compile_commands.json").write_text(json.dumps([
            {"directory": str(clang), "file": "unity_0_cxx.cxx",
             "command": f"clang++ {flags} -o counter.o -c unity_0_cxx.cxx"},
            {"directory": str(clang), "file": "../other.cc",
             "command": f"clang++ {flags} -o other.o -c ../other.cc"}]))
        (self.folder / "counter.cc").write_text(SOURCE % "")
        now = (self.folder / "counter.cc").stat().st_mtime
        (clang / "counter.o").touch()
        os.utime(clang / "counter.o", (now + made_s, now + made_s))
        return [str(clang)]

    def cache_counts(self):
        lines = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True,
                               check=True, env=self.environment).stdout.splitlines()
        counts = dict(line.split("\t") for line in lines)
        return int(counts["direct_cache_hit"]), int(counts["cache_miss"])

    def test_guarded_access_passes(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);")
        self.assertEqual((0, "thread safety: 1 files, no findings\n"),
                         (result.returncode, result.stdout))

    def test_unguarded_access_is_found(self):
        result = self.run_on("")
        self.assertEqual(1, result.returncode)
        self.assertIn("counter.cc:12:13: error: writing variable 'value' requires holding mutex",
                      result.stdout)

    def test_what_clang_has_compiled_is_left_out(self):
        but = self.clang_build("-Wthread-safety -Werror=thread-safety", made_s=60)
        result = self.run_on("", but=but)
        self.assertEqual((0, "thread safety: 0 files, and 1 that clang has compiled, no findings\n"),
                         (result.returncode, result.stdout))
        # What was not compiled there is looked at.
        result = self.run_on("", other='#include "shared.h"\nint Read() { return shared; }\n',
                             but=but)
        self.assertEqual(1, result.returncode)
        self.assertIn("reading variable 'shared' requires holding mutex", result.stdout)
        self.assertNotIn("counter.cc", result.stdout)

    def test_what_clang_compiled_before_it_was_changed_is_looked_at(self):
        result = self.run_on("", but=self.clang_build("-Werror=thread-safety", made_s=-60))
        self.assertEqual(1, result.returncode)

    def test_what_clang_compiled_without_errors_for_findings_is_looked_at(self):
        result = self.run_on("", but=self.clang_build("-Wthread-safety", made_s=60))
        self.assertEqual(1, result.returncode)

    def test_file_that_does_not_parse_fails(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);", flags="")
        self.assertEqual(1, result.returncode)
        self.assertIn("the definition was lost", result.stdout)

    def test_access_to_what_a_header_guards_is_found(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);",
                             other='#include "shared.h"\nint Read() { return shared; }\n')
        self.assertEqual(1, result.returncode)
        self.assertIn("reading variable 'shared' requires holding mutex", result.stdout)

    def test_files_that_know_no_locks_are_left_out(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);",
                             other="#error parsed\n")
        self.assertEqual((0, "thread safety: 1 files, no findings\n"),
                         (result.returncode, result.stdout))

    def test_files_of_a_unity_build_are_found(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);", unity=True,
                             other='#include "shared.h"\nint Read() { return shared; }\n')
        self.assertEqual(1, result.returncode)
        self.assertIn("reading variable 'shared' requires holding mutex", result.stdout)
        self.assertIn("thread safety: 2 files, findings", result.stdout)

    def test_files_of_a_unity_build_that_know_no_locks_are_left_out(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);", unity=True,
                             other="#error parsed\n")
        self.assertEqual((0, "thread safety: 1 files, no findings\n"),
                         (result.returncode, result.stdout))

    def test_generated_files_are_left_out(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);",
                             generated="#error generated")
        self.assertEqual(0, result.returncode, result.stdout)

    def test_files_of_a_unity_build_are_parsed_together(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);", unity=True,
                             other='#include "shared.h"\nstatic_assert(sizeof(Counter) > 0);\n')
        self.assertEqual((0, "thread safety: 2 files, no findings\n"),
                         (result.returncode, result.stdout))

    @unittest.skipUnless(shutil.which("ccache"), "ccache is not installed")
    def test_what_has_not_changed_is_not_parsed_again(self):
        for _ in range(2):
            result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);")
            self.assertEqual(0, result.returncode, result.stdout)
        self.assertEqual((1, 1), self.cache_counts())

    @unittest.skipUnless(shutil.which("ccache"), "ccache is not installed")
    def test_findings_are_found_again(self):
        for _ in range(2):
            result = self.run_on("")
            self.assertEqual(1, result.returncode)
            self.assertIn(f"{self.folder}/counter.cc:12:13: error: writing variable 'value'",
                          result.stdout)

    @unittest.skipUnless(shutil.which("ccache"), "ccache is not installed")
    def test_what_a_header_newly_guards_is_found(self):
        other = '#include "shared.h"\nint Read() { return shared; }\n'
        unguarded = SHARED.replace("ABSL_GUARDED_BY(shared_mutex) ", "").replace(
            "\ninline int", "  // ABSL_GUARDED_BY\ninline int")
        for shared, code in ((unguarded, 0), (SHARED, 1), (unguarded, 0), (SHARED, 1)):
            result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);", other=other,
                                 shared=shared)
            self.assertEqual(code, result.returncode, result.stdout)


if __name__ == "__main__":
    unittest.main()

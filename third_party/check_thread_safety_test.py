#!/usr/bin/env python3
"""check_thread_safety.py finds an unguarded access, whatever flags g++ was called with."""

import json
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
    def run_on(self, body, flags="-DNEEDED=1", generated="", other="", unity=False):
        with tempfile.TemporaryDirectory() as folder:
            build = Path(folder, "build")
            build.mkdir()
            Path(folder, "counter.cc").write_text(SOURCE % body)
            (build / "generated.cc").write_text(generated)
            Path(folder, "other.cc").write_text(other)
            Path(folder, "shared.h").write_text(SHARED)
            command = (f"ccache /usr/bin/c++ {flags} -I {ROOT} -I{folder} -std=c++20 -O1 -Wno-tsan "
                       "-fno-sanitize-recover=all -fconcepts-diagnostics-depth=2 -o counter.o -c ")
            names = ("../counter.cc", "../counter.cc", "../other.cc", "generated.cc")
            if unity:
                names = ("unity_0_cxx.cxx",)
                (build / names[0]).write_text(
                    f'/* made */\n#include "{folder}/counter.cc"\n\n'
                    f'#include "{folder}/other.cc"\n\n')
            (build / "compile_commands.json").write_text(json.dumps([
                {"directory": str(build), "file": name, "command": command + name,
                 "output": f"CMakeFiles/target.dir/{name}.o"} for name in names]))
            return subprocess.run([sys.executable, SCRIPT, build, "1"], capture_output=True,
                                  text=True, check=False)

    def test_guarded_access_passes(self):
        result = self.run_on("abacus::runtime::MutexLock lock(counter.mutex);")
        self.assertEqual((0, "thread safety: 1 files, no findings\n"),
                         (result.returncode, result.stdout))

    def test_unguarded_access_is_found(self):
        result = self.run_on("")
        self.assertEqual(1, result.returncode)
        self.assertIn("counter.cc:12:13: error: writing variable 'value' requires holding mutex",
                      result.stdout)

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


if __name__ == "__main__":
    unittest.main()

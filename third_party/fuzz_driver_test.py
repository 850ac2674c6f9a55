#!/usr/bin/env python3
"""runtime/testing/fuzz_driver.cc reaches a planted bug, and what it leaves behind replays it."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Writes down each input's size, so that a test sees what was run, and dies in the way asked for.
TARGET = """
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <unistd.h>
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::FILE* log = std::fopen("inputs.log", "w");
  std::fprintf(log, "%zu %d\\n", size, size > 0 ? data[size / 2] : -1);
  std::fflush(log);
  if (size < 9 || data[4] != 0xff || data[5] != 0xff) return 0;
  if (data[0] == 'a') std::abort();
  if (data[0] == 'e') _exit(99);  // a sanitizer's way out
  if (data[0] == 't') throw std::runtime_error("escaped");
  return 0;
}
"""


class FuzzDriver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        target = Path(cls.folder.name, "target.cc")
        target.write_text(TARGET)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-o",
                        target.with_suffix(""), target, ROOT / "runtime/testing/fuzz_driver.cc"],
                       check=True)

    def setUp(self):
        self.crash_input = Path(self.folder.name, "target.crash-input")
        self.crash_input.unlink(missing_ok=True)
        self.corpus = Path(self.folder.name, self.id().rsplit(".", 1)[-1])
        self.corpus.mkdir()

    def fuzz(self, *arguments, **environment):
        return subprocess.run(["./target", *arguments], cwd=self.folder.name, text=True,
                              capture_output=True, check=False,
                              env={"PATH": os.environ["PATH"], **environment})

    def inputs(self):
        return Path(self.folder.name, "inputs.log").read_text()

    def test_each_way_to_die_leaves_an_input_that_replays_it(self):
        for start, code in ((b"a", -6), (b"e", 99), (b"t", -6)):
            with self.subTest(start=start):
                (self.corpus / "seed").write_bytes(start + bytes(15))
                died = self.fuzz(str(self.corpus))
                self.assertEqual(code, died.returncode, died.stderr)
                data = self.crash_input.read_bytes()
                self.assertEqual((start, b"\xff\xff"), (data[:1], data[4:6]))
                replayed = self.fuzz(self.crash_input.name)
                self.assertEqual(code, replayed.returncode)
                self.assertEqual(data, self.crash_input.read_bytes())
                self.assertEqual(1, len(self.inputs().splitlines()))

    def test_clean_run_counts_inputs_and_leaves_nothing(self):
        (self.corpus / "deeper").mkdir()
        (self.corpus / "one").write_bytes(b"1")
        (self.corpus / "deeper" / "two").write_bytes(b"22")
        run = self.fuzz(str(self.corpus))
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertIn("2 corpus files and 20000 mutations in ", run.stdout)
        self.assertEqual(20002, len(self.inputs().splitlines()))
        self.assertFalse(self.crash_input.exists())

    def test_seed_decides_the_inputs(self):
        def of(seed):
            self.assertEqual(0, self.fuzz(ABACUS_SEED=seed).returncode)
            return self.inputs()
        self.assertEqual(of("7"), of("7"))
        self.assertNotEqual(of("7"), of("8"))

    def test_no_corpus_starts_from_the_empty_input(self):
        self.assertEqual(0, self.fuzz().returncode)
        self.assertEqual("0 -1", self.inputs().splitlines()[0])

    def test_mistakes_are_named(self):
        for run, text in ((self.fuzz("missing"), "cannot read missing"),
                          (self.fuzz(ABACUS_SEED="x"), "ABACUS_SEED must be a number")):
            self.assertEqual(2, run.returncode)
            self.assertIn(text, run.stderr)


if __name__ == "__main__":
    unittest.main()

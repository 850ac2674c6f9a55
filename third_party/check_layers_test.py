#!/usr/bin/env python3
"""Each rule of check_layers.py: what breaks it is found, what keeps it is not."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from check_layers import check_file

SCRIPT = Path(__file__).with_name("check_layers.py")


def findings(path, *lines):
    return check_file(path, "\n".join(lines) + "\n")


def include(path, target):
    quoted = target if target.startswith("<") else f'"{target}"'
    return findings(path, f"#include {quoted}")


class IncludesBetweenRooms(unittest.TestCase):
    FORBIDDEN = [
        ("placement/engine.cc", "runtime/base/ids.h"),
        ("placement/engine.cc", "monitor-ebpf/monitor.h"),
        ("monitor-ebpf/plain.cc", "placement/engine.h"),
        ("monitor-ebpf/plain.cc", "runtime/base/mutex.h"),
        ("runtime/node/node.cc", "objfs/layer.h"),
        ("runtime/node/node.cc", "apps/grep.h"),
        ("runtime/resource/manager.cc", "monitor-ebpf/plain.h"),
        ("objfs/cache.cc", "runtime/node/node.h"),
        ("objfs/cache.cc", "runtime/binding/manager.h"),
        ("objfs/cache.cc", "placement/engine.h"),
        ("apps/grep.cc", "experiments/demo/corpus.h"),
        ("apps/grep_test.cc", "experiments/demo/corpus.h"),
        ("runtime/base/codec.cc", "runtime/object/ref.h"),
        ("runtime/object/ref.h", "runtime/binding/manager.h"),
        ("runtime/migration/source.cc", "runtime/resource/account.h"),
        ("runtime/misc/thing.cc", "runtime/base/ids.h"),
        ("runtime/node/node.cc", "runtime/testing/lossy.h"),
        ("objfs/cache.cc", "runtime/node/control.pb.h"),
    ]
    ALLOWED = [
        ("monitor-ebpf/plain.cc", "placement/statistics.h"),
        ("runtime/resource/manager.cc", "placement/engine.h"),
        ("runtime/object/frames.h", "monitor-ebpf/thread_clock.h"),
        ("runtime/node/node.cc", "monitor-ebpf/monitor.h"),
        ("runtime/node/node.cc", "runtime/base/ids.h"),
        ("runtime/node/node.cc", "runtime/node/control.pb.h"),
        ("objfs/cache.cc", "runtime/object/ref.h"),
        ("objfs/cache.cc", "objfs/layer.h"),
        ("apps/abacus.cc", "monitor-ebpf/plain.h"),
        ("experiments/demo/demo.cc", "apps/grep.h"),
        ("experiments/demo/demo.cc", "experiments/demo/corpus.h"),
        ("runtime/base/codec_test.cc", "runtime/node/node.h"),
        ("runtime/base/codec_benchmark.cc", "runtime/testing/lossy.h"),
        ("runtime/base/codec_fuzz.cc", "objfs/layer.h"),
        ("runtime/testing/lossy.h", "runtime/transport/transport.h"),
        ("placement/testing/oracle.cc", "runtime/base/ids.h"),
    ]

    def test_forbidden(self):
        for path, target in self.FORBIDDEN:
            with self.subTest(path=path, target=target):
                self.assertEqual(1, len(include(path, target)))

    def test_allowed(self):
        for path, target in self.ALLOWED:
            with self.subTest(path=path, target=target):
                self.assertEqual([], include(path, target))


class IncludesOfLibraries(unittest.TestCase):
    FORBIDDEN = [
        ("runtime/node/node.h", "<grpcpp/grpcpp.h>"),
        ("runtime/node/node.h", "runtime/node/control.pb.h"),
        ("runtime/node/node.h", "runtime/node/control.grpc.pb.h"),
        ("runtime/node/node.h", "google/protobuf/message.h"),
        ("runtime/transport/data.h", "<boost/asio.hpp>"),
        ("apps/options.h", "<CLI/CLI.hpp>"),
        ("placement/engine.cc", "<boost/asio.hpp>"),
        ("placement/engine.cc", "spdlog/spdlog.h"),
        ("placement/engine.cc", "<thread>"),
        ("placement/engine.cc", "<sys/socket.h>"),
        ("placement/engine.cc", "absl/time/clock.h"),
        ("runtime/base/status.cc", "gtest/gtest.h"),
        ("runtime/base/status.cc", "absl/synchronization/mutex.h"),
        ("runtime/base/status.cc", "<rocksdb/db.h>"),
        ("runtime/base/status.cc", "status.h"),
    ]
    ALLOWED = [
        ("runtime/node/node.cc", "<grpcpp/grpcpp.h>"),
        ("runtime/transport/data.cc", "<boost/asio.hpp>"),
        ("runtime/base/status.h", "absl/status/statusor.h"),
        ("runtime/base/block.cc", "<sys/mman.h>"),
        ("runtime/base/block.cc", "<isa-l/crc.h>"),
        ("runtime/base/status_test.cc", "gtest/gtest.h"),
        ("runtime/testing/matchers.h", "gmock/gmock.h"),
        ("placement/engine.h", "absl/time/time.h"),
        ("placement/engine.cc", "<vector>"),
        ("placement/engine_benchmark.cc", "<thread>"),
        ("monitor-ebpf/bpf.cc", "monitor.skel.h"),
    ]
    test_forbidden = IncludesBetweenRooms.test_forbidden
    test_allowed = IncludesBetweenRooms.test_allowed


class Habits(unittest.TestCase):
    def test_absl_mutex_is_found_everywhere(self):
        for path in ("runtime/node/node.cc", "runtime/node/node_test.cc", "runtime/base/mutex.h"):
            self.assertEqual(1, len(findings(path, "absl::MutexLock lock(&mutex_);")), path)

    def test_std_mutex_is_for_the_wrapper_tests_and_the_monitor(self):
        line = "std::shared_mutex mutex_;"
        self.assertEqual(1, len(findings("runtime/node/node.cc", line)))
        for path in ("runtime/base/mutex.h", "monitor-ebpf/plain.cc", "apps/grep_test.cc"):
            self.assertEqual([], findings(path, line), path)

    def test_sleep_in_a_test(self):
        for line in ("std::this_thread::sleep_for(1ms);", "usleep(10);", "sleep(1);",
                     "absl::SleepFor(absl::Seconds(1));"):
            self.assertEqual(1, len(findings("runtime/node/node_test.cc", line)), line)
            self.assertEqual([], findings("runtime/node/node.cc", line), line)
        self.assertEqual([], findings("runtime/node/node_test.cc", "clock.sleep(1); asleep(1);"))

    def test_comments_and_literals_are_not_code(self):
        self.assertEqual([], findings(
            "runtime/node/node.cc", "// absl::Mutex", "/* std::mutex", '#include "objfs/a.h" */',
            'Log("std::mutex // \\" absl::Mutex");', 'R"(', '#include "apps/a.h"', ')"',
            "char quote = '\"'; // std::mutex", "int million = 1'000'000;"))

    def test_code_after_a_comment_or_literal_is_code(self):
        self.assertEqual(1, len(findings("runtime/node/node.cc",
                                         "char c = '\"'; std::mutex a; // \"")))
        self.assertEqual(1, len(findings("runtime/node/node.cc", '/* " */ std::mutex a; /* " */')))


class Reports(unittest.TestCase):
    def test_finding_names_line_rule_and_way_out(self):
        [finding] = findings("objfs/cache.cc", "// first", '#include "runtime/node/node.h"')
        self.assertTrue(finding.startswith("objfs/cache.cc:2: includes runtime/node/node.h\n"))
        self.assertIn("rule: objfs/ may include: runtime/base/, runtime/object/", finding)
        self.assertIn("way out: ", finding)

    def test_exit_code_tells_a_clean_tree_from_one_with_findings(self):
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root, "runtime", "base")
            folder.mkdir(parents=True)
            (folder / "ids.h").write_text("#include <cstdint>\n")
            clean = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            (folder / "bad.cc").write_text('#include "apps/grep.h"\n')
            dirty = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
        self.assertEqual((0, "layers: 1 files, 0 findings\n"), (clean.returncode, clean.stdout))
        self.assertEqual(1, dirty.returncode)
        self.assertIn("runtime/base/bad.cc:1: includes apps/grep.h", dirty.stdout)


if __name__ == "__main__":
    unittest.main()

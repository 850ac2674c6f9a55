"""The commit that a result is of, in a repository of its own."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import manifest


class CommitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.project = Path(folder.name)
        patched = mock.patch.object(manifest, "PROJECT", self.project)
        patched.start()
        self.addCleanup(patched.stop)
        self.git("init", "--quiet")
        self.committed("runtime/node.cc", "1")

    def git(self, *words):
        return subprocess.run(
            ["git", "-C", str(self.project), "-c", "user.name=n", "-c", "user.email=e", *words],
            check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name, text):
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def committed(self, name, text):
        """The commit that writes the file."""
        self.write(name, text)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "m")
        return self.git("rev-parse", "HEAD")

    def test_it_is_the_last_one_that_changed_more_than_prose(self):
        code = self.committed("runtime/node.cc", "2")
        self.assertEqual(manifest.commit(), code)
        self.committed("README.md", "what was measured")
        self.committed("experiments/figure/README.md", "what was measured")
        self.assertEqual(manifest.commit(), code)
        newer = self.committed("runtime/node.cc", "3")
        self.assertEqual(manifest.commit(), newer)

    def test_files_that_differ_are_in_it_prose_is_not(self):
        clean = manifest.commit()
        self.write("README.md", "not committed")
        self.assertEqual(manifest.commit(), clean)
        self.write("runtime/node.cc", "2")
        changed = manifest.commit()
        self.assertRegex(changed, f"^{clean}[+][0-9a-f]{{12}}$")
        self.write("runtime/new.cc", "")
        self.assertNotEqual(manifest.commit(), changed)


if __name__ == "__main__":
    unittest.main()

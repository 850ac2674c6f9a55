"""A volume on a node of the testbed, filled before, and a mount of it on another: Volume.

    with Volume(lab, inputs, server="s1", client="lan1", console="san2", stack=TEXT) as volume:
        folder = volume.mount()

As a context: all that was started has ended with it, the mount is gone, and so are the files.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from lab import CONTROL_PORT, LabError

START_S = 60
END_S = 30
COMMAND_S = 60
NAME = "home"  # of the volume that a local mount makes where there is none
ALL = "1000000"  # objects and moves


def find_abacus(lab):
    """The command, beside the lab's program; the environment's ABACUS before it."""
    given = os.environ.get("ABACUS")
    path = Path(given) if given else Path(lab.program).resolve().parents[1] / "apps" / "abacus"
    if not os.access(path, os.X_OK):
        raise LabError(f"there is no {path}: ./dev build release abacus")
    return str(path)


class Process:
    """One that was started on a node (None: on this machine, without limits)."""

    def __init__(self, lab, node, words, errors, **options):
        self.what, self.errors = f"{Path(words[0]).name} {words[1]}", Path(errors)
        start = lab.testbed.beside if node is None else \
            lambda words, **more: lab.testbed.exec(node, words, **more)
        with open(errors, "wb") as file:
            self.popen = start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                               start_new_session=True, **options)

    def expect_ready(self):
        """Returns when it has said so."""
        found, _, _ = select.select([self.popen.stdout], [], [], START_S)
        if not found or self.popen.stdout.readline() != b"ready\n":
            raise LabError(f"{self.what} does not begin: {self.words()}")

    def wait_until(self, done, what):
        deadline = time.monotonic() + START_S
        while not done():
            if self.popen.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"{self.what}: {what}: {self.words()}")
            time.sleep(0.02)

    def words(self):
        """Its last ones."""
        code = self.popen.poll()
        text = self.errors.read_text(errors="replace").strip()[-2000:]
        return f"{text or 'no word'} ({'still running' if code is None else f'exit code {code}'})"

    def end(self, gently=True):
        """Ends it and what it has started."""
        if self.popen.poll() is None and gently:
            self.popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(END_S)
        with contextlib.suppress(ProcessLookupError):  # also what it left behind
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def mounted(folder):
    """Also of a mount whose process is dead, which nothing else can be asked of."""
    return str(folder) in Path("/proc/self/mounts").read_text().split()


def unmount(abacus, folder, process):
    """Takes a mount away, and its process with it; raises LabError where it does not go."""
    if mounted(folder):
        with contextlib.suppress(subprocess.TimeoutExpired):  # then by force, below
            subprocess.run([abacus, "umount", str(folder)], capture_output=True, timeout=COMMAND_S)
    if not mounted(folder):
        with contextlib.suppress(subprocess.TimeoutExpired):  # what it kept goes to the server
            process.popen.wait(END_S)
    process.end(gently=mounted(folder))
    if mounted(folder):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True,
                           timeout=COMMAND_S)
    if mounted(folder):
        raise LabError(f"{folder} cannot be unmounted")


class Volume:
    """The server, what is on it, and at most one mount of it."""

    def __init__(self, lab, inputs, server, client, console, stack):
        self.lab, self.inputs, self.stack = lab, Path(inputs), stack
        self.server, self.client, self.console = server, client, console
        self.abacus = find_abacus(lab)
        self._ends = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as ends:
            self.folder = Path(ends.enter_context(
                tempfile.TemporaryDirectory(prefix=self.lab.testbed.folder_prefix)))
            self._fill()
            self.address = self._serve(ends)
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_):
        self._ends.close()

    def _fill(self):
        """Puts the inputs into a new volume, without a server and outside of the nodes."""
        folder = self.folder / "filled"
        folder.mkdir()
        process = Process(self.lab, None, [
            self.abacus, "mount", "--local", "--foreground", str(self.folder / "data"), str(folder),
            "-o", f"stack={self.stack}"], self.folder / "fill.err")
        try:
            process.wait_until(lambda: mounted(folder), "no local mount")
            shutil.copytree(self.inputs, folder, dirs_exist_ok=True)
        finally:
            unmount(self.abacus, folder, process)

    def _config(self, node, **sections):
        path = self.folder / f"{node}.toml"
        path.write_text(self.lab.profile.config(node={"name": node, **sections}))
        return str(path)

    def _serve(self, ends):
        topology = getattr(self.lab.testbed, "topology", None)
        host = topology.nodes[self.server].address if topology else "127.0.0.1"
        port = CONTROL_PORT if topology else 0
        config = self._config(self.server, control_address=f"{host}:{port}",
                              data_address=f"{host}:{port and port + 1}")
        ready = self.folder / "ready"
        process = Process(self.lab, self.server, [
            self.abacus, "serve", "--data", str(self.folder / "data"), "--config", config,
            "--ready-file", str(ready)], self.folder / "serve.err")
        ends.callback(process.end)
        process.wait_until(lambda: ready.exists() and ready.read_text(), "not ready")
        return ready.read_text().strip()

    def client_options(self):
        """Of a command that joins as the client."""
        return ["--server", self.address, "--config", self._config(self.client)]

    def mount(self):
        """At the client; where it is."""
        folder = self.folder / "mount"
        folder.mkdir()
        process = Process(self.lab, self.client, [
            self.abacus, "mount", f"{self.address}/{NAME}", str(folder), "--foreground", "--config",
            self._config(self.client), "-o", f"stack={self.stack}"], self.folder / "mount.err")
        self._ends.callback(unmount, self.abacus, folder, process)
        process.wait_until(lambda: mounted(folder), "no mount")
        return folder

    def hold(self, words, files):
        """Has files of the mount open, and directories known, until the end: `words` does it."""
        process = Process(self.lab, None, words, self.folder / "hold.err")
        self._ends.callback(process.end)
        process.expect_ready()
        for file in files:  # a server hears of objects that are called; this reads nothing
            subprocess.run([self.abacus, "stack", "--state", file], capture_output=True, check=True,
                           timeout=COMMAND_S)

    def command(self, *words):
        """An `abacus` command, at a node that has nothing to do with the run."""
        process = Process(self.lab, self.console, [self.abacus, *words, "--server", self.address],
                          self.folder / "command.err")
        try:
            process.popen.communicate(timeout=COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"abacus {' '.join(words)}: no end") from error
        finally:
            process.end(gently=False)
        # 1: done, and the answer is no.
        if process.popen.returncode not in (0, 1):
            raise LabError(f"abacus {' '.join(words)}: {process.words()}")

    def _told(self, *words):
        """What a command tells as JSON; None: nothing."""
        path = self.folder / "told.json"
        path.unlink(missing_ok=True)
        self.command(*words, "--json", str(path))
        return json.loads(path.read_text()) if path.exists() else None

    def status(self):
        return self._told("status", "--objects", ALL, "--moves", ALL)

    def explain(self, rid):
        """The engine's last words on an object, or ""."""
        told = self._told("explain", rid)
        return told["decisions"][0]["explanation"] if told and told["decisions"] else ""

"""Runs a server and clients of abacus_lab on a testbed's nodes, and collects what they tell: Lab.

    with Lab(testbed, "paper", program) as lab:
        record = lab.run([Client("lan1", job)], placement="adaptive", seed=1, prepare={...})

`testbed` is experiments/testbed's Testbed, or its UserSpaceTestbed where there are no privileges, or
Loopback() where there is none: processes of this machine, without networks and quotas, for tests.
Failures are LabError, with the last words of the
process that failed. Nothing is done twice.
"""

import contextlib
import hashlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PROFILES = PROJECT / "experiments" / "profiles"
PROGRAM = "abacus_lab"
PAPER_PROFILE = "paper"
CONTROL_PORT = 7070
# Of paper_node.h: a paper's node of a core (kShare), and the CPU time of a null call at a side.
PAPER_SHARE = 0.12
NULL_CALL_US = 48
# How much slower than the model a machine may be: of more, few cores have not enough for all nodes.
MACHINE_MAX = 3
START_S = 60      # until a process is ready
END_S = 20        # until it has ended, when it is told to
# Until the jobs of a run have ended. The longest ones, figure 7's 128 MB and sweeps of phases of 60 s,
# take 600 to 900 s; drivers_test.py holds every row against half of this.
LIMIT_S = 1800
WORDS_BYTES = 4000


class LabError(Exception):
    """What a run failed of, for people."""


class Profile:
    """A frozen set of constants, from a file of experiments/profiles."""

    def __init__(self, text, name):
        self.name = name
        self.text = text
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.values = tomllib.loads(text)

    @staticmethod
    def load(which):
        """`which`: the name of one of experiments/profiles, or the path of a file."""
        path = Path(which) if str(which).endswith(".toml") else PROFILES / f"{which}.toml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in PROFILES.glob("*.toml")))
            raise LabError(f"there is no profile {which}; there are: {known}")
        return Profile(path.read_text(), path.stem)

    @property
    def repetition(self):
        return self.values["lab"]["repetition"]

    @property
    def has_paper_nodes(self):
        return self.values["lab"]["paper_node"]

    def stack(self, name):
        return self.values["stacks"][name]

    def config(self, **more):
        """The runtime's configuration as TOML; `more`: sections with values that come on top."""
        sections = {name: dict(keys) for name, keys in self.values.get("config", {}).items()}
        for name, keys in more.items():
            sections.setdefault(name, {}).update(keys)
        lines = []
        for name, keys in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {_toml(value)}" for key, value in keys.items()]
        return "\n".join(lines) + "\n"


def _toml(value):
    return json.dumps(value)  # strings, numbers and booleans look the same there


class Client:
    """One client of a run: where it is and what it does.

    It begins `start_after_s` after the run, but earlier where an object of client `after_move_of`
    has moved by then: that many seconds after it, `rest_s`.
    """

    def __init__(self, node, job, start_after_s=0, after_move_of=None, rest_s=1):
        self.node, self.job, self.start_after_s = node, job, start_after_s
        self.after_move_of, self.rest_s = after_move_of, rest_s


class Spread:
    """Over what a volume is, beside the first disk of its server.

    `disks`: how many its server has. `others`: servers with one each. `fails`: which of all these
    fails when the volume is prepared, from 0, the server's first; None: none does.
    """

    def __init__(self, disks, others, fails=None):
        self.disks, self.others, self.fails = disks, list(others), fails


def measure_machine(profile, program=None, testbed=None, machine=1):
    """How many times the CPU time of the model a null call takes on this machine: 1 to MACHINE_MAX.

    1 for a profile without the paper's nodes. Measured with the constants of the paper's profile in any
    case: it is about the machine, and not about whether threads of a profile spin before they sleep.
    On a testbed that is up a call takes up to a quarter more than over loopback (without one), for
    its bridges and buckets; `machine`: how many times their shares its nodes have.
    """
    if not Profile.load(profile).has_paper_nodes:
        return 1
    took_us = _null_call_us(testbed or Loopback(), program, machine)
    return min(max(1, round(took_us / NULL_CALL_US, 2)), MACHINE_MAX)


def check_null_call(testbed, profile, program, machine):
    """[check.Row] of what a null call costs on a testbed that is up; none without paper's nodes.

    `machine`: how many times the CPU time of the model it takes, as nodes have so many times their
    shares.
    """
    if not Profile.load(profile).has_paper_nodes:
        return []
    return [null_call_row(_null_call_us(testbed, program, machine), testbed.topology.name, machine)]


def null_call_row(took_us, topology, machine):
    """check.Row of a null call that took `took_us`.

    Where it takes less than is wanted the machine was slower when it was measured, and nodes are faster
    than the paper's: off, too, but on another topology than that on which the machine is measured, and
    on a machine that is as fast as the model, or faster, where nodes have their shares and no less.
    """
    from check import TOLERANCE, Row  # of testbed/, where whoever has a testbed imports from
    wanted_us = NULL_CALL_US * machine
    may_be_less = topology != "paper" or machine == 1
    return Row(f"CPU of a null call ({NULL_CALL_US} us of the model x {machine:.3g})",
               f"{'<= ' if may_be_less else ''}{wanted_us:.3g}", took_us, "us",
               0 if may_be_less else wanted_us * (1 - TOLERANCE), wanted_us * (1 + TOLERANCE))


def null_call_nodes(topology):
    """(client, server) that tell what a null call costs: of those that have the largest share.

    At a node that a row makes slower a call takes longer, and so more of what goes on all the time
    falls on it.
    """
    most = max(node.cpu or 1 for node in topology.nodes.values())
    full = [name for name, node in topology.nodes.items() if (node.cpu or 1) == most]
    server = next((name for name in full if topology.nodes[name].disks), full[0])
    others = [name for name in (*full, *topology.nodes) if name != server]
    nearest = "san1"  # of the paper's
    return nearest if nearest in full else others[0], server


def _null_call_us(testbed, program, machine):
    """CPU time of a null call at the dearer side; the best of three, as others disturb it."""
    topology = getattr(testbed, "topology", None)
    client, server = null_call_nodes(topology) if topology else ("c1", "s1")
    with Lab(testbed, PAPER_PROFILE, program, machine) as lab:
        calls = [lab.null_call(client, server, calls=1000) for _ in range(3)]
    return min(max(call["client_cpu_us"], call["server_cpu_us"]) for call in calls)


def table_job(lab, row, phases, seed):
    """A client's job on a table of records in a file with a cache; `row`: an experiment's."""
    return {"kind": "table", "file": "table", "stack": lab.profile.stack("cached"),
            "record_bytes": row["record_bytes"],
            "records": row["file_bytes"] // row["record_bytes"], "phases": phases, "seed": seed}


class Loopback:
    """Stands for a testbed where there is none: every node is this machine."""

    name = "loopback"
    folder_prefix = "abacus-lab-"

    def host(self, node):
        return "127.0.0.1"

    def exec(self, node, words, **options):
        return subprocess.Popen(words, **options)

    def beside(self, words, **options):
        return subprocess.Popen(words, **options)


class Lab:
    """Owner of the processes of one run at a time. As a context: what is left ends with it."""

    def __init__(self, testbed, profile, program=None, machine=1):
        """`machine`: what measure_machine() said, where the testbed's shares are so many times."""
        self.testbed, self.profile = testbed, Profile.load(profile)
        self.machine = machine
        self.program = str(program or find_program())
        placement = self.profile.values.get("config", {}).get("placement", {})
        self.window_s = _seconds(placement.get("window", "1s"))
        self._processes = []
        self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def repetition(self):
        """How often the work of the paper's experiments is done (README.md)."""
        return self.profile.repetition

    @property
    def fast_lane(self):
        """Whether the engine of this profile may decide before a window is over."""
        planner = self.profile.values.get("config", {}).get("planner", {})
        return planner.get("fast_window", 0) < 1

    @staticmethod
    def fast_lane_config(on):
        """Sections of the configuration: what is seen in a part of a window decides, or in all."""
        return {} if on else {"planner": {"fast_window": 1.0}}

    def paper_cpu_ns(self, ns):
        """CPU time here of what takes `ns` at the paper's node: experiments/lab/paper_node.h."""
        return ns * PAPER_SHARE * self.machine

    def share(self, node):
        """The share of a core that a node has; 0: it has no limit."""
        topology = getattr(self.testbed, "topology", None)
        return (topology.nodes[node].cpu or 0) if topology else 0

    def run(self, clients, placement, seed, prepare=None, server="s1", config=None,
            server_config=None, limit_s=LIMIT_S, spread=None):
        """One run, from nothing to nothing: the part of a raw record that the lab knows.

        `prepare`: what the server's volume has (abacus_lab server --prepare). `config` and
        `server_config`: sections of the runtime's configuration on top of the profile's, for all
        nodes and for the server. `spread`: the volume is over several disks, Spread.
        """
        self._folder = Path(tempfile.mkdtemp(prefix=self.testbed.folder_prefix,
                                             dir=_memory_folder()))
        try:
            addresses = self._start_servers(server, prepare or {},
                                            _merged(config or {}, server_config or {}), spread)
            running = []
            for client in clients:
                job = self._job(client, placement)
                sections = _merged(config or {}, self._client_place(client.node))
                words = ["client", "--config", self._config(client.node, sections),
                         "--server", *addresses, "--job", json.dumps(job),
                         *self._common(client.node)]
                running.append(_Running(client, self._start(client.node, client.node, words)))
            deadline = time.monotonic() + START_S
            for one in running:
                one.process.expect("ready", deadline)
            self._let_go(running, limit_s)
            return self._record(running, placement, seed)
        finally:
            self.end()

    def null_call(self, node, server="s1", calls=400, call_bytes=0):
        """What a call costs that does nothing: {"ms", "client_cpu_us", "server_cpu_us"}.

        CPU time is that of whole processes, so digests and heartbeats are in it.
        """
        job = {"kind": "null", "calls": calls, "call_bytes": call_bytes}
        told = self.run([Client(node, job)], "client", 0, server=server)["clients"][0]
        return {"ms": told["elapsed_s"] / calls * 1e3,
                **{key: told[key] for key in ("client_cpu_us", "server_cpu_us")}}

    def end(self):
        """Ends all processes, and removes what the run has written."""
        for servers in (False, True):
            ending = [process for process in self._processes if process.serves == servers]
            for process in ending:
                process.tell_end()
            for process in ending:
                process.end()
        self._processes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _let_go(self, running, limit_s):
        """Starts all jobs at their times, and returns when each has told what became of it."""
        begin = time.monotonic()
        deadline = begin + limit_s
        moved_s = {}  # when an object of a client was told to have moved first
        while any(one.result is None for one in running):
            now_s = time.monotonic() - begin
            for one in running:
                if one.begun_s is None and one.due_s(moved_s) <= now_s:
                    one.process.say("go")
                    one.begun_s = now_s
            if now_s > limit_s:
                raise LabError(f"the jobs have not ended within {limit_s} s")
            next_s = min((one.due_s(moved_s) for one in running if one.begun_s is None),
                         default=limit_s)
            busy = {one: one.process for one in running if one.begun_s is not None}
            for one, line in _lines(busy, min(begin + next_s, deadline)):
                if line.startswith("moved"):
                    moved_s.setdefault(one.client.node, time.monotonic() - begin)
                else:
                    one.result = json.loads(line)

    def _record(self, running, placement, seed):
        record = {"placement": placement, "seed": seed, "clients": [], "phases": [],
                  "migrations": [], "final_placement": {}, "final_nodes": {},
                  "explanations": {}, "degraded": [],
                  "window_s": self.window_s, "repetition": self.profile.repetition}
        ends, sources = [], set()
        for one in running:
            node, result = one.client.node, dict(one.result)
            ends.append(one.begun_s + result["elapsed_s"])
            sources.add(result.pop("source"))
            record["degraded"] += [f"{node}: {why}" for why in result.pop("degraded")]
            record["migrations"] += [{**move, "t_s": one.begun_s + move["t_s"], "client": node}
                                     for move in result.pop("migrations")]
            record["phases"] += [phase for phase in result.pop("phases") if len(running) == 1]
            for name in ("final_placement", "final_nodes", "explanations"):
                for key, value in result.pop(name).items():
                    record[name][f"{node}/{key}"] = value
            for name in ("progress", "retry_progress"):
                result[name] = [[one.begun_s + t_s, count] for t_s, count in result[name]]
            record["clients"].append({**result, "node": node, "start_s": one.begun_s})
        record["elapsed_s"] = max(ends) - min(one.begun_s for one in running)
        record["source"] = ", ".join(sorted(sources))
        record["migrations"].sort(key=lambda move: move["t_s"])
        return record

    def _job(self, client, placement):
        """What a client is told to do; in user space, what stands in for its node's quota."""
        job = {**client.job, "placement": placement}
        if self._user_space() and job.get("cpu_ns_per_byte") and self.share(client.node):
            if len({node.cpu for node in self.testbed.topology.nodes.values()}) > 1:
                raise LabError("what computes on nodes of different speeds needs CPU quotas, and "
                               "there are none in user space")
            # So much of a whole core takes as long as the node's share of one would.
            job["cpu_ns_per_byte"] /= self.share(client.node)
        return job

    def _user_space(self):
        return getattr(self.testbed, "user_space", False)

    def _client_place(self, node):
        """Where a client listens: in user space, at its node's address; else anywhere."""
        if not self._user_space():
            return {}
        return {"node": {"data_address": f"{self._host(node)}:{CONTROL_PORT + 1}"}}

    def _start_servers(self, node, prepare, config, spread):
        """The addresses, that of the volume's first."""
        if not spread:
            return [self._ready(self._start_server(node, "server", config,
                                                   ["--prepare", json.dumps(prepare)]))]
        # All at once, and then their words: each starts at its own share of a core.
        others = [self._ready(process) for process in
                  [self._start_server(other, f"server-{other}", config, ["--columns"])
                   for other in spread.others]]
        words = ["--prepare", json.dumps(prepare), "--disks", str(spread.disks),
                 "--others", *others]
        if spread.fails is not None:
            words += ["--fails", str(spread.fails)]
        first = self._ready(self._start_server(node, "server", config, words))
        # What was prepared is in the others' memories: nothing is when a run begins.
        for process in self._processes[1:]:
            process.say("drop")
            process.expect("dropped", time.monotonic() + START_S)
        return [first, *others]

    def _start_server(self, node, name, config, more):
        host = self._host(node)
        port = CONTROL_PORT if host != "127.0.0.1" else 0
        sections = _merged(self._memory(node), config, {"node": {
            "data_dir": str(self._folder / name), "name": name,
            "control_address": f"{host}:{port}", "data_address": f"{host}:{port and port + 1}"}})
        words = ["server", "--config", self._config(name, sections, named=False), *more,
                 *self._common(node), *self._disk(node)]
        if self.profile.values["lab"].get("linear_directories", False):
            words.append("--whole-read-sets")
        return self._start(node, name, words)

    def _memory(self, node):
        """What the topology says that a server has for objects, unless the profile says so."""
        topology = getattr(self.testbed, "topology", None)
        bytes_ = topology.nodes[node].memory_bytes if topology else None
        said = self.profile.values.get("config", {}).get("placement", {})
        if not bytes_ or "memory_limit" in said:
            return {}
        return {"placement": {"memory_limit": f"{bytes_} B"}}

    def _disk(self, node):
        """What the topology says of the node's disks; without one: the paper's."""
        if not self.profile.values["lab"]["disk"]:
            return ["--no-disk"]
        topology = getattr(self.testbed, "topology", None)
        if not topology:
            return []
        of = topology.nodes[node]
        return ["--disk-bandwidth", str(of.disk_bandwidth), "--disk-seek", str(of.disk_seek_s)]

    @staticmethod
    def _ready(server):
        """The control address of a server, as soon as it has one."""
        return server.expect("ready ", time.monotonic() + START_S).split()[1]

    def _host(self, node):
        topology = getattr(self.testbed, "topology", None)
        return topology.nodes[node].address if topology else self.testbed.host(node)

    def _config(self, name, sections, named=True):
        if named:
            sections = _merged(sections, {"node": {"name": name}})
        path = self._folder / f"{name}.toml"
        path.write_text(self.profile.config(**sections))
        return str(path)

    def _common(self, node):
        words = ["--share", str(self.share(node)), "--machine", str(self.machine)]
        if self._user_space():
            words += ["--ways", self.testbed.ways(node)]
        return words if self.profile.has_paper_nodes else [*words, "--as-it-is"]

    def _start(self, node, name, words):
        process = _Process(self.testbed, node, [self.program, *words],
                           self._folder / f"{name}.err")
        self._processes.insert(0, process)  # clients end before the server
        return process


class _Running:
    """A client whose process has been started."""

    def __init__(self, client, process):
        self.client, self.process = client, process
        self.begun_s = self.result = None

    def due_s(self, moved_s):
        client = self.client
        if client.after_move_of in moved_s:
            return min(client.start_after_s, moved_s[client.after_move_of] + client.rest_s)
        return client.start_after_s


class _Process:
    """A process of abacus_lab, which is spoken to in lines."""

    def __init__(self, testbed, node, words, errors):
        self.node, self.errors = node, errors
        self.serves = words[1] == "server"
        self.buffer = b""
        with open(errors, "wb") as file:
            self.popen = testbed.exec(node, words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=file)
        os.set_blocking(self.popen.stdout.fileno(), False)

    def say(self, line):
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def take_line(self):
        """A line that is there whole; None: not yet."""
        chunk = self.popen.stdout.read()
        if chunk == b"" and self.popen.poll() is not None and b"\n" not in self.buffer:
            raise LabError(f"{self.node}: {self.words()}")
        self.buffer += chunk or b""
        if b"\n" not in self.buffer:
            return None
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace")

    def expect(self, begin, deadline):
        for _, line in _lines({0: self}, deadline):
            if line.startswith(begin):
                return line
        raise LabError(f"{self.node} did not say '{begin}' in time: {self.words()}")

    def words(self):
        text = self.errors.read_text(errors="replace").strip()[-WORDS_BYTES:]
        code = self.popen.poll()
        return f"{text or 'no word'} ({'still running' if code is None else f'exit code {code}'})"

    def tell_end(self):
        if self.popen.stdin and not self.popen.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.close()

    def end(self):
        self.tell_end()
        try:
            self.popen.wait(END_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.popen.stdout.close()


def _lines(processes, until):
    """[(key, line)] of those that have one; waits for the first, no longer than `until`."""
    while True:
        found = []
        for key, process in processes.items():
            line = process.take_line()
            if line is not None:
                found.append((key, line))
        left = until - time.monotonic()
        if found or left <= 0:
            return found
        select.select([p.popen.stdout for p in processes.values()], [], [], left)


def _merged(*all_sections):
    merged = {}
    for sections in all_sections:
        for name, keys in sections.items():
            merged.setdefault(name, {}).update(keys)
    return merged


def _memory_folder():
    """Where a server's files are: in memory, as the model of the disk says how long they take."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _seconds(text):
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text.rstrip("s"))


def find_program():
    """The built abacus_lab: the environment's ABACUS_LAB, else that of a preset."""
    given = os.environ.get("ABACUS_LAB")
    candidates = [Path(given)] if given else [
        PROJECT / "build" / preset / "experiments" / PROGRAM for preset in ("release", "dev")]
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    raise LabError(f"{PROGRAM} is not built: ./dev build release {PROGRAM}")

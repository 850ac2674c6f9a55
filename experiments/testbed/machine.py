"""What a testbed is made of on the machine: network namespaces, cgroups, processes, a state file.

Everything carries PREFIX, the testbed's name and a node's in its name, so that it is found again
without any memory of who made it. Interfaces lie in the namespaces only and go with them.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PREFIX = "abacus-testbed-"
NAMESPACES = Path("/run/netns")
STATES = Path("/run")
HANDED = STATES / "abacus-cgroup-cpu"  # there: cgroups of version 2 have their shares by a testbed
REMOVAL_S_MAX = 30

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class MachineError(RuntimeError):
    """The machine refused; the text says what, and what can be done."""


def own_name(testbed, node):
    """The name of a node's namespace and cgroup."""
    return f"{PREFIX}{testbed}-{node}"


def _split(name):
    """(testbed, node) of a name that own_name made, or None."""
    parts = name[len(PREFIX):].split("-") if name.startswith(PREFIX) else []
    return tuple(parts) if len(parts) == 2 else None


# --- commands ------------------------------------------------------------------------------------

def run(command, lines=None, join=None):
    """Runs a command, `lines` on its stdin; raises MachineError with what it said.

    It runs in the cgroup `join`, so that who removes the testbed finds it though its parent died.
    """
    def enter():
        (join / "cgroup.procs").write_text("0")

    text = None if lines is None else "\n".join(lines) + "\n"
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False,
                              preexec_fn=enter if join else None)
    except FileNotFoundError as error:
        raise MachineError(f"{command[0]} is not installed (Debian: iproute2)") from error
    except subprocess.SubprocessError as error:
        raise MachineError(f"{' '.join(command)} could not be started: was the testbed taken down "
                           "meanwhile?") from error
    if done.returncode != 0:
        said = done.stderr.strip()
        number = said.rpartition("-:")[2]  # "Command failed -:3" is of the third line
        if lines and number.isdecimal() and 0 < int(number) <= len(lines):
            command = [*command[:-2], *lines[int(number) - 1].split()]
        raise MachineError(f"{' '.join(command)}: {said or f'exit code {done.returncode}'}")
    return done.stdout


# --- namespaces ----------------------------------------------------------------------------------

def namespaces(testbed=None):
    """(testbed, node) of each namespace of a testbed, or of this one."""
    found = [_split(path.name) for path in NAMESPACES.glob(f"{PREFIX}*")]
    return sorted(pair for pair in found if pair and testbed in (None, pair[0]))


def enter_namespace(testbed, node):
    """The calling thread goes into a node's network namespace."""
    path = NAMESPACES / own_name(testbed, node)
    try:
        space = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MachineError(f"there is no namespace {path.name}") from error
    try:
        if _libc.setns(space, _CLONE_NEWNET) != 0:
            raise MachineError(f"namespace {path.name}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(space)


def can_netem(testbed, node, join=None):
    """Whether this kernel has netem: tried in a namespace of a node's name, which goes again.

    By that name it is found, too, if this process is killed meanwhile. Raises MachineError where
    there can be no namespace.
    """
    space = own_name(testbed, node)
    run(["ip", "netns", "add", space], join=join)
    try:
        run(["tc", "-n", space, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
            join=join)
        return True
    except MachineError:
        return False  # where more is wrong with tc, whoever needs it next says so
    finally:
        run(["ip", "netns", "delete", space], join=join)


def die_with_parent():
    """The calling process is killed when the thread that started it ends."""
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _processes_in_namespaces(testbed):
    spaces = set()
    for pair in namespaces(testbed):
        try:
            status = (NAMESPACES / own_name(*pair)).stat()
            spaces.add((status.st_dev, status.st_ino))
        except OSError:
            pass
    pids = set()
    for process in Path("/proc").glob("[0-9]*") if spaces else ():
        try:
            status = (process / "ns/net").stat()
        except OSError:
            continue  # it ended
        if (status.st_dev, status.st_ino) in spaces:
            pids.add(int(process.name))
    return pids


# --- cgroups -------------------------------------------------------------------------------------

def _cgroup_mount():
    """(mount point of the CPU controller, version, this process's path there)."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update({controller: path for controller in controllers.split(",")})
    for _, point, kind, options, *_ in mounts:
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(point), 1, paths.get("cpu", "/")
    for _, point, kind, *_ in mounts:
        if kind == "cgroup2" and "cpu" in (Path(point) / "cgroup.controllers").read_text().split():
            return Path(point), 2, paths.get("", "/")
    raise MachineError("there is no cgroup controller 'cpu' here, neither of version 1 nor 2: "
                       "nodes cannot be given their shares")


def cgroup_version():
    return _cgroup_mount()[1]


def _cgroup_parent():
    point, version, own = _cgroup_mount()
    if version == 2:  # children get a controller only where their parent has no processes: the root
        control = point / "cgroup.subtree_control"
        if "cpu" not in control.read_text().split():
            HANDED.touch()
            try:
                control.write_text("+cpu")
            except OSError as error:
                HANDED.unlink(missing_ok=True)
                raise MachineError(f"{control}: {error.strerror}: the cgroup controller 'cpu' "
                                   "cannot be handed to nodes here") from error
        return point
    # Within the limits that hold for this process, where its cgroup can be seen from here.
    inside = point / own.lstrip("/")
    return inside if inside.is_dir() and not _split(inside.name) else point


def _take_cpu_back():
    """What _cgroup_parent() handed out is not, any more, where no testbed is left that uses it."""
    if not HANDED.exists() or cgroups():
        return
    point = _cgroup_mount()[0]
    try:
        # Others' cgroups may have limits of theirs by now, which would go with it.
        if not any(path.is_dir() for path in point.iterdir()):
            (point / "cgroup.subtree_control").write_text("-cpu")
    except OSError:
        pass  # somebody else uses it
    HANDED.unlink(missing_ok=True)


def cgroups(testbed=None):
    """((testbed, node), folder) of each cgroup of a testbed, or of this one."""
    found = []
    for folder, names, _ in os.walk(_cgroup_mount()[0]):
        for name in names:
            pair = _split(name)
            if pair and testbed in (None, pair[0]):
                found.append((pair, Path(folder, name)))
    return sorted(found)


def make_cgroup(testbed, node, quota_us=None, period_us=None):
    """A node's cgroup, with at most `quota_us` of CPU time a `period_us`."""
    try:
        folder = _cgroup_parent() / own_name(testbed, node)
        folder.mkdir()
        if quota_us is None:
            pass
        elif cgroup_version() == 1:
            (folder / "cpu.cfs_period_us").write_text(str(period_us))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {period_us}")
    except OSError as error:
        raise MachineError(f"cgroup {own_name(testbed, node)}: {error.strerror}") from error
    return folder


def join_cgroup(folder):
    """The calling process goes into a cgroup."""
    try:
        (folder / "cgroup.procs").write_text("0")
    except OSError as error:
        raise MachineError(f"{folder}: {error.strerror}") from error


def _processes_in_cgroups(testbed):
    pids = set()
    for _, top in cgroups(testbed):
        for folder, _, _ in os.walk(top):
            try:
                pids.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
            except OSError:
                pass  # it is gone
    return pids


# --- the state file ------------------------------------------------------------------------------

def state_file(testbed):
    return STATES / f"{PREFIX}{testbed}.json"


def write_state(testbed, state, first=False):
    """Raises FileExistsError where `first` and another testbed of that name has a state."""
    path = state_file(testbed)
    text = json.dumps(state, indent=1)
    if first:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
        return
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def read_state(testbed):
    """The state, or None where there is none that can be read."""
    try:
        return json.loads(state_file(testbed).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def this_process():
    """What tells this process from another one that gets its number later."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "pids_of": _pid_namespace()}


def _started(pid):
    """When a process was started, in ticks of the machine's own clock; None where it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else int(words[19])


def _pid_namespace():
    return os.readlink("/proc/self/ns/pid")


def _is_dead(holder):
    """Of another PID namespace nobody can say: not."""
    return holder["pids_of"] == _pid_namespace() and _started(holder["pid"]) != holder["started"]


def _files(testbed=None):
    found = []
    for path in STATES.glob(f"{PREFIX}*"):
        if testbed in (None, path.name[len(PREFIX):].partition(".")[0]):
            found.append(path)
    return found


# --- folders of what runs on it ------------------------------------------------------------------

def folder_prefix(testbed):
    """Folders with such names, in /dev/shm and among temporary files, go with the testbed."""
    return f"{PREFIX}{testbed}."


def _folders(testbed=None):
    places = {Path("/dev/shm"), Path("/tmp"), Path(tempfile.gettempdir())}
    return [path for place in sorted(places) for path in place.glob(f"{PREFIX}*.*")
            if path.is_dir() and not path.is_symlink()
            and testbed in (None, path.name[len(PREFIX):].partition(".")[0])]


def _mounts_below(folder):
    """The innermost first. Nothing is asked of them: their programs may be dead."""
    points = [line.split()[1].encode().decode("unicode_escape")  # a blank is \040
              for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in reversed(points) if point.startswith(f"{folder}/")]


def _remove_folder(folder):
    """With the mounts in it; True where it is gone."""
    for point in _mounts_below(folder):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
    if _mounts_below(folder):
        return False  # what is mounted there is not ours to remove
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


# --- all of a testbed ----------------------------------------------------------------------------

def testbeds():
    """Names of all testbeds of which anything is left on the machine."""
    found = {pair[0] for pair in namespaces()} | {pair[0] for pair, _ in cgroups()}
    return sorted(found | {path.name[len(PREFIX):].partition(".")[0]
                           for path in [*_files(), *_folders()]})


def _kill(testbed):
    """Kills the testbed's processes; the number of those that were there."""
    pids = _processes_in_cgroups(testbed) | _processes_in_namespaces(testbed)
    pids.discard(os.getpid())
    # The kernel shows a process of another PID namespace as 0, and kill(0) would hit this one's
    # own group. It cannot be ended from here: its cgroup stays, and remove() says so.
    pids.discard(0)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(pids)


def _remove_once(testbed):
    """Takes away what there is now; True where there was nothing."""
    nothing = _kill(testbed) == 0
    for pair in namespaces(testbed):
        nothing = False
        subprocess.run(["ip", "netns", "delete", own_name(*pair)], capture_output=True, check=False)
    for _, top in cgroups(testbed):
        nothing = False
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # its processes are still on their way out
    for folder in _folders(testbed):
        nothing = False
        _remove_folder(folder)
    return nothing


def remove(testbed):
    """Removes all that carries the testbed's name, whoever made it and however far that one came.

    Looks again until nothing is found twice: what was killed while it made something may have made
    it after the first look. Raises MachineError with what is left after REMOVAL_S_MAX.
    """
    deadline = time.monotonic() + REMOVAL_S_MAX
    quiet = 0
    while quiet < 2:
        quiet = quiet + 1 if _remove_once(testbed) else 0
        if time.monotonic() > deadline:
            left = [own_name(*pair) for pair in namespaces(testbed)]
            left += [str(folder) for _, folder in cgroups(testbed)]
            left += [str(folder) for folder in _folders(testbed)]
            raise MachineError(f"these could not be removed: {', '.join(left) or 'processes'}; a "
                               "process of another PID namespace may be in them")
        time.sleep(0.01)
    for path in _files(testbed):
        path.unlink(missing_ok=True)
    _take_cpu_back()


def remove_abandoned(testbed):
    """Removes a testbed whose holder has ended without taking it down; whether it did.

    A testbed without a holder, which is up until it is taken down, is not abandoned.
    """
    try:
        file = open(state_file(testbed), encoding="utf-8")
    except FileNotFoundError:
        return False
    with file:
        try:
            # Of two that find it so, the second one would remove what the first one builds next:
            # it does not wait, and does nothing either where the file has gone meanwhile.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = json.load(file).get("holder")
        except (BlockingIOError, ValueError):
            return False
        if not holder or not _is_dead(holder) or os.fstat(file.fileno()).st_nlink == 0:
            return False
        remove(testbed)
    return True

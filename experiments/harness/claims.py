"""Whether what the paper says of a row holds of ours: each claim, from raw records alone.

A claim has a kind (definition.CLAIM_KINDS), and each kind two functions here: what it states, in
words, and what the row's records say to it, as (ours, whether it holds). Means are over the runs of a placement; an interval is
that of summary.py, and a single run has none.
"""

import dataclasses
import itertools
import math
from collections import Counter

from definition import STATICS
from summary import number, summarize

OPERATIONS = 200       # retries are stated for so many: the paper's client inserts as many
WINDOWS_MIN = 3        # a row with an adaptive run of fewer claims nothing


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One line of the table `paper | ours | holds`."""
    claim: str
    paper: str
    ours: str
    holds: bool


class Evidence:
    """The records of one row, by placement, and what is worked out from them."""

    def __init__(self, records, wanted_class="", grids=None):
        self.records = {placement: list(of) for placement, of in records.items() if of}
        self.wanted_class = wanted_class
        # {grid: {cell's row: its Evidence}} of the same experiment.
        self.grids = {} if grids is None else grids

    def time(self, placement):
        """The Summary of the elapsed seconds; None where it was not run."""
        of = self.records.get(placement)
        return summarize(record["elapsed_s"] for record in of) if of else None

    def better(self):
        """(the faster static placement, the slower) by their means."""
        return tuple(sorted(STATICS, key=lambda placement: self.time(placement).mean))

    def speedup(self):
        """How many times as fast the better static placement is as the other."""
        faster, slower = self.better()
        return self.time(slower).mean / self.time(faster).mean

    def adaptive(self):
        return self.records.get("adaptive", [])

    def short(self):
        """Whether an adaptive run was over before the engine could see enough windows."""
        return any(record["elapsed_s"] < WINDOWS_MIN * record["window_s"]
                   for record in self.adaptive())

    def places(self, record):
        """{"client/class": place} at the run's end, of the class that counts."""
        return {key: place for key, place in record["final_placement"].items()
                if not self.wanted_class or key.rpartition("/")[2] == self.wanted_class}

    def moves(self, record, client=None):
        """Migrations of the class that counts, by time."""
        return sorted((move for move in record["migrations"]
                       if (not self.wanted_class or move["object"] == self.wanted_class)
                       and client in (None, move["client"])), key=lambda move: move["t_s"])

    def engine_choice(self):
        """Where the engine left things in the adaptive runs, in a few words."""
        counted = {}
        for record in self.adaptive():
            ends = sorted(set(self.places(record).values()))
            text = ends[0] if len(ends) == 1 else "mixed" if ends else "unknown"
            counted[text] = counted.get(text, 0) + 1
        if not counted:
            return "not run"
        if len(counted) == 1:
            return next(iter(counted))
        runs = len(self.adaptive())
        return ", ".join(f"{text} in {count} of {runs} runs" for text, count in
                         sorted(counted.items(), key=lambda item: -item[1]))

    def retries(self, placement):
        """Per OPERATIONS of a client: the Summary over runs; None where it was not run."""
        rates = []
        for record in self.records.get(placement, []):
            done = sum(client["operations"] for client in record["clients"])
            tried = sum(client["retries"] for client in record["clients"])
            if done > 0:
                rates.append(OPERATIONS * tried / done)
        return summarize(rates) if rates else None

    def phases(self, placement):
        """[(name, Summary)] in the order in which they ran."""
        of = self.records.get(placement, [])
        names = [phase["name"] for phase in min((record["phases"] for record in of), key=len,
                                                default=[])]
        return [(name, summarize(record["phases"][i]["elapsed_s"] for record in of))
                for i, name in enumerate(names)]

    def optimal_phases(self):
        """[(name, seconds)]: each phase at the static placement where its mean is smaller."""
        return [(name, min(client.mean, server.mean)) for (name, client), (_, server) in
                zip(self.phases("client"), self.phases("server"))]


def over(evidence, what):
    """Adaptive's time over the better static one, or over the optimum where there are phases."""
    optimal = math.fsum(seconds for _, seconds in evidence.optimal_phases())
    if what == "static" or len(evidence.optimal_phases()) < 2:
        optimal = evidence.time(evidence.better()[0]).mean
    return evidence.time("adaptive").mean / optimal


def _compared(evidence):
    faster, slower = evidence.better()
    sure = not evidence.time(faster).overlaps(evidence.time(slower))
    single = evidence.time(faster).half is None or evidence.time(slower).half is None
    return f"{faster} {evidence.time(faster).text()}, {slower} {evidence.time(slower).text()}" + (
        "" if sure or single else "; the intervals overlap")


def _direction(claim, evidence):
    faster, _ = evidence.better()
    return _compared(evidence), faster == claim.winner


def _speedup(claim, evidence):
    faster, _ = evidence.better()
    ratio = evidence.speedup()
    return f"{faster}: {number(ratio)} x", faster == claim.winner and ratio >= claim.at_least


def _speedup_below(claim, evidence):
    ratio = evidence.speedup()
    return f"{evidence.better()[0]}: {number(ratio)} x", ratio < claim.limit


def _adaptive(claim, evidence):
    """The margin is the paper's, or the adaptive runs' own 90 % half-width where that is larger."""
    best, adaptive = evidence.time(evidence.better()[0]), evidence.time("adaptive")
    margin_s = max(claim.within * best.mean, adaptive.half or 0)
    over = adaptive.mean / best.mean - 1
    by_interval = adaptive.half is not None and adaptive.half > claim.within * best.mean
    ours = f"{over:+.1%} ({adaptive.text()} for {best.text()})"
    if by_interval:
        ours += "; its half-width is the margin"
    return ours, adaptive.mean - best.mean <= margin_s


def _engine(claim, evidence):
    runs = [(set(evidence.places(record).values()), evidence.moves(record))
            for record in evidence.adaptive()]
    most = max(len(moves) for _, moves in runs)
    limit = claim.moves_max
    holds = all(ends == {claim.choice} for ends, _ in runs) and (limit is None or most <= limit)
    ours = (f"{evidence.engine_choice()}; {'at most ' if len(runs) > 1 else ''}{most} "
            f"move{'' if most == 1 else 's'} a run")
    by_object = max(_most_of_one(moves) for _, moves in runs)
    if claim.once and by_object > 1:
        return f"{ours}, {by_object} of one object", False
    return ours, holds


def _most_of_one(moves):
    """Of these moves, the most that one client's object made."""
    counted = Counter((move["client"], move["object"]) for move in moves)
    return max(counted.values(), default=0)


def _retries(claim, evidence):
    ours = evidence.retries(claim.placement)
    if ours is None:
        return "no operations", False
    return f"{ours.mean:.2f}", (ours.mean < claim.fewer_than if claim.fewer_than is not None else
                                ours.mean <= claim.at_most)


def _total(claim, evidence):
    optimal = math.fsum(seconds for _, seconds in evidence.optimal_phases())
    total = evidence.time("adaptive").mean
    return (f"{total / optimal:.2f} x ({number(total)} s for {number(optimal)} s)",
            optimal > 0 and total <= claim.at_most * optimal)


def _near_best(claim, evidence):
    """Of the row itself, which has the profile's constants, and of all cells of the grid."""
    times = {name: cell.time("adaptive").mean for name, cell in
             evidence.grids.get(claim.grid, {}).items() if cell.time("adaptive")}
    if not times:
        return "not run: any cell", False
    best = min(times, key=times.get)
    mine = evidence.time("adaptive").mean
    return (f"{mine / times[best] - 1:+.1%} ({number(mine)} s for {number(times[best])} s, "
            f"{best}, the best of {len(times)})"), mine <= (1 + claim.within) * times[best]


def _beats_statics(_, evidence):
    total = evidence.time("adaptive").mean
    ratios = {placement: evidence.time(placement).mean / total for placement in STATICS}
    return (", ".join(f"{number(ratio)} x over {placement}" for placement, ratio in ratios.items()),
            all(ratio > 1 for ratio in ratios.values()))


def _visits(claim, evidence):
    """In each run, and of each client's objects, the places moved to in this very order."""
    seen = []
    for record in evidence.adaptive():
        for client in record["clients"]:
            seen.append([move["to"] for move in evidence.moves(record, client["node"])])
    text = " | ".join(sorted({", ".join(places) or "stays" for places in seen}))
    return text, all(places == claim.sequence for places in seen)


def _exchanged(claim, evidence, record):
    """(t of first in, t of second in, t of first out), or what is missing of it."""
    first, second = (evidence.moves(record, client) for client in (claim.first, claim.second))
    went = next((move["t_s"] for move in first if move["to"] == "server"), None)
    came = next((move["t_s"] for move in second if move["to"] == "server"
                 and went is not None and move["t_s"] > went), None)
    back = next((move["t_s"] for move in first if move["to"] == "client"
                 and went is not None and move["t_s"] > went), None)
    for time_s, text in ((went, f"{claim.first} does not move to the server"),
                         (came, f"{claim.second} does not follow it there"),
                         (back, f"{claim.first} is not sent back")):
        if time_s is None:
            return text
    # The place is free before it is taken: back no later than what comes next of the second one.
    leaves = next((move["t_s"] for move in second if move["to"] == "client"
                   and move["t_s"] > came), math.inf)
    return (went, came, back) if back < leaves else f"{claim.second} leaves before it is alone"


def _exchange(claim, evidence):
    runs = [_exchanged(claim, evidence, record) for record in evidence.adaptive()]
    failed = [run for run in runs if isinstance(run, str)]
    ours = failed[0] if failed else "{} in at {} s, {} in at {} s, {} back at {} s".format(
        claim.first, number(runs[0][0]), claim.second, number(runs[0][1]),
        claim.first, number(runs[0][2]))
    if failed and len(runs) > len(failed):
        ours += f" (in {len(failed)} of {len(runs)} runs)"
    return ours, not failed


def progress_rates(client, moves):
    """{"client": operations/s, "server": operations/s} of a client, by where its object was.

    Only times at which there was progress to make count: from its first point to its last.
    """
    points = client["progress"]
    if len(points) < 2:
        return {}
    ends = [(move["t_s"], move["to"]) for move in moves] + [(math.inf, None)]
    spent, done = {}, {}
    begin, place = points[0][0], moves[0]["from"] if moves else None
    for until, to in ends:
        until = min(until, points[-1][0])
        if place is not None and until > begin:
            spent[place] = spent.get(place, 0) + until - begin
            done[place] = done.get(place, 0) + _at(points, until) - _at(points, begin)
        begin, place = max(begin, until), to
    return {place: done[place] / spent[place] for place in spent}


def _at(points, time_s):
    """Cumulative operations at a time, on a line between the points around it."""
    before = points[0]
    for point in points:
        if point[0] >= time_s:
            width = point[0] - before[0]
            share = 1 if width == 0 else (time_s - before[0]) / width
            return before[1] + share * (point[1] - before[1])
        before = point
    return points[-1][1]


def _rises(claim, evidence):
    """Of each client: its object was at both places, and it was faster with that at the server."""
    factors, lacking = [], []
    for record in evidence.adaptive():
        for client in record["clients"]:
            factor = _gain(evidence, record, client)
            if factor is not None:
                factors.append((factor, client["node"]))
            else:
                lacking.append(client["node"])
    ours = "; ".join(([f"{number(min(factors)[0])} x ({min(factors)[1]}) to "
                       f"{number(max(factors)[0])} x ({max(factors)[1]})"] if factors else []) +
                     ([f"no progress at both places: {', '.join(sorted(set(lacking)))}"]
                      if lacking else []))
    return ours, bool(factors) and not lacking and min(factors)[0] > claim.at_least


def _gain(evidence, record, client):
    """How many times as fast a client was with its object at the server, None where it was not at
    both places."""
    rates = progress_rates(client, evidence.moves(record, client["node"]))
    if {"client", "server"} <= rates.keys() and rates["client"] > 0:
        return rates["server"] / rates["client"]
    return None


def _one_by_one(claim, evidence):
    """Of the first clients, as the figure shows them: their objects go to the server at different
    times, and who goes later gains less."""
    seen, holds = [], True
    for record in evidence.adaptive():
        went = []
        for client in record["clients"][:claim.clients]:
            at_s = next((move["t_s"] for move in evidence.moves(record, client["node"])
                         if move["to"] == "server"), None)
            gain = _gain(evidence, record, client)
            if at_s is None or gain is None:
                seen.append(f"{client['node']} was not at both places")
                holds = False
                break
            went.append((at_s, gain, client["node"]))
        else:
            went.sort()
            holds = holds and len(went) == claim.clients and all(
                later[0] - before[0] >= claim.apart_s and later[1] < before[1]
                for before, later in itertools.pairwise(went))
            seen.append(", ".join(f"{node} at {number(at_s)} s: {number(gain)} x"
                                  for at_s, gain, node in went))
    return " | ".join(seen), holds


def _together(_, evidence):
    """Nothing moved but all at once: each run's first move is of every object, at one time."""
    seen, holds = [], True
    for record in evidence.adaptive():
        moves = evidence.moves(record)
        first = [move for move in moves if move["t_s"] == moves[0]["t_s"]]
        objects = {f"{move['client']}/{move['object']}" for move in first}
        holds = holds and objects == set(evidence.places(record)) and \
            {move["to"] for move in first} == {"server"}
        seen.append("no move" if not moves else f"first {', '.join(sorted(objects))} at "
                    f"{number(moves[0]['t_s'])} s")
    return " | ".join(seen), holds


def _apart(_, evidence):
    """In every run the objects of each client end at a server where no other client's are."""
    seen, holds = [], True
    for record in evidence.adaptive():
        nodes = {}  # of each client
        for key, place in evidence.places(record).items():
            node = record.get("final_nodes", {}).get(key) if place == "server" else None
            nodes.setdefault(key.partition("/")[0], set()).add(node)
        used = [node for of in nodes.values() for node in of]
        holds = holds and None not in used and len(set(used)) == len(nodes) == len(used)
        seen.append(", ".join(f"{client} at " + " and ".join(sorted(of or "the client"
                                                                    for of in ends))
                              for client, ends in sorted(nodes.items())))
    return " | ".join(seen), holds


_KINDS = {"direction": _direction, "speedup": _speedup, "speedup_below": _speedup_below,
          "adaptive": _adaptive, "engine": _engine, "retries": _retries, "total": _total,
          "beats_statics": _beats_statics, "visits": _visits, "exchange": _exchange,
          "rises": _rises, "one_by_one": _one_by_one, "near_best": _near_best,
          "together": _together, "apart": _apart}
_COMPARES_STATICS = {"direction", "speedup", "speedup_below", "adaptive", "total", "beats_statics"}


def _stays(claim):
    return claim.moves_max == 0 and claim.choice == "client"


def _retries_stated(claim):
    strict = claim.fewer_than is not None
    limit = claim.fewer_than if strict else claim.at_most
    return (f"{'fewer than' if strict else 'at most'} {limit:g} retries per {OPERATIONS} inserts, "
            f"{claim.placement}", f"{limit:.2f}")


# What a claim says, and the paper's word for it.
_STATED = {
    "direction": lambda claim: (f"{claim.winner} is the faster static placement", claim.winner),
    "speedup": lambda claim: (f"{claim.winner} is at least {claim.at_least:g} times as fast as the "
                              "other", f"{claim.at_least:g} x"),
    "speedup_below": lambda claim: (f"the static placements differ by less than {claim.limit:g} x",
                                    f"< {claim.limit:g} x"),
    "adaptive": lambda claim: (f"adaptive is within {claim.within:.0%} of the better static "
                               "placement", f"within {claim.within:.0%}"),
    "engine": lambda claim: (f"the engine {'stays at' if _stays(claim) else 'chooses'} the "
                             f"{claim.choice}" + (", and each object moves once" if claim.once else ""),
                             f"{'stay at' if _stays(claim) else 'move to'} {claim.choice}"
                             if _stays(claim) or claim.choice == "server" else claim.choice),
    "retries": _retries_stated,
    "total": lambda claim: (f"adaptive in total takes at most {claim.at_most:g} x optimal",
                            f"<= {claim.at_most:g} x optimal"),
    "beats_statics": lambda _: ("adaptive is faster than both static placements",
                                "faster than both"),
    "near_best": lambda claim: (f"adaptive is within {claim.within:.0%} of the best of the grid "
                                f"{claim.grid}", f"within {claim.within:.0%}"),
    "visits": lambda claim: (f"the engine follows the phases: {', '.join(claim.sequence)}",
                             ", ".join(claim.sequence)),
    "exchange": lambda claim: (
        f"{claim.first} moves to the server, and makes place for {claim.second}",
        f"{claim.first} in, {claim.second} in, {claim.first} back"),
    "rises": lambda _: ("each client progresses faster while its object is at the server",
                        "it rises"),
    "one_by_one": lambda claim: (
        f"of the first {claim.clients} clients the objects move {claim.apart_s:g} s apart or more, "
        "and the later one gains less", "one by one, the later one less"),
    "together": lambda _: ("all objects go to the server in one step", ""),
    "apart": lambda _: ("each client's objects end at a server of their own", ""),
}


def stated(claim):
    """(what the claim says, the paper's word for it), the file's own texts before all."""
    text, paper = _STATED[claim.kind](claim)
    return claim.text or text, claim.paper or paper


def evaluate(claim, evidence):
    """The claim's Outcome; one whose runs are missing does not hold, and says which."""
    needs = set(STATICS) if claim.kind in _COMPARES_STATICS else set()
    if claim.kind == "retries":
        needs.add(claim.placement)
    elif claim.kind not in ("direction", "speedup", "speedup_below"):
        needs.add("adaptive")
    missing = sorted(needs - evidence.records.keys())
    if missing:
        ours, holds = f"not run: {', '.join(missing)}", False
    else:
        ours, holds = _KINDS[claim.kind](claim, evidence)
    return Outcome(*stated(claim), ours, holds)

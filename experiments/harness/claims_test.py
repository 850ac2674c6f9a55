#!/usr/bin/env python3
"""Each kind of claim, where it holds and where it does not, from made-up records."""

import unittest

from claims import Evidence, evaluate, over, progress_rates
from definition import CLAIM_KINDS, Claim
from fake_world import client, move, record

AT_CLIENT, AT_SERVER = {"lan1/apps.Filter": "client"}, {"lan1/apps.Filter": "server"}


def claim(kind, **options):
    defaults = {key: None if default is ... else default
                for key, (_, default) in CLAIM_KINDS[kind].items()}
    return Claim(kind, options.pop("text", ""), options.pop("paper", ""), {**defaults, **options})


def times(client_s=(), adaptive_s=(), server_s=(), **others):
    """Evidence of runs that lasted so long."""
    made = {"client": client_s, "adaptive": adaptive_s, "server": server_s}
    return Evidence({placement: [record(seconds, **others) for seconds in of]
                     for placement, of in made.items()})


def adaptive(*records, wanted_class="apps.Filter"):
    return Evidence({"adaptive": records}, wanted_class)


class ClaimsTest(unittest.TestCase):
    kinds_seen = set()

    def check(self, holds, made, evidence, ours=""):
        outcome = evaluate(made, evidence)
        self.assertEqual(outcome.holds, holds, outcome)
        self.assertIn(ours, outcome.ours)
        self.kinds_seen.add((made.kind, holds))
        return outcome

    @classmethod
    def tearDownClass(cls):
        every = {(kind, holds) for kind in CLAIM_KINDS for holds in (True, False)}
        missing = every - cls.kinds_seen
        assert not missing, f"kinds that no test saw: {sorted(missing)}"

    def test_direction_is_that_of_the_means(self):
        evidence = times([10, 12], [], [4, 6])
        self.check(True, claim("direction", winner="server"), evidence)
        self.check(False, claim("direction", winner="client"), evidence)

    def test_together_is_one_step_of_all_objects(self):
        def run(*moves):
            return adaptive(record(9, migrations=list(moves), final_placement={
                "lan1/apps.Filter": "server", "lan1/objfs.CacheLayer": "server"}), wanted_class="")

        both = [move(1.5, "server"), move(1.5, "server", what="objfs.CacheLayer")]
        self.check(True, claim("together"), run(*both), "first lan1/apps.Filter, lan1/objfs.Cache")
        later = move(2.5, "server", what="objfs.CacheLayer")
        self.check(False, claim("together"), run(both[0], later), "first lan1/apps.Filter at 1.50")
        self.check(False, claim("together"), run(), "no move")
        back = [move(1.5, "client"), move(1.5, "client", what="objfs.CacheLayer")]
        self.check(False, claim("together"), run(*back))

    def test_apart_is_a_server_for_each_client(self):
        def run(*nodes):
            keys = ["lan1/apps.Filter", "lan2/apps.Filter"]
            return adaptive(record(9, final_nodes={key: node for key, node in zip(keys, nodes)
                                                   if node},
                                   final_placement={key: "server" if node else "client"
                                                    for key, node in zip(keys, nodes)}))

        self.check(True, claim("apart"), run("server", "server-s2"),
                   "lan1 at server, lan2 at server-s2")
        self.check(False, claim("apart"), run("server", "server"))
        self.check(False, claim("apart"), run("server", None), "lan2 at the client")
        self.check(False, claim("apart"), run(None, None))

    def test_direction_says_where_the_intervals_overlap(self):
        self.check(True, claim("direction", winner="server"), times([5, 9], [], [4, 8]),
                   "the intervals overlap")

    def test_speedup_must_be_reached_by_the_right_placement(self):
        made = claim("speedup", winner="server", at_least=2.7)
        self.check(True, made, times([27], [], [10]), "server: 2.70 x")
        self.check(False, made, times([26.9], [], [10]))
        self.check(False, made, times([10], [], [40]), "client: 4.00 x")

    def test_speedup_below_looks_at_either_direction(self):
        made = claim("speedup_below", limit=1.3)
        self.check(True, made, times([12], [], [10]))
        self.check(False, made, times([13], [], [10]))
        self.check(False, made, times([10], [], [20]))

    def test_adaptive_is_held_to_the_papers_margin(self):
        made = claim("adaptive", within=0.10)
        self.check(True, made, times([50], [10.9], [10]), "+9.0%")
        self.check(False, made, times([50], [11.1], [10]))
        self.check(True, made, times([10], [10.9], [50]))

    def test_adaptive_is_held_to_its_half_width_where_that_is_larger(self):
        made = claim("adaptive", within=0.10)
        # Mean 12, s = 2, so a half-width of 2.92 x 2 / sqrt(3) = 3.37 > 1.
        self.check(True, made, times([50, 50], [10, 12, 14], [10, 10]), "half-width is the margin")
        # Mean 12 with a half-width of 0.17: the paper's margin of 1 counts.
        self.check(False, made, times([50, 50], [11.9, 12, 12.1], [10, 10]))

    def test_the_default_is_held_to_the_best_cell_of_the_grid(self):
        made = claim("near_best", grid="at", within=0.25)
        cells = {"at_1": times([], [8], []), "at_2": times([], [10], []), "at_3": times()}
        for mine, holds in ((9.9, True), (10.1, False)):
            evidence = Evidence({"adaptive": [record(mine)]}, grids={"at": cells})
            self.check(holds, made, evidence, "8.00 s, at_1, the best of 2)")
        self.check(False, made, times([], [1], []), "not run: any cell")

    def test_adaptive_is_held_against_the_phases_or_the_better_static_placement(self):
        def run(seconds, *phases):
            return [record(seconds, phases=[{"name": "p", "elapsed_s": of} for of in phases])]
        evidence = Evidence({"client": run(10, 1, 9), "server": run(8, 6, 2), "adaptive": run(6)})
        self.assertAlmostEqual(over(evidence, "optimal"), 6 / 3)
        self.assertAlmostEqual(over(evidence, "static"), 6 / 8)
        self.assertAlmostEqual(over(times([10], [6], [8]), "optimal"), 6 / 8)

    def test_adaptive_with_one_run_has_no_interval_to_lean_on(self):
        self.check(False, claim("adaptive", within=0.0), times([50], [10.01], [10]))

    def test_engine_must_end_there_in_every_run(self):
        made = claim("engine", choice="server")
        goes = record(9, migrations=[move(1, "server")], final_placement=AT_SERVER)
        stays = record(9, final_placement=AT_CLIENT)
        self.check(True, made, adaptive(goes, goes), "server; at most 1 move a run")
        self.check(False, made, adaptive(goes, stays, goes), "server in 2 of 3 runs")

    def test_engine_that_stays_does_not_move_at_all(self):
        made = claim("engine", choice="client", moves_max=0)
        fro = record(9, migrations=[move(1, "server"), move(2, "client")],
                     final_placement=AT_CLIENT)
        self.check(True, made, adaptive(record(9, final_placement=AT_CLIENT)))
        self.check(False, made, adaptive(fro), "client; 2 moves")
        self.check(True, claim("engine", choice="client"), adaptive(fro))

    def test_engine_that_goes_to_and_fro_has_not_chosen_once(self):
        moves = [move(1, "server"), move(2, "client"), move(3, "server")]
        made = record(9, migrations=moves, final_placement=AT_SERVER)
        self.check(True, claim("engine", choice="server"), adaptive(made))
        self.check(False, claim("engine", choice="server", once=True), adaptive(made),
                   "server; 3 moves a run, 3 of one object")
        two = record(9, migrations=[move(1, "server"), {**move(2, "server"), "client": "lan2"}],
                     final_placement=AT_SERVER)
        self.check(True, claim("engine", choice="server", once=True), adaptive(two),
                   "server; 2 moves a run")

    def test_engine_is_judged_by_the_class_that_counts(self):
        mixed = record(9, final_placement={**AT_SERVER, "lan1/objfs.CacheLayer": "client"})
        self.check(True, claim("engine", choice="server"), adaptive(mixed))
        self.check(False, claim("engine", choice="server"), adaptive(mixed, wanted_class=""),
                   "mixed")
        self.check(False, claim("engine", choice="server"), adaptive(mixed, wanted_class="No"),
                   "unknown")

    def test_retries_are_per_two_hundred_inserts_of_all_clients(self):
        # 12 retries at 2 x 100 inserts.
        busy = adaptive(record(9, clients=[client("a", 9, 100, 12), client("b", 9, 100, 0)]))
        self.check(True, claim("retries", fewer_than=12.5), busy, "12.00")
        self.check(False, claim("retries", fewer_than=12.0), busy)
        self.check(True, claim("retries", at_most=12.0), busy)
        self.check(False, claim("retries", at_most=0.0), busy)

    def test_retries_without_operations_do_not_hold(self):
        self.check(False, claim("retries", at_most=0.0),
                   adaptive(record(9, clients=[client("a", 9, 0, 0)])), "no operations")

    @staticmethod
    def phases(client_s, adaptive_s, server_s):
        def run(seconds):
            return record(sum(seconds), phases=[{"name": name, "elapsed_s": of} for name, of in
                                                zip(("insert", "scan"), seconds)])
        return Evidence({"client": [run(client_s)], "adaptive": [run(adaptive_s)],
                         "server": [run(server_s)]})

    def test_total_is_held_to_the_best_of_each_phase(self):
        made = claim("total", at_most=1.3)
        # Optimal: 8 at the server and 2 at the client.
        self.check(True, made, self.phases((26, 2), (10, 3), (8, 29)), "1.30 x")
        self.check(False, made, self.phases((26, 2), (10, 3.1), (8, 29)))

    def test_beats_statics_means_both(self):
        made = claim("beats_statics")
        self.check(True, made, times([20], [10], [30]), "2.00 x over client, 3.00 x over server")
        self.check(False, made, times([20], [25], [30]))

    def test_visits_are_the_places_in_their_order(self):
        made = claim("visits", sequence=["server", "client"])
        both = record(9, migrations=[move(3, "client"), move(1, "server")])
        self.check(True, made, adaptive(both))
        self.check(False, made, adaptive(both, record(9, migrations=[move(1, "server")])), "server")
        self.check(False, made, adaptive(record(9)), "stays")

    def test_exchange_needs_all_three_moves(self):
        made = claim("exchange", first="lan1", second="lan2")
        steps = [move(1, "server", "lan1"), move(5, "client", "lan1"), move(5.1, "server", "lan2")]
        self.check(True, made, adaptive(record(9, migrations=steps)),
                   "lan1 in at 1.00 s, lan2 in at 5.10 s, lan1 back at 5.00 s")
        self.check(False, made, adaptive(record(9, migrations=steps[:2])), "lan2 does not follow")
        self.check(False, made, adaptive(record(9, migrations=[steps[0], steps[2]])),
                   "lan1 is not sent back")
        self.check(False, made, adaptive(record(9)), "lan1 does not move")

    def test_exchange_is_none_where_the_second_leaves_first(self):
        steps = [move(1, "server", "lan1"), move(2, "server", "lan2"), move(3, "client", "lan2"),
                 move(4, "client", "lan1")]
        self.check(False, claim("exchange", first="lan1", second="lan2"),
                   adaptive(record(9, migrations=steps)), "leaves before")

    def test_exchange_must_be_in_every_run(self):
        steps = [move(1, "server", "lan1"), move(5, "client", "lan1"), move(5.1, "server", "lan2")]
        self.check(False, claim("exchange", first="lan1", second="lan2"),
                   adaptive(record(9, migrations=steps), record(9)), "in 1 of 2 runs")

    def test_rises_means_that_each_client_is_faster_at_the_server(self):
        made = claim("rises", at_least=1.0)
        up = client("a", 10, progress=[[0, 0], [5, 10], [10, 60]])
        even = client("b", 10, progress=[[0, 0], [10, 60]])
        moves = [move(5, "server", "a"), move(5, "server", "b")]
        self.check(True, made, adaptive(record(10, clients=[up], migrations=moves[:1])), "5.00 x")
        self.check(False, made, adaptive(record(10, clients=[up, even], migrations=moves)))

    def test_rises_needs_a_move_of_each_client(self):
        up = client("a", 10, progress=[[0, 0], [5, 10], [10, 60]])
        other = client("b", 10, progress=[[0, 0], [5, 10], [10, 60]])
        self.check(False, claim("rises", at_least=1.0),
                   adaptive(record(10, clients=[up, other], migrations=[move(5, "server", "a")])),
                   "no progress at both places: b")

    def test_one_by_one_is_apart_and_the_later_one_gains_less(self):
        made = claim("one_by_one", apart_s=0.5, clients=2)
        first = client("a", 10, progress=[[0, 0], [2, 10], [10, 90]])     # 2 x
        later = client("b", 10, progress=[[0, 0], [5, 25], [10, 62.5]])   # 1.5 x
        other = client("c", 10, progress=[[0, 0], [10, 10]])              # the figure has two
        moves = [move(2, "server", "a"), move(5, "server", "b")]
        self.check(True, made,
                   adaptive(record(10, clients=[first, later, other], migrations=moves)),
                   "a at 2.00 s: 2.00 x, b at 5.00 s: 1.50 x")
        at_once = [move(4.9, "server", "a"), move(5, "server", "b")]
        gains_first = client("a", 10, progress=[[0, 0], [4.9, 24.5], [10, 75.5]])
        self.check(False, made,
                   adaptive(record(10, clients=[gains_first, later], migrations=at_once)), "4.90 s")
        more = client("b", 10, progress=[[0, 0], [5, 5], [10, 50]])       # 9 x
        self.check(False, made, adaptive(record(10, clients=[first, more], migrations=moves)),
                   "b at 5.00 s: 9.00 x")
        # One run of several is enough to say no, and so is a client that stays.
        self.check(False, made,
                   adaptive(record(10, clients=[first, later], migrations=moves),
                            record(10, clients=[first, later], migrations=moves[:1])),
                   "b was not at both places")

    def test_rates_follow_an_object_to_and_fro(self):
        made = client("a", 30, progress=[[0, 0], [10, 10], [20, 110], [30, 120]])
        rates = progress_rates(made, [move(10, "server", "a"), move(20, "client", "a")])
        self.assertEqual(rates, {"client": 1.0, "server": 10.0})

    def test_runs_that_are_missing_are_named(self):
        self.check(False, claim("direction", winner="server"), times([1], [1], []),
                   "not run: server")
        self.check(False, claim("rises", at_least=1.0), times([1], [], [1]), "not run: adaptive")

    def test_texts_of_the_experiment_come_before_those_of_the_kind(self):
        outcome = evaluate(claim("beats_statics", text="Ours", paper="Theirs"),
                           times([2], [1], [2]))
        self.assertEqual((outcome.claim, outcome.paper), ("Ours", "Theirs"))

    def test_short_means_fewer_than_three_windows(self):
        self.assertTrue(times([], [2.9], []).short())
        self.assertFalse(times([2], [3.0], []).short())
        self.assertTrue(times([], [5.9], [], window_s=2.0).short())


if __name__ == "__main__":
    unittest.main()

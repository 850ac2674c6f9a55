"""The lab on loopback: a server and clients as processes of this machine, and what they tell.

    lab_test.py PROGRAM        abacus_lab
"""

import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
from lab import PROFILES, Client, Lab, LabError, Loopback, Profile, Spread, table_job  # noqa: E402

ROW = {"record_bytes": 128, "file_bytes": 32768}


class LabTest(unittest.TestCase):
    def setUp(self):
        self.lab = Lab(Loopback(), "paper", PROGRAM)
        self.addCleanup(self.lab.end)

    def table(self, placement, phases, **job):
        client = Client("c1", {**table_job(self.lab, ROW, phases, 7), **job})
        return self.lab.run([client], placement, 7)

    def test_a_null_call_costs_what_the_paper_node_takes(self):
        call = self.lab.null_call("c1", calls=100)
        # 4 x 0.2 ms a call: two frames, each of them sent and received. A timer may be 0.05 ms early.
        self.assertGreater(call["ms"], 0.6)
        self.assertGreater(call["client_cpu_us"], 0)
        self.assertGreater(call["server_cpu_us"], 0)

    def test_pinned_objects_are_where_they_belong_and_stay(self):
        for placement in ("client", "server"):
            record = self.table(placement, [{"name": "insert", "operations": 50},
                                            {"name": "scan", "operations": 30}])
            self.assertEqual(record["final_placement"], {"c1/objfs.CacheLayer": placement})
            self.assertEqual(record["migrations"], [])
            self.assertEqual([p["name"] for p in record["phases"]], ["insert", "scan"])
            self.assertEqual(record["clients"][0]["operations"], 80)
            self.assertEqual(record["clients"][0]["progress"][-1][1], 80)
            self.assertGreater(record["elapsed_s"], 0)
            self.assertTrue(record["source"])

    def test_a_filter_reads_its_file_through_at_either_place(self):
        for placement in ("client", "server"):
            job = {"kind": "filter", "file": "data", "pass_share": 0.2}
            record = self.lab.run([Client("c1", job)], placement, 1,
                                  {"files": [{"name": "data", "bytes": 262144}]})
            # Four reads, and one that finds the end.
            self.assertEqual(record["clients"][0]["operations"], 5)
            self.assertEqual(record["final_placement"], {"c1/apps.Filter": placement})

    def test_a_search_finds_the_lines_that_were_prepared_at_either_place(self):
        for placement in ("client", "server"):
            job = {"kind": "grep", "file": "text", "pattern": "5 a"}
            # 3000 lines and a part of one: a tenth of them has a number that ends with 5.
            record = self.lab.run([Client("c1", job)], placement, 1, {"files": [
                {"name": "text", "bytes": 300050, "line_bytes": 100}]})
            self.assertEqual(record["clients"][0]["matches"], 300)
            self.assertEqual(record["final_placement"], {"c1/apps.Grep": placement})

    def test_readers_see_all_of_a_text_at_either_place(self):
        # 3000 lines of a number and a word, and a part of the next one.
        for kind, class_name, seen in (
                ("word_count", "apps.WordCount", {"words": 6002}),
                ("aggregate", "apps.ColumnAggregate", {"rows": 3001, "sum": 3000 * 3001 / 2})):
            for placement in ("client", "server"):
                record = self.lab.run(
                    [Client("c1", {"kind": kind, "file": "text"})], placement, 1,
                    {"files": [{"name": "text", "bytes": 300050, "line_bytes": 100}]})
                self.assertLessEqual(seen.items(), record["clients"][0].items())
                self.assertEqual(record["final_placement"], {f"c1/{class_name}": placement})

    def test_a_class_alone_goes_to_the_server(self):
        prepare = {"files": [{"name": "data", "bytes": 262144,
                              "stack": self.lab.profile.stack("cached")}]}
        for only, places in (("apps.Filter", ("server", "client")),
                             ("objfs.CacheLayer", ("client", "server"))):
            job = {"kind": "filter", "file": "data", "only": only}
            for placement, wanted in (("server", places), ("client", ("client", "client"))):
                record = self.lab.run([Client("c1", job)], placement, 1, prepare)
                self.assertEqual((record["final_placement"]["c1/apps.Filter"],
                                  record["final_placement"]["c1/objfs.CacheLayer"]), wanted)

    def test_a_disk_has_the_speed_that_the_topology_says(self):
        job = {"kind": "filter", "file": "data", "pass_share": 0}
        prepare = {"files": [{"name": "data", "bytes": 4 << 20}]}
        node = SimpleNamespace(disk_bandwidth=2e6, disk_seek_s=0.01, cpu=None, address="127.0.0.1",
                               memory_bytes=None)
        self.lab.testbed.topology = SimpleNamespace(nodes={"s1": node, "c1": node})
        slow = self.lab.run([Client("c1", job)], "client", 1, prepare)
        self.assertGreater(slow["elapsed_s"], (4 << 20) / 2e6)
        node.disk_bandwidth = 200e6
        fast = self.lab.run([Client("c1", job)], "client", 1, prepare)
        self.assertLess(fast["elapsed_s"], slow["elapsed_s"] / 2)

    def memory_limits(self, **run):
        """Of each process's configuration, by its name, in a run of a server with 64 MB."""
        node = SimpleNamespace(disk_bandwidth=2e8, disk_seek_s=0, cpu=None, address="127.0.0.1",
                               memory_bytes=64_000_000)
        self.lab.testbed.topology = SimpleNamespace(nodes={"s1": node, "c1": node})
        limits, start = {}, self.lab._start

        def started(node, name, words):
            config = tomllib.loads(Path(words[words.index("--config") + 1]).read_text())
            limits[name] = config["placement"].get("memory_limit")
            return start(node, name, words)

        with mock.patch.object(self.lab, "_start", started):
            self.lab.run([Client("c1", {"kind": "null", "calls": 1})], "client", 1, **run)
        return limits

    def test_a_server_has_the_memory_that_the_topology_says_unless_told_otherwise(self):
        self.assertEqual(self.memory_limits(), {"server": "64000000 B", "c1": None})
        row = {"placement": {"memory_limit": "12 MiB"}}
        self.assertEqual(self.memory_limits(server_config=row)["server"], "12 MiB")
        self.lab.profile.values["config"]["placement"]["memory_limit"] = "9 MiB"
        self.assertEqual(self.memory_limits(), {"server": "9 MiB", "c1": "9 MiB"})

    def test_clients_make_files_in_one_directory_and_their_retries_are_told(self):
        clients = [Client(node, {"kind": "directory", "directory": "shared", "prefix": node,
                                 "files": 20}) for node in ("c1", "c2")]
        prepare = {"directories": [{"name": "shared", "names": 3}]}
        record = self.lab.run(clients, "client", 1, prepare)
        self.assertEqual([c["node"] for c in record["clients"]], ["c1", "c2"])
        self.assertEqual([c["operations"] for c in record["clients"]], [20, 20])
        self.assertGreater(sum(c["retries"] for c in record["clients"]), 0)
        self.assertEqual(len(record["clients"][0]["retry_progress"]),
                         len(record["clients"][0]["progress"]))
        record = self.lab.run(clients, "server", 1, prepare)
        self.assertEqual(sum(c["retries"] for c in record["clients"]), 0)

    def raid(self, placement, fails=None, **job):
        client = Client("c1", {"kind": "stream", "file": "data", "call_bytes": 32768, **job})
        prepare = {"files": [{"name": "data", "bytes": 393216, "stack": self.lab.profile.stack("raid")}]}
        return self.lab.run([client], placement, 1, prepare,
                            spread=Spread(2, ["s2", "s3", "s4"], fails))

    def test_a_file_over_five_disks_of_four_servers_is_written_at_either_place(self):
        for placement in ("client", "server"):
            record = self.raid(placement, writes=True)
            self.assertEqual(record["clients"][0]["operations"], 12)
            self.assertEqual(record["final_placement"], {"c1/objfs.Raid5Layer": placement,
                                                         "c1/objfs.SpreadLayer": placement})

    def test_any_disk_but_the_first_may_fail_and_what_was_prepared_is_read(self):
        for fails in range(1, 5):
            self.assertEqual(self.raid("client", fails)["clients"][0]["operations"], 12)
        with self.assertRaisesRegex(LabError, "--fails takes a number from 1 to 4"):
            self.raid("client", 5)

    def test_a_client_that_fails_is_told_with_its_last_words(self):
        with self.assertRaisesRegex(LabError, "c1: .*no-such-directory|c1: .*NOT_FOUND"):
            self.lab.run([Client("c1", {"kind": "directory", "directory": "no-such-directory",
                                        "prefix": "c1", "files": 1})], "client", 1)
        self.assertEqual(self.lab._processes, [])

    def test_a_client_begins_when_it_is_due(self):
        jobs = [Client("c1", {"kind": "null", "calls": 10}),
                Client("c2", {"kind": "null", "calls": 10}, start_after_s=0.5)]
        record = self.lab.run(jobs, "client", 1)
        self.assertGreaterEqual(record["clients"][1]["start_s"], 0.5)
        self.assertGreaterEqual(record["elapsed_s"], 0.5)


class ProfileTest(unittest.TestCase):
    def test_what_comes_on_top_replaces_a_key_and_leaves_the_others(self):
        text = Profile.load("paper").config(placement={"window": "2s"}, node={"name": "a"})
        self.assertIn('window = "2s"', text)
        self.assertIn("threshold = 0.3", text)
        self.assertIn('[node]\nname = "a"', text)

    def test_each_profile_has_what_drivers_ask_for(self):
        names = [path.stem for path in PROFILES.glob("*.toml")]
        self.assertLessEqual({"paper", "default", "modern", "no_disk"}, set(names))
        for name in names:
            profile = Profile.load(name)
            self.assertGreaterEqual(profile.repetition, 1)
            for stack in ("cached", "plain", "raid"):
                self.assertIn("storage", profile.stack(stack))

    def test_the_papers_profile_is_frozen(self):
        """Whoever changes it says so in its head, here, and beside all figures that were had with it."""
        self.assertEqual(Profile.load("paper").sha256,
                         "895994351c7ee3c15fb0d77cf25ad9eb87067b18850188bb1ce809b43ac35fc9")

    def test_raid_in_the_papers_profile_gathers_nothing_and_writes_in_place(self):
        # Both are on by default, and the paper's has neither.
        layer = Profile.load("paper").stack("raid").split("/")[0]
        self.assertTrue(layer.startswith("raid5("), layer)
        options = layer.removeprefix("raid5(").removesuffix(")").split(",")
        self.assertIn("gather=off", options)
        self.assertIn("journal=off", options)

    def test_a_hash_is_of_every_byte_and_a_name_that_is_none_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mine.toml"
            text = Profile.load("paper").text
            path.write_text(text)
            self.assertEqual(Profile.load(str(path)).sha256, Profile.load("paper").sha256)
            path.write_text(text + "\n")
            self.assertNotEqual(Profile.load(str(path)).sha256, Profile.load("paper").sha256)
        with self.assertRaisesRegex(LabError, "there are: default, .*paper"):
            Profile.load("papre")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()

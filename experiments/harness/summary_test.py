#!/usr/bin/env python3
"""Means and intervals, against printed tables of Student's t."""

import math
import unittest

from summary import Summary, number, summarize, t_quantile, t_within

# The two-sided 90 % and 95 % points that every table of the distribution prints.
TABLE_90 = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 9: 1.833, 10: 1.812,
            15: 1.753, 20: 1.725, 29: 1.699, 30: 1.697, 60: 1.671, 120: 1.658}
TABLE_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 29: 2.045, 30: 2.042}


class SummaryTest(unittest.TestCase):

    def test_quantiles_are_those_of_the_tables(self):
        for confidence, table in ((0.90, TABLE_90), (0.95, TABLE_95)):
            for freedom, wanted in table.items():
                self.assertAlmostEqual(t_quantile(freedom, confidence), wanted, delta=0.0006,
                                       msg=f"{freedom} degrees of freedom at {confidence}")

    def test_quantile_is_the_inverse_of_the_distribution(self):
        for freedom in range(1, 40):
            self.assertAlmostEqual(t_within(t_quantile(freedom, 0.8), freedom), 0.8, delta=1e-8)

    def test_one_degree_of_freedom_is_cauchys_distribution(self):
        for t in (0.1, 1.0, 7.0):
            self.assertAlmostEqual(t_within(t, 1), 2 / math.pi * math.atan(t), delta=1e-12)

    def test_many_degrees_of_freedom_are_nearly_normal(self):
        self.assertAlmostEqual(t_quantile(2000), 1.645, delta=0.001)

    def test_no_freedom_and_no_confidence_are_refused(self):
        for freedom, confidence in ((0, 0.9), (3, 0.0), (3, 1.0)):
            with self.assertRaises(ValueError):
                t_quantile(freedom, confidence)

    def test_interval_of_five_runs(self):
        # s = sqrt(2.5), so 2.132 x sqrt(2.5 / 5).
        made = summarize([1, 2, 3, 4, 5])
        self.assertEqual((made.mean, made.runs), (3, 5))
        self.assertAlmostEqual(made.half, 2.1318 * math.sqrt(0.5), delta=1e-4)
        self.assertAlmostEqual(made.low, 3 - made.half)

    def test_one_run_has_no_interval(self):
        made = summarize([7.5])
        self.assertIsNone(made.half)
        self.assertEqual((made.low, made.high, made.text()), (7.5, 7.5, "7.50 s"))

    def test_equal_runs_have_an_interval_of_nothing(self):
        self.assertEqual(summarize([2.0, 2.0, 2.0]).half, 0)

    def test_nothing_is_no_mean(self):
        with self.assertRaises(ValueError):
            summarize([])

    def test_intervals_overlap_where_they_touch(self):
        self.assertTrue(Summary(1, 0.5, 5).overlaps(Summary(2, 0.5, 5)))
        self.assertFalse(Summary(1, 0.4, 5).overlaps(Summary(2, 0.5, 5)))

    def test_numbers_have_three_digits(self):
        for value, text in ((0.4123, "0.412"), (7.764, "7.76"), (12.34, "12.3"), (125.5, "126"),
                            (1234.5, "1234"), (0, "0"), (0.0123, "0.0123")):
            self.assertEqual(number(value), text)

    def test_interval_has_no_more_digits_than_its_mean(self):
        self.assertEqual(Summary(5.92, 0.0889, 5).text(), "5.92 ± 0.09 s")
        self.assertEqual(Summary(204.2, 4.051, 5).text(""), "204 ± 4")


if __name__ == "__main__":
    unittest.main()

"""The mean of a few runs, and how sure it is: Student's t at 90 % confidence, like the paper's."""

import dataclasses
import math

CONFIDENCE = 0.90


def t_within(t, freedom):
    """P(|T| < t) of Student's t with an integer number of degrees of freedom.

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4, in theta = atan(t / sqrt(v)).
    """
    theta = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(theta)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = term if not odd or freedom > 1 else 0.0
    for i in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (i - 1) / i
        total += term
    total *= math.sin(theta)
    return 2 / math.pi * (theta + total) if odd else total


def t_quantile(freedom, confidence=CONFIDENCE):
    """The t for which P(|T| < t) is `confidence`, to 1e-9."""
    if freedom < 1 or not 0 < confidence < 1:
        raise ValueError(f"no t of {freedom} degrees of freedom at a confidence of {confidence}")
    low, high = 0.0, 1.0
    while t_within(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < confidence else (low, middle)
    return high


@dataclasses.dataclass(frozen=True)
class Summary:
    """`half` is the half-width of the interval; None for a single run, which has none."""
    mean: float
    half: float | None
    runs: int

    @property
    def low(self):
        return self.mean - (self.half or 0)

    @property
    def high(self):
        return self.mean + (self.half or 0)

    def overlaps(self, other):
        """Whether the intervals have a point in common: the order of the means is not sure."""
        return self.low <= other.high and other.low <= self.high

    def text(self, unit="s"):
        digits = len(number(self.mean).partition(".")[2])  # no more of the interval than that
        spread = "" if self.half is None else f" ± {self.half:.{digits}f}"
        return f"{number(self.mean)}{spread}{' ' + unit if unit else ''}"


def summarize(values):
    """The Summary of at least one value."""
    values = list(values)
    if not values:
        raise ValueError("no values to summarize")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Summary(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = t_quantile(len(values) - 1) * math.sqrt(variance / len(values))
    return Summary(mean, half, len(values))


def number(value):
    """Three digits that matter, without exponents: 0.412, 7.76, 12.3, 125."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}"

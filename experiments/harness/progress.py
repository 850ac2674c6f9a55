"""A bar on a terminal while runs go on; elsewhere a line for each run that ended."""

import os
import signal
import sys
import time

WIDTH = 24
REDRAW_S = 0.5


def duration(seconds):
    """Rounded like a person would: 42 s, 7 min, 1 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Counts runs. `expected` tells the seconds of those that are left.

    The bar is redrawn by a timer signal and not by a thread: the testbed forks.
    """

    def __init__(self, total, out=sys.stderr):
        self.total, self.done, self.out = total, 0, out
        self.live = out.isatty() and hasattr(out, "fileno")
        self._what, self._begun, self._left_s = "", time.monotonic(), None
        self._previous = None

    def begin(self, what, left_s):
        """A run begins; `left_s` is what it and all after it are expected to take, or None."""
        self._what, self._begun, self._left_s = what, time.monotonic(), left_s
        if self.live:
            self._previous = signal.signal(signal.SIGALRM, lambda *_: self._draw())
            signal.setitimer(signal.ITIMER_REAL, REDRAW_S, REDRAW_S)
            self._draw()

    def end(self, outcome):
        """It has ended; `outcome` says how, in a few words."""
        self.clear()
        self.done += 1
        digits = len(str(self.total))
        print(f"[{self.done:{digits}}/{self.total}] {self._what}: {outcome}", file=self.out,
              flush=True)

    def clear(self):
        """Takes the bar away, so that something else can be printed."""
        if self._previous is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._previous)
            self._previous = None
            os.write(self.out.fileno(), b"\r\x1b[K")

    def line(self, columns):
        """The bar as it is now."""
        filled = WIDTH * self.done // max(1, self.total)
        taken_s = time.monotonic() - self._begun
        text = f"[{'#' * filled}{'-' * (WIDTH - filled)}] {self.done}/{self.total} {self._what}, " \
               f"{duration(taken_s)}"
        if self._left_s is not None:
            text += f"; {duration(max(0, self._left_s - taken_s))} left"
        return text[:max(20, columns - 1)]

    def _draw(self):
        try:
            columns = os.get_terminal_size(self.out.fileno()).columns or 100
        except OSError:
            columns = 100
        # Unbuffered: the signal may have come in the middle of a print.
        os.write(self.out.fileno(), b"\r" + self.line(columns).encode() + b"\x1b[K")

"""A line that tells how far a demo is."""

import sys
import time

WIDTH = 79
ON_TERMINAL, ELSEWHERE = 0.5, 3    # seconds between two progress lines


class Progress:
    """A line that updates in place on a terminal, plain lines elsewhere."""

    def __init__(self):
        self.in_place = sys.stdout.isatty()
        self.every = ON_TERMINAL if self.in_place else ELSEWHERE
        self.next = 0

    def show(self, text):
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + self.every
        if self.in_place:
            print('\r' + text[:WIDTH].ljust(WIDTH), end='', flush=True)
        else:
            print(text, flush=True)

    def end(self):
        if self.in_place:
            print(flush=True)

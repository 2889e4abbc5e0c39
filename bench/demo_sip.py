#!/usr/bin/env python3
"""The demonstration: two Kamailios, one with seven-sip in front of it and one
without, under the same call attack, while honest callers keep calling both. About
one minute. Leaves nothing running."""

import argparse
import os
import sys
import time

# Keep bench/ off the search path, and leave no compiled files about.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from bench.callers import (ATTACKER, CALLEE, HONEST, MEAN, RING_MS, Callee,     # noqa: E402
                           Callers, outcome, percentile, schedule)
from bench.progress import Progress                                      # noqa: E402
from t.sip import PLAIN, Kamailio, SevenSip, SipError, register          # noqa: E402
from t.sipwire import Endpoint                                           # noqa: E402

AFTER = 5                          # seconds that calls may still last, in t_M / 2
SEED = 7


class Side:
    """One of the two servers, and who calls it."""

    def __init__(self, name, options, defended):
        self.name = name
        # A call that is being ended is in the server's way until it is gone.
        room = options.places // 4 if defended else 0
        self.server = Kamailio(limit=options.places + room, children=1)
        self.proxy = None
        if defended:
            self.proxy = SevenSip(self.server.address, options.places,
                                  strategy=options.strategy, t_m=f'{round(1000 * options.t_m)}ms')
        self.address = (self.proxy or self.server).address
        self.callers = {}

    def register(self, callees):
        """The callees' phones, by way of seven-sip if it is there."""
        with Endpoint() as phone:
            for kind, callee in callees.items():
                register(phone, self.address, CALLEE[kind],
                         f'sip:{CALLEE[kind]}@{callee.at}')

    def begin(self, options):
        honest = options.rate * (100 - options.attackers) / 100
        for kind, rate in ((HONEST, honest), (ATTACKER, options.rate - honest)):
            rows = schedule(SEED, kind, rate, options.seconds, options.lengths,
                            options.t_m)
            self.callers[kind] = Callers(rows, self.address)

    def calls_up(self):
        """How many calls of each kind are in progress."""
        return {kind: sum(record.answered is not None and record.complete is None and
                          record.cut is None for record in callers.calls())
                for kind, callers in self.callers.items()}

    def figures(self):
        """What became of all calls: outcomes by kind, and the honest delays."""
        for callers in self.callers.values():
            callers.halt()
        return ({kind: outcome(callers.calls(), kind)
                 for kind, callers in self.callers.items()},
                self.callers[HONEST].delays())

    def stop(self):
        for program in (*self.callers.values(), self.proxy, self.server):
            if program:
                program.stop(timeout=1)


def progress_text(seconds, sides):
    parts = []
    for side in sides:
        up = side.calls_up()
        parts.append(f'{side.name} {up[HONEST]:>2} and {up[ATTACKER]:>2}')
    return f'{seconds:>3.0f} s  calls up, honest and attacking:  ' + ',  '.join(parts)


def attacked(sides, options):
    """Everybody calls both, and goes on calling; then calls may still end."""
    progress = Progress()
    for side in sides:
        side.begin(options)
    began = time.monotonic()
    end = began + options.seconds + AFTER * options.t_m / 2
    while time.monotonic() < end:
        for side in sides:
            for callers in side.callers.values():
                callers.check()
            if side.proxy and side.proxy.process.poll() is not None:
                raise SipError(f'seven-sip ended:\n{side.proxy.output()[-2000:]}')
        progress.show(progress_text(time.monotonic() - began, sides))
        time.sleep(0.1)
    progress.end()


def print_plan(options):
    print(f'Two Kamailios on 127.0.0.1, registrar and proxy, for {options.places} calls '
          f'each;\n  one has seven-sip in front of it (P2: {options.strategy}, t_M '
          f'{options.t_m:g} s).\n'
          f'To each come {options.rate:g} new calls a second, by SIPp; '
          f'{options.attackers:g} % of them are attackers:\n'
          '  pairs of registered users who call each other and never hang up.\n'
          f'The honest talk for {options.t_m:g} s on average ({options.lengths}); '
          f'their callees ring for {RING_MS * options.t_m / MEAN / 1000:g} s.\n')


def milliseconds(delays, share):
    return f'{percentile(delays, share):.1f} ms' if delays else '-'


def print_table(sides, results):
    honest = [outcomes[HONEST] for outcomes, _ in results]
    attackers = [outcomes[ATTACKER] for outcomes, _ in results]
    delays = [some for _, some in results]
    rows = [('', [side.name for side in sides]),
            ('honest calls', [f'{one.calls}' for one in honest]),
            ('  complete', [f'{one.complete}' for one in honest]),
            ('  cut short', [f'{one.cut}' for one in honest]),
            ('  never connected', [f'{one.unconnected}' for one in honest]),
            ('  complete, percent', [f'{100 * one.share:.1f}' for one in honest]),
            ("attackers' calls", [f'{one.calls}' for one in attackers]),
            ('  cut', [f'{one.cut}' for one in attackers]),
            ('  never connected', [f'{one.unconnected}' for one in attackers]),
            ('post-dial delay, p50', [milliseconds(some, 0.5) for some in delays]),
            ('post-dial delay, p99', [milliseconds(some, 0.99) for some in delays])]
    print()
    for name, cells in rows:
        print(f'  {name:<22}' + ''.join(f'{cell:>18}' for cell in cells))
    print()


def print_what_it_did(side):
    status = side.proxy.status()
    ended = status['ended']
    print(f'seven-sip ended {ended["cut_incall"]} calls in progress and '
          f'{ended["cut_waiting"]} that still rang to make room,\n'
          f'and refused {status["refused"]} newcomers.')


def run(options):
    sides, callees = [], {}
    try:
        ring = round(RING_MS * options.t_m / MEAN)
        callees = {kind: Callee(ring_ms=ring, trace=False) for kind in (HONEST, ATTACKER)}
        sides.append(Side('with seven-sip', options, True))
        sides.append(Side('without', options, False))
        for side in sides:
            side.register(callees)
        attacked(sides, options)
        results = [side.figures() for side in sides]
        print_table(sides, results)
        print_what_it_did(sides[0])
    finally:
        for program in (*sides, *callees.values()):
            program.stop()


def read_options():
    parser = argparse.ArgumentParser(
        description='Show a Kamailio with seven-sip beside one without, attacked.')
    parser.add_argument('--places', type=int, default=24, help='calls at once, k (24)')
    parser.add_argument('--t-m', type=float, default=2,
                        help='mean length of honest calls, and t_M, seconds (2)')
    parser.add_argument('--rate', type=float, default=11.875,
                        help='new calls a second, in all, to each (11.875)')
    parser.add_argument('--attackers', type=float, default=50,
                        help='percent of the new calls (50)')
    parser.add_argument('--strategy', default='tournament',
                        choices=('uniform', 'roulette', 'tournament'))
    parser.add_argument('--lengths', default='lognormal',
                        choices=('exponential', 'lognormal'))
    parser.add_argument('--seconds', type=int, default=45,
                        help='how long new calls come (45)')
    options = parser.parse_args()
    if not 1 <= options.places <= 200:
        parser.error('--places must be from 1 to 200.')
    if not 0.1 <= options.t_m <= 60:
        parser.error('--t-m must be from 0.1 to 60.')
    if not 0.1 <= options.rate <= 100:
        parser.error('--rate must be from 0.1 to 100.')
    if not 0 <= options.attackers <= 100:
        parser.error('--attackers must be from 0 to 100.')
    if not 5 <= options.seconds <= 600:
        parser.error('--seconds must be from 5 to 600.')
    return options


def main():
    options = read_options()
    if not os.path.exists(PLAIN):
        sys.exit(f'There is no {PLAIN}; run make first.')
    print_plan(options)
    try:
        run(options)
    except KeyboardInterrupt:
        sys.exit('\nStopped.')
    except (SipError, OSError, AssertionError) as error:
        sys.exit(f'\nThe demonstration could not go on: {error}')


if __name__ == '__main__':
    main()

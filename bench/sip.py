#!/usr/bin/env python3
"""The SIP benchmark: seven-sip in front of a real Kamailio, with SIPp's callers.

    bench/sip.py --list              name the cases
    bench/sip.py avail               run those whose names begin with "avail-"
    bench/sip.py quiet cost          several kinds
    bench/sip.py all --runs 3        all of them, three runs of each

Availability (avail-STRATEGY-LENGTHS-ATTACKERS). Honest callers and attackers, who
never hang up, come as two Poisson streams, 4.75 a second in all, to a server of
24 places; t_M is 5 s. What is measured is what the published model measures: the
honest calls of the first 40 s as they stand at 40 s, beginning with an empty
server. Half widths are of 99 %, over runs, each of which has calls of its own. The
share is compared with the most that any policy can do that knows only how long each
call has lasted (bound), which is of a server full for long: so "steady" is shown,
too, the calls of the 30 s after that, each followed for 20 s more while the attack
goes on. The strategy "none" is the same Kamailio alone. Behind seven-sip the
server's own limit is somewhat higher than k: a call that is being ended is in its
way until it has answered the BYE. The server itself should refuse nobody then
(503s): where it did, the machine was too busy.

A run has a Kamailio port, a seven-sip and a SIPp of its own, and many go at the
same time: the load of each is small.
"""

import argparse
import csv
import dataclasses
import math
import os
import statistics
import sys
import time

# This file is named as a part of the standard library may be: keep bench/ off the
# search path, and leave no compiled files about.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from bench import sip_cost                                      # noqa: E402
from bench.cases import choose                                   # noqa: E402
from bench.callers import (ATTACKER, HONEST, LENGTHS, MU, RATE, SIGMA, Callee,  # noqa: E402
                           Callers, Outcome, load, outcome, percentile)
from t.sip import PLAIN, Kamailio, SevenSip, SipError           # noqa: E402

PLACES = 24              # k; of the server alone, too
ROOM = 6                 # more for calls that are just being ended for others
T_M = 5
SHARES = {'17': 1 / 6, '33': 1 / 3, '50': 1 / 2, '67': 2 / 3, '83': 5 / 6}
STRATEGIES = ('uniform', 'roulette', 'tournament')
HORIZON = 40             # the model's
STEADY = (40, 70)        # from and to, seconds
LOAD_SECONDS = 90        # so each steady call is followed for 20 s at least
AT_ONCE = 40              # at twice as many two cores are too busy
NEEDED = 0.9             # of the bound, by the best strategy of a cell
Z99 = 2.576
FEWEST = 6               # runs that say something of how much they differ


# ---- the bound -----------------------------------------------------------------

def normal(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def ended_by(law, age):
    """P(D <= age) of an honest call's length D."""
    if law == 'exponential':
        return 1 - math.exp(-age / T_M)
    return normal((math.log(age) - MU) / SIGMA)


def mean_up_to(law, age):
    """E[min(D, age)]."""
    if law == 'exponential':
        return T_M * ended_by(law, age)
    return math.exp(MU + SIGMA**2 / 2) * normal((math.log(age) - MU - SIGMA**2) / SIGMA) + \
        age * (1 - ended_by(law, age))


def age_only_bound(law, share):
    """The share of honest calls that complete if always the oldest call is cut: with
    it cut at age L, the places are full: h E[min(D, L)] + a L = k."""
    low, high = 0.01, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        held = RATE * ((1 - share) * mean_up_to(law, middle) + share * middle)
        low, high = (middle, high) if held < PLACES else (low, middle)
    return ended_by(law, low)


# ---- cases ---------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Case:
    """One row of a table. Kind is the beginning of its name."""
    name: str
    about: str
    kind: str
    strategy: str = None
    law: str = None
    share: float = 0
    forward: str = 'now'
    runs: int = 1            # as many as --runs 1 means
    how: object = None


def runs_for(share):
    """So many that each cell has some 800 honest calls."""
    return math.ceil(800 / (RATE * (1 - share) * HORIZON))


def avail_cases():
    for strategy in ('none', *STRATEGIES):
        for law in LENGTHS:
            for name, share in SHARES.items():
                yield Case(f'avail-{strategy}-{law}-{name}',
                           f'{name} % attackers, {law} lengths', 'avail', strategy, law,
                           share, runs=runs_for(share))


def round_cases():
    for law in LENGTHS:
        for name, share in SHARES.items():
            yield Case(f'round-tournament-{law}-{name}',
                       f'{name} % attackers, {law} lengths, forward = round', 'round',
                       'tournament', law, share, forward='round', runs=runs_for(share))


def quiet_cases():
    for law in LENGTHS:
        for name, share in SHARES.items():
            yield Case(f'quiet-{law}-{name}', f'the honest callers of {name} % attackers '
                       'alone', 'quiet', 'tournament', law, share, runs=2)


def cost_cases():
    for name, (about, how) in sip_cost.CASES.items():
        yield Case(name, about, name.split('-')[0], how=how)


CASES = [*avail_cases(), *round_cases(), *quiet_cases(), *cost_cases()]


def cell_load(law, share, seed):
    """A run's callers; those of all strategies are alike."""
    return load(f'{law} {share} {seed}', share, LOAD_SECONDS, law)


# ---- many runs at once -----------------------------------------------------------

@dataclasses.dataclass
class Run:
    """One load on one server, with or without seven-sip in front of it."""
    case: Case
    seed: int
    alone: bool                  # without seven-sip
    proxy: SevenSip = None
    callers: Callers = None
    records: list = None
    delays: list = None
    status: dict = dataclasses.field(default_factory=dict)

    def rows(self):
        rows = cell_load(self.case.law, self.case.share, self.seed)
        return [row for row in rows if row[3].startswith(HONEST)] \
            if self.case.kind == 'quiet' else rows

    def start(self, port):
        server = ('127.0.0.1', port)
        if not self.alone:
            self.proxy = SevenSip(server, PLACES, strategy=self.case.strategy,
                                  t_m=f'{T_M}s', round='100ms', forward=self.case.forward)
        self.callers = Callers(self.rows(), self.proxy.address if self.proxy else server)

    def finish(self):
        self.callers.halt()
        self.records, self.delays = self.callers.calls(), self.callers.delays()
        if self.proxy:
            self.status = self.proxy.status()
        self.stop()

    def stop(self):
        for program in (self.callers, self.proxy):
            if program:
                program.stop(timeout=1)


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_together(runs):
    """These runs at the same time, on one Kamailio with a port for each."""
    limits = [PLACES if run.alone else PLACES + ROOM for run in runs]
    with Kamailio(ports=len(runs), limit=limits, children=1, memory=256) as server, \
            Callee(trace=False) as bob, Callee(trace=False) as mallory:
        server.register('bob', f'sip:bob@{bob.at}')
        server.register('mallory', f'sip:mallory@{mallory.at}')
        try:
            for run, port in zip(runs, server.ports):
                run.start(port)
            end = time.monotonic() + LOAD_SECONDS
            while time.monotonic() < end:
                check_alive(runs)
                time.sleep(0.5)
            for run in runs:
                run.finish()
            tell_errors(server)
        finally:
            for run in runs:
                run.stop()


def tell_errors(server):
    """Say what Kamailio found wrong: it would spoil the figures."""
    wrong = [line for line in server.output().splitlines()
             if 'ERROR' in line or 'CRITICAL' in line]
    if wrong:
        say(f'  Kamailio has {len(wrong)} errors, as: {wrong[0][:300]}')


def check_alive(runs):
    for run in runs:
        run.callers.check()
        if run.proxy and run.proxy.process.poll() is not None:
            raise SipError(f'{run.case.name}: seven-sip ended:\n'
                           f'{run.proxy.output()[-2000:]}')


def run_all(runs, options):
    for at in range(0, len(runs), options.at_once):
        some = runs[at:at + options.at_once]
        say(f'  runs {at + 1} to {at + len(some)} of {len(runs)}, {LOAD_SECONDS} s')
        run_together(some)


# ---- figures of the runs of a case -----------------------------------------------

def total(runs, kind, *window):
    found = Outcome()
    for run in runs:
        found.add(outcome(run.records, kind, *window))
    return found


def student99(freedom):
    """The 99.5 % point of Student's t, from 5 degrees of freedom on (its expansion about
    the normal distribution's)."""
    z, v = Z99, freedom
    return (z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2) +
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3))


def half_width(runs, *window):
    """Half of the 99 % interval of the honest calls' share that is complete; NaN if there
    are too few runs. Calls of the same run share its attackers and are not independent."""
    found = [outcome(run.records, HONEST, *window) for run in runs]
    calls = sum(one.calls for one in found)
    if len(found) < FEWEST or calls == 0:
        return math.nan
    share = sum(one.complete for one in found) / calls
    spread = sum((one.complete - share * one.calls)**2 for one in found) / (len(found) - 1)
    return student99(len(found) - 1) * math.sqrt(len(found) * spread) / calls


def avail_row(case, runs):
    steady = total(runs, HONEST, *STEADY)
    model = total(runs, HONEST, 0, HORIZON, HORIZON)
    attackers = total(runs, ATTACKER, *STEADY)
    delays = sorted(delay for run in runs for delay in run.delays)
    bound = age_only_bound(case.law, case.share)
    row = {'runs': len(runs), 'calls': model.calls,
           'at40_pct': 100 * model.share,
           'at40_half_pct': 100 * half_width(runs, 0, HORIZON, HORIZON),
           'at40_cut_pct': 100 * model.cut / max(1, model.calls),
           'at40_unconnected_pct': 100 * model.unconnected / max(1, model.calls),
           'bound_pct': 100 * bound, 'of_bound': model.share / bound,
           'steady_calls': steady.calls, 'steady_pct': 100 * steady.share,
           'half_pct': 100 * half_width(runs, *STEADY),
           'steady_cut_pct': 100 * steady.cut / max(1, steady.calls),
           'steady_of_bound': steady.share / bound,
           'attackers_cut_pct': 100 * attackers.cut / max(1, attackers.calls),
           'p50_ms': percentile(delays, 0.5), 'p99_ms': percentile(delays, 0.99)}
    row.update(victims(runs))
    return row


def victims(runs):
    """Of seven-sip's victims in progress, how many were gone within a second."""
    cuts = sum(run.status['ended']['cut_incall'] for run in runs if run.status)
    quick = sum(run.status['cut_within_1s'] for run in runs if run.status)
    failed = sum(run.status['ended']['failed'] for run in runs if run.status)
    return {'victims': cuts, 'within_1s_pct': min(100, 100 * quick / cuts),
            'server_refused': failed} if cuts else {}


def quiet_row(case, runs):
    """Calls that the server alone took and that seven-sip cut or refused: the same
    calls were made to both. (Where the honest fill the server alone, somebody loses
    a call in either case.)"""
    lost = offered = taken = blocked = kept = 0
    alone = {run.seed: run for run in runs if run.alone}
    for run in runs:
        if run.alone:
            continue
        before = {record.number: record for record in alone[run.seed].records}
        for record in run.records:
            other = before.get(record.number)
            if other is None or record.invite is None or record.invite >= STEADY[1]:
                continue
            offered += 1
            took = other.answered is not None
            taken += took
            blocked += not took
            whole = record.answered is not None and record.cut is None
            lost += took and not whole
            kept += whole
    return {'runs': len(alone), 'calls': offered, 'taken': taken, 'kept': kept,
            'lost': lost, 'blocked_alone': blocked}


# ---- printing ----------------------------------------------------------------------

AVAIL = [('calls', 'calls', 6), ('done %', 'at40_pct', 7), ('+-', 'at40_half_pct', 5),
         ('cut', 'at40_cut_pct', 6), ('never', 'at40_unconnected_pct', 6),
         ('bound', 'bound_pct', 6), ('ratio', 'of_bound', 6), ('steady', 'steady_pct', 7),
         ('att cut', 'attackers_cut_pct', 8), ('p50 ms', 'p50_ms', 7),
         ('p99 ms', 'p99_ms', 7), ('<1 s %', 'within_1s_pct', 7),
         ('503s', 'server_refused', 5)]
QUIET = [('calls', 'calls', 6), ('the server alone: whole', 'taken', 25),
         ('refused', 'blocked_alone', 9), ('seven-sip: whole', 'kept', 18),
         ('lost that were whole', 'lost', 22)]
TABLES = {'avail': AVAIL, 'round': AVAIL, 'quiet': QUIET}
CSV_FIELDS = ['case', 'about', 'runs', *dict.fromkeys(
    [field for table in (AVAIL, QUIET) for _, field, _ in table] +
    ['steady_calls', 'half_pct', 'steady_cut_pct', 'steady_of_bound', 'victims',
     'server_refused'] +
    sip_cost.FIELDS), 'target', 'verdict']


def number(value):
    if value is None:
        return '-'
    if isinstance(value, float) and math.isnan(value):
        return '-'
    return f'{value:.0f}' if float(value).is_integer() else f'{value:.2f}'


def print_header(kind):
    print(f'\n{"case":<34}' + ''.join(f'{name:>{width}}'
                                      for name, _, width in TABLES[kind]))


def print_row(case, row):
    if case.kind in TABLES:
        print(f'{case.name:<34}' + ''.join(
            f'{number(row.get(field)):>{width}}' for _, field, width in
            TABLES[case.kind]) + f'  {verdict(case, row)}', flush=True)
    else:
        figures = ', '.join(f'{key} {number(value)}' for key, value in row.items()
                            if key in sip_cost.FIELDS)
        print(f'{case.name:<16}{figures}; {target(case)}: {verdict(case, row)}',
              flush=True)


def target(case):
    if case.kind in ('avail', 'round'):
        return f'best strategy >= {NEEDED} of the bound'
    if case.kind == 'quiet':
        return 'none lost'
    return sip_cost.TARGETS[case.name][0]


def verdict(case, row):
    if case.kind in ('avail', 'round'):
        if case.strategy == 'none':
            return ''
        return 'PASS' if row['of_bound'] >= NEEDED else 'below'
    if case.kind == 'quiet':
        return 'PASS' if row['lost'] == 0 else \
            'the honest fill the server' if row['blocked_alone'] else 'FAIL'
    return 'PASS' if sip_cost.TARGETS[case.name][1](row) else 'FAIL'


def print_best(rows):
    """The target: in each cell the best strategy reaches a share of the bound."""
    cells = {}
    for case, row in rows.items():
        if case.kind == 'avail' and case.strategy != 'none':
            cells.setdefault((case.law, case.share), []).append((row['of_bound'], case))
    for (law, share), found in cells.items():
        if len(found) == len(STRATEGIES):
            ratio, best = max(found, key=lambda pair: pair[0])
            print(f'{law}, {100 * share:.0f} % attackers: best is {best.strategy}, '
                  f'{ratio:.3f} of the bound: {"PASS" if ratio >= NEEDED else "FAIL"}')


def append_csv(path, case, row):
    new = not os.path.exists(path) or os.path.getsize(path) == 0
    with open(path, 'a', newline='') as file:
        writer = csv.DictWriter(file, CSV_FIELDS, extrasaction='ignore')
        if new:
            writer.writeheader()
        values = {key: f'{value:.4f}'.rstrip('0').rstrip('.') for key, value in row.items()}
        writer.writerow({**values, 'case': case.name, 'about': case.about,
                         'target': target(case), 'verdict': verdict(case, row)})


# ---- the program ---------------------------------------------------------------------

def together(cases, options):
    """The cases that many runs at a time are for: {case: its runs}."""
    runs = {case: [] for case in cases}
    for case in cases:
        for seed in range(case.runs * options.runs):
            if case.kind == 'quiet' or case.strategy == 'none':
                runs[case].append(Run(case, seed, alone=True))
            if case.strategy != 'none':
                runs[case].append(Run(case, seed, alone=False))
    run_all([run for some in runs.values() for run in some], options)
    return runs


def run_cases(cases, options):
    rows = {}
    for kind, make in (('avail', avail_row), ('round', avail_row), ('quiet', quiet_row)):
        some = [case for case in cases if case.kind == kind]
        if not some:
            continue
        runs = together(some, options)
        print_header(kind)
        for case in some:
            rows[case] = make(case, runs[case])
            finish(case, rows[case], options)
    print_best(rows)
    for case in cases:
        if case.how:
            say(f'  {case.name}: {case.about}')
            found = [case.how() for _ in range(options.runs)]
            rows[case] = {key: statistics.median(row[key] for row in found)
                          for key in found[0]}
            finish(case, rows[case], options)


def finish(case, row, options):
    print_row(case, row)
    if options.csv:
        append_csv(options.csv, case, row)


def read_options():
    parser = argparse.ArgumentParser(
        description='Measure how a SIP server under a call attack serves honest callers.')
    parser.add_argument('cases', nargs='*', metavar='CASE',
                        help='names, beginnings of names, or all')
    parser.add_argument('--list', action='store_true', help='name the cases')
    parser.add_argument('--runs', type=int, default=1,
                        help='so many times the runs that each case has (1)')
    parser.add_argument('--at-once', type=int, default=AT_ONCE,
                        help=f'runs at the same time ({AT_ONCE})')
    parser.add_argument('--csv', metavar='FILE', help='append the rows to FILE')
    options = parser.parse_args()
    if options.runs < 1 or not 1 <= options.at_once <= 100:
        parser.error('--runs must be at least 1, --at-once from 1 to 100.')
    if not options.list and not options.cases:
        parser.error('Name a case; --list names them all.')
    return options


def main():
    options = read_options()
    if options.list:
        for case in CASES:
            print(f'{case.name:<36} {case.about:<56} {target(case)}')
        return
    cases = choose(CASES, options.cases)
    if not os.path.exists(PLAIN) and any(case.strategy != 'none' for case in cases):
        sys.exit(f'There is no {PLAIN}; run make.')
    try:
        run_cases(cases, options)
    except KeyboardInterrupt:
        sys.exit('Stopped.')
    except (SipError, OSError) as error:
        sys.exit(f'The benchmark could not go on: {error}')


if __name__ == '__main__':
    main()

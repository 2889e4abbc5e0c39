#!/usr/bin/env python3
"""Sets three things side by side for each cell of the coordinated call attack: the
published model's figures, our simulation, and the measured experiment. Writes
bench/COMPARISON.md.

    bench/compare.py [--measured FILE] [--threads N] [--quick] [--print]

Published: t/reference/tdos-model.csv. Simulated: build/seven-sim, with the network
delay of the experiment (none), for calls that it draws and for the very calls that the
experiment made. Measured: bench/sip-grid.csv, which
`bench/sip.py avail round --csv bench/sip-grid.csv` writes (seven-sip in front of a
real Kamailio, with SIPp's callers); without it the page says so. --print shows the
page instead of writing it.
"""

import argparse
import collections
import csv
import io
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[0] = TOP                    # not bench/, which has names of the library's
sys.dont_write_bytecode = True

from bench import sip                                           # noqa: E402
from bench.callers import FOREVER                               # noqa: E402

SIM = os.path.join(TOP, 'build', 'seven-sim')
PAGE = os.path.join(TOP, 'bench', 'COMPARISON.md')
REFERENCE = os.path.join(TOP, 't', 'reference')
LENGTHS = {'exponential': 'exponential', 'lognormal': 'lognormal_corrected'}
STRATEGIES = ('none', 'uniform', 'roulette', 'tournament')
SHARES = tuple(sip.SHARES)
FIGURES = ('complete', 'incomplete', 'unsuccessful')
SETTINGS = {'at 40': '', 'steady': '--warm-up 40 --horizon 70 --drain'}
NEAR = 5      # percentage points that simulation and experiment may be apart
NOTHING = '–'

HEAD = '''# Simulated, published, measured

Written by `bench/compare.py`. Honest calls that complete, % of those made, in the coordinated call attack:
k = 24, 4.75 new calls a second in all, honest ones of 5 s on average, t_M 5 s, callee rings 0.3 s.

- **published**: the 2018 paper's public model, and the same with one draw a decision (bench/SIMULATION.md says what
  it assumes). Rounds of 0.2 s, a network delay of 0.1 s, arrivals at equal intervals.
- **simulated**: seven_core under `build/seven-sim`, no network delay, Poisson arrivals, rounds of 0.1 s.
- **same calls**: the same simulation, of the very calls that the experiment made.
- **measured**: seven-sip in front of a real Kamailio on loopback, SIPp's callers (`bench/sip.py`). The half
  width, of 99 %, is over runs: it says what other calls would have given.
- **apart**: measured less the simulation of the same calls. What is left in it is what the strategy drew, and
  what simulation and experiment really differ in.
- **at 40** counts as the published model does: calls of the first 40 s, from an empty server, as they stand at
  40 s. A call that is being set up then is no call yet in the simulations, and not complete in the measurement,
  which is up to 0.8 points lower for it. **steady** counts the calls of the 30 s after that: it is harder, since
  at 40 s many a call goes on that will be cut. They are followed to their end, or for 20 s where the calls are
  the experiment's.
- **bound**: no policy that knows ages only does better in the steady state (it takes places as a fluid, and P1's
  refusals as none).

'''


def simulate(arguments, options, words=()):
    command = [SIM, *arguments.split(), *words, '--csv', '--quiet', '--width', '1%']
    if options.threads:
        command += ['--threads', str(options.threads)]
    if options.quick:
        command += ['--min-runs', '2', '--max-runs', '20']
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return list(csv.DictReader(io.StringIO(done.stdout)))


def read(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def published():
    """{(model, strategy, lengths, share): row}."""
    return {(row['model'], row['strategy'], row['duration'], row['attacker_share']): row
            for row in read(os.path.join(REFERENCE, 'tdos-model.csv'))
            if row['rate_per_unit'] == '4.75'}


def bounds():
    """{(lengths, share): %}."""
    rows = read(os.path.join(REFERENCE, 'age-only-bound.csv'))
    return {(row['call_lengths'].split()[0], share): 100 * float(row['honest_complete_bound'])
            for i, row in enumerate(rows) for share in [SHARES[i % len(SHARES)]]}


def simulated(options):
    """{(setting, forward, strategy, lengths, share): row}."""
    found = {}
    for setting, words in SETTINGS.items():
        for row in simulate(f'--delay 0 --forward both --strategy {",".join(STRATEGIES)} '
                            f'--length {",".join(LENGTHS.values())} {words}', options):
            found[setting, row['model'].removeprefix('seven_'), row['strategy'],
                  row['duration'], row['attacker_share']] = row
    return found


def simulated_same(measured_rows, options):
    """As simulated(), of the calls that the experiment made, in as many runs of each cell."""
    found, cells = {}, collections.defaultdict(set)
    for (forward, strategy, lengths, share), row in measured_rows.items():
        cells[lengths, share, int(row['runs'])].add((forward, strategy))
    for (lengths, share, runs), wanted in cells.items():
        with tempfile.NamedTemporaryFile('w', suffix='.csv') as file:
            write_calls(file, lengths, share, runs)
            for setting, words in SETTINGS.items():
                for row in simulate(f'--delay 0 --forward both --strategy {",".join(STRATEGIES)} '
                                    f'--max-runs 1000 {words} --calls', options, [file.name]):
                    forward = row['model'].removeprefix('seven_')
                    if (forward, row['strategy']) in wanted:
                        found[setting, forward, row['strategy'], lengths, share] = row
    return found


def write_calls(file, lengths, share, runs):
    """The calls of the experiment's first runs, as seven-sim reads them."""
    for seed in range(runs):
        for begins, lasts, *_ in sorted(sip.cell_load(lengths, sip.SHARES[share], seed)):
            print(seed + 1, begins, 'forever' if lasts == FOREVER else lasts, sep=',', file=file)
    file.flush()


def measured(path):
    """{(forward, strategy, lengths, share): row}; of several for a cell the last."""
    found = {}
    for row in read(path) if os.path.exists(path) else []:
        match = re.fullmatch(r'(avail|round)-(\w+)-(\w+)-(\d+)', row.get('case', ''))
        if match and row['runs']:
            forward = 'round' if match[1] == 'round' else 'now'
            found[(forward, *match.groups()[1:])] = row
    return found


def of_model(row):
    return f'{100 * float(row["complete"]):.1f}' if row else NOTHING


def of_measured(row, setting):
    """Complete and its half width, in %; None if it was not measured."""
    names = ('steady_pct', 'half_pct') if setting == 'steady' else ('at40_pct', 'at40_half_pct')
    try:
        return tuple(float(row[name]) for name in names)
    except (KeyError, TypeError, ValueError):
        return None


def mean(values):
    return sum(values) / len(values)


def within(values):
    return sum(abs(value) <= NEAR for value in values)


class Page:
    """The tables, and how far simulation and experiment are apart."""

    def __init__(self, options):
        self.models, self.bounds = published(), bounds()
        self.simulated, self.measured = simulated(options), measured(options.measured)
        self.same = simulated_same(self.measured, options)
        self.path = os.path.relpath(options.measured, TOP)
        self.apart = []

    def figures(self, setting, forward, strategy, lengths, share):
        """Simulated, of the same calls, measured and how far these are apart, as text."""
        ours = self.simulated[setting, forward, strategy, LENGTHS[lengths], share]
        seen = of_measured(self.measured.get((forward, strategy, lengths, share)), setting)
        if seen is None:
            return [of_model(ours), NOTHING, NOTHING, NOTHING]
        same = self.same[setting, forward, strategy, lengths, share]
        off, drawn = (seen[0] - 100 * float(row['complete']) for row in (same, ours))
        self.apart.append((off, drawn, f'{setting}, {forward}, {strategy}, {lengths}, {share} %'))
        strong = '**' if abs(off) > NEAR else ''
        return [of_model(ours), of_model(same), f'{seen[0]:.1f} ± {seen[1]:.1f}',
                f'{strong}{off:+.1f}{strong}']

    def row(self, forward, strategy, lengths, share):
        key = (strategy, LENGTHS[lengths], share)
        return [lengths, strategy, share, of_model(self.models.get(('as_coded', *key))),
                of_model(self.models.get(('single_select', *key))),
                *self.figures('at 40', forward, strategy, lengths, share),
                *self.figures('steady', forward, strategy, lengths, share),
                f'{self.bounds[lengths, share]:.1f}']

    def table(self, forward, strategies):
        head = ['lengths', 'strategy', 'attackers, %', 'published', 'one draw',
                'at 40: simulated', 'same calls', 'measured', 'apart, pp',
                'steady: simulated', 'same calls', 'measured', 'apart, pp', 'bound']
        lines = ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head)]
        for lengths in LENGTHS:
            for strategy in strategies:
                for share in SHARES:
                    lines.append('| ' + ' | '.join(
                        self.row(forward, strategy, lengths, share)) + ' |')
        return '\n'.join(lines) + '\n'

    def summary(self):
        if not self.apart:
            return (f'**Nothing was measured:** {self.path} is not there, or has no such cell. '
                    f'`bench/sip.py avail round --csv {self.path}` writes it.\n')
        off, drawn, _ = zip(*self.apart)
        text = (f'{len(off)} figures were measured. {within(off)} are within {NEAR} percentage '
                f'points of the simulation of the same calls, {mean(off):+.1f} pp off it on '
                f'average; {within(drawn)} are of the simulation of drawn calls, '
                f'{mean(drawn):+.1f} pp on average.\n')
        far = sorted((item for item in self.apart if abs(item[0]) > NEAR),
                     key=lambda item: -abs(item[0]))
        if far:
            text += 'Farthest from the same calls:\n'
            text += ''.join(f'- {name}: {off:+.1f} pp\n' for off, _, name in far[:10])
        return text

    def differences(self):
        """What can be said without the experiment: simulation against the model."""
        off = {'as_coded': [], 'single_select': []}
        for strategy in STRATEGIES:
            for lengths in LENGTHS:
                for share in SHARES:
                    ours = self.simulated['at 40', 'now', strategy, LENGTHS[lengths], share]
                    for model, found in off.items():
                        theirs = self.models.get((model, strategy, LENGTHS[lengths], share))
                        if theirs and strategy != 'none':
                            found.append(100 * (float(ours['complete']) -
                                                float(theirs['complete'])))
        words = [f'{min(found):+.1f} to {max(found):+.1f} pp from {model} (on average '
                 f'{mean(found):+.1f})' for model, found in off.items()]
        return ('The simulation of seven_core (at 40) is ' + ' and '.join(words) + '. '
                'as_coded tells another call than the one it removes, so that most calls that '
                'were cut are counted complete; with one draw a decision that is gone. '
                'bench/sim_published.c has the list of what else differs.\n')

    def text(self):
        tables = (self.table('now', STRATEGIES), self.table('round', ('tournament',)))
        return (HEAD + self.summary() + '\n' + self.differences() +
                '\n## forward = now, the default\n\n' + tables[0] +
                '\n## forward = round, as published\n\n' + tables[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--measured', metavar='FILE',
                        default=os.path.join(TOP, 'bench', 'sip-grid.csv'))
    parser.add_argument('--threads', type=int, help='all cores unless given')
    parser.add_argument('--quick', action='store_true', help='a hundredth of the runs')
    parser.add_argument('--print', action='store_true', help='show it, write nothing')
    options = parser.parse_args()
    if not os.path.exists(SIM):
        sys.exit('build/seven-sim is not there: make build/seven-sim')
    text = Page(options).text()
    if options.print:
        print(text, end='')
    else:
        with open(PAGE, 'w') as file:
            file.write(text)


if __name__ == '__main__':
    main()

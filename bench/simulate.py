#!/usr/bin/env python3
"""Simulates what bench/SIMULATION.md tells of, draws its plots, writes its tables.

    bench/simulate.py [--quick] [--threads N] [SECTION...]

Each section is one or a few commands of build/seven-sim. Their CSV goes to
build/sim/SECTION.csv, plots to build/sim/*.svg (if gnuplot is there), and tables
into the page, between the marks <!-- SECTION --> and <!-- /SECTION -->. --quick
does a hundredth of the runs, to see that all works, and leaves the page alone.
With --public-model DIR (a copy of experiments/voip of the public model), section
speed times it under maude, too.
"""

import argparse
import csv
import io
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIM = os.path.join(TOP, 'build', 'seven-sim')
OUT = os.path.join(TOP, 'build', 'sim')
PAGE = os.path.join(TOP, 'bench', 'SIMULATION.md')
REFERENCE = os.path.join(TOP, 't', 'reference', 'tdos-model.csv')
SHARES = ('17', '33', '50', '67', '83')
STRATEGIES = ('none', 'uniform', 'roulette', 'tournament', 'oldest')
LOADS = '0.01,0.03,0.1,0.2,0.3,0.5,1,2,3,5,10,30,100'
FIGURES = ('complete', 'incomplete', 'unsuccessful')
options = None


def simulate(arguments, effort=True):
    """Run build/seven-sim; returns its rows."""
    command = [SIM, *arguments.split(), '--csv', '--quiet']
    if options.threads:
        command += ['--threads', str(options.threads)]
    if options.quick and effort:
        command += ['--min-runs', '2', '--max-runs', '20']
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return list(csv.DictReader(io.StringIO(done.stdout)))


def save(name, rows):
    with open(os.path.join(OUT, f'{name}.csv'), 'w', newline='') as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def percent(row, figure, half=False):
    text = f'{100 * float(row[figure]):.1f}'
    return text + (f' ± {100 * float(row[figure + "_ci"]):.1f}' if half else '')


def table(head, rows):
    """A table in markdown."""
    lines = ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head)]
    return '\n'.join(lines + ['| ' + ' | '.join(row) + ' |' for row in rows])


def command_line(arguments):
    return f'    build/seven-sim {arguments}\n'


# ---- plots -----------------------------------------------------------------------

COLOURS = ('#999999', '#0072b2', '#e69f00', '#009e73', '#cc79a7', '#d55e00', '#56b4e9')


def plot(name, title, x, y, lines, extra=''):
    """Draw lines, {label: [(x, y)]}, with gnuplot."""
    if not shutil.which('gnuplot') or not any(lines.values()):
        return
    text = [f'set terminal svg size 760,440 background rgb "white" font "sans,12"\n'
            f'set output "{OUT}/{name}.svg"\nset title "{title}"\nset xlabel "{x}"\n'
            f'set ylabel "{y}"\nset key outside right\nset grid\nset yrange [0:100]\n{extra}']
    parts = [f'"-" title "{label}" with linespoints lw 2 pt 7 ps 0.5 '
             f'lc rgb "{COLOURS[i % len(COLOURS)]}"' for i, label in enumerate(lines)]
    text.append('plot ' + ', '.join(parts))
    for points in lines.values():
        text += [f'{a} {b}' for a, b in points] + ['e']
    subprocess.run(['gnuplot'], input='\n'.join(text), text=True, check=True)


# ---- sections ----------------------------------------------------------------------

def published():
    """How many of the public model's figures are met."""
    arguments = '--as-published --width 0.5% --floor 0.001 --max-runs 20000'
    rows = simulate(arguments)
    save('published', rows)

    def key(row):
        return tuple(row[field] for field in ('model', 'rate_per_unit', 'strategy',
                                              'duration', 'attacker_share'))
    with open(REFERENCE) as file:
        reference = {key(row): row for row in csv.DictReader(file)}
    seen = {}
    for row in rows:
        theirs = reference[key(row)]
        for figure in FIGURES:
            off = abs(float(row[figure]) - float(theirs[figure]))
            room = float(row[figure + '_ci']) + float(theirs[figure + '_ci'])
            kind = (row['model'], 'no defence' if row['strategy'] == 'none' else 'with SeVen')
            seen.setdefault(kind, []).append((off <= room + 1e-4, off))
    lines = [[model, which, str(len(found) // 3), str(len(found)),
              str(sum(good for good, _ in found)),
              f'{100 * max(off for _, off in found):.1f}']
             for (model, which), found in seen.items()]
    every = [item for found in seen.values() for item in found]
    good = sum(item[0] for item in every)
    return (command_line(arguments) + '\n' +
            table(['rows', '', 'cells', 'figures', 'inside', 'farthest off, pp'], lines) +
            f'\n\n{good} of {len(every)} figures, {100 * good / len(every):.1f} %, are inside '
            'the two 99 % intervals added.')


def calls():
    """Honest calls complete, as seven-sip does it."""
    arguments = '--length exponential,lognormal_corrected --forward both --wide --width 1%'
    rows = simulate(arguments)
    save('calls', rows)
    lines, plots = [], {}
    for row in rows:
        if row['model'] == 'seven_now':
            plots.setdefault((row['duration'], row['strategy']), []).append(row)
    for (duration, strategy), found in plots.items():
        lines.append([duration.split('_')[0], strategy] + [
            '{} ({}/{})'.format(*(percent(row, figure) for figure in FIGURES))
            for row in found])
    for duration in ('exponential', 'lognormal_corrected'):
        plot(f'calls-{duration}', f'Honest calls that complete, {duration}',
             'attackers, % of the calls', '%',
             {strategy: [(row['attacker_share'], percent(row, 'complete')) for row in found]
              for (length, strategy), found in plots.items() if length == duration})
    now = {(row['duration'], row['strategy'], row['attacker_share']): row for row in rows
           if row['model'] == 'seven_now'}
    worse = [float(row['complete']) - float(now[row['duration'], row['strategy'],
                                               row['attacker_share']]['complete'])
             for row in rows if row['model'] == 'seven_round' and row['strategy'] != 'none']
    lasted = {row['strategy']: row['cut_after'] for row in rows
              if row['model'] == 'seven_now' and row['attacker_share'] == '50' and
              row['duration'] == 'exponential' and row['cut_after']}
    return (command_line(arguments) + '\n' +
            table(['lengths', 'strategy', *(f'{share} %' for share in SHARES)], lines) +
            '\n\n`forward = round` instead of `now` changes complete by {:+.1f} to {:+.1f} pp, {:+.1f} '
            'on average. A cut call had lasted, at 50 % attackers and exponential lengths: {} s.'.format(
                100 * min(worse), 100 * max(worse), 100 * statistics.mean(worse),
                ', '.join(f'{name} {float(s):.1f}' for name, s in lasted.items())))


def bound():
    """Oldest-first beside the bound."""
    few = 'bound --places 24 --horizon 200 --width 0.5%'
    rows, small = simulate('bound'), simulate(few)
    save('bound', rows + small)
    lines = [[row['call_lengths'].split('_')[0], row['attackers_share'],
              row['oldest_first_cut_age'],
              f'{100 * float(row["honest_complete_bound"]):.1f}',
              f'{100 * float(row["complete"]):.1f} ± {100 * float(row["complete_ci"]):.1f}',
              f'{100 * float(row["difference"]):+.2f}',
              f'{100 * float(other["difference"]):+.1f}']
             for row, other in zip(rows, small)]
    return (command_line('bound') + command_line(few) + '\n' +
            table(['lengths', 'attackers, %', 'cut at, s', 'bound, %', 'k = 2400, %', 'off, pp',
                   'k = 24 off, pp'], lines))


def http2014():
    """The 2014 model's setting."""
    arguments = 'http --as-2014 --strategy all --max-runs 2000'
    held = arguments + ' --hold 40'
    rows, post = simulate(arguments), simulate(held)
    save('http2014', rows + post)
    return (command_line(arguments) + command_line(held) + '\n' + table(
        ['strategy', 'served, slowloris', 'cut', 'refused', 'to service, s', 'served, slow POST'],
        [[row['strategy'], percent(row, 'served', True), percent(row, 'cut'),
          percent(row, 'refused'), f'{float(row["seconds_to_service"]):.2f}',
          percent(other, 'served', True)] for row, other in zip(rows, post)]))


def law(load):
    """The mean of P1 over a round of load * k newcomers to a full server."""
    return 100 * math.log1p(load) / load


def load_rows():
    """Published law and reserve, over load, for four sizes."""
    common = ('http --honest-share 2% --t-m 0.08 --warm-up 0.3 --floor 0.005 '
              '--reserve 0,5% ')
    each = [(8, 'uniform,roulette,tournament,oldest', LOADS, '--count 500 --max-runs 60'),
            (180, 'uniform,roulette,tournament,oldest', LOADS, '--count 1000 --max-runs 40'),
            (10000, 'uniform,tournament', '0.01,0.1,0.3,1,3,10',
             '--count 1000 --min-runs 8 --max-runs 12'),
            (1000000, 'uniform,tournament', '0.01,0.1,0.3,1',
             '--count 2000 --min-runs 4 --max-runs 4')]
    rows, commands = [], ''
    for places, strategies, loads, effort in each:
        arguments = f'{common}--places {places} --strategy {strategies} --load {loads} {effort}'
        began = time.monotonic()
        rows += simulate(arguments)
        print(f'  k = {places}: {time.monotonic() - began:.0f} s', flush=True)
        commands += command_line(arguments)
    return rows, commands


def load():
    """Availability over load: newcomers a round and place."""
    rows, commands = load_rows()
    save('load', rows)

    def served(places, strategy, reserve):
        return [(float(row['load']), 100 * float(row['served'])) for row in rows
                if (row['places'], row['strategy']) == (str(places), strategy) and
                (float(row['reserve']) > 0) == reserve]
    for reserve, name in ((False, 'law'), (True, 'reserve')):
        lines = {'P1 alone': [(float(x), law(float(x))) for x in LOADS.split(',')]}
        lines.update({strategy: served(180, strategy, reserve)
                      for strategy in ('uniform', 'roulette', 'tournament', 'oldest')})
        plot(f'load-{name}', 'Honest clients served, k = 180, ' +
             ('a reserve of 5 %' if reserve else 'the published law'),
             'load: newcomers a round and place', '%', lines, 'set logscale x')
    plot('size', 'Honest clients served, tournament, by the number of places',
         'load: newcomers a round and place', '%',
         {f'k = {k}' + (', reserve' if reserve else ''): served(k, 'tournament', reserve)
          for reserve in (False, True) for k in (8, 180, 10000, 1000000)}, 'set logscale x')
    lines = []
    for places in (8, 180, 10000, 1000000):
        for strategy in ('uniform', 'roulette', 'tournament', 'oldest'):
            for reserve in (False, True):
                found = dict(served(places, strategy, reserve))
                if found:
                    lines.append([f'{places:,}', strategy, '5 %' if reserve else '0'] + [
                        f'{found[x]:.1f}' if x in found else ''
                        for x in (0.01, 0.1, 0.3, 1, 3, 10, 100)])
    lines.append(['any', 'P1 alone', '0'] + [f'{law(x):.1f}'
                                             for x in (0.01, 0.1, 0.3, 1, 3, 10, 100)])
    return commands + '\n' + table(['k', 'strategy', 'reserve', *(
        f'load {x}' for x in ('0.01', '0.1', '0.3', '1', '3', '10', '100'))], lines)


def rate():
    """Attack rates at a small and a large server, everything as mod_seven does it."""
    rows, commands = [], ''
    for places, rates in ((180, '25,100,300,1000,2000,3000,10000,100000'),
                          (10000, '1000,10000,30000,100000,300000,1000000')):
        honest = places // 6
        arguments = (f'http --strategy uniform,roulette,tournament --places {places} '
                     f'--honest {honest} --attack {rates} --reserve 0,5% --warm-up '
                     f'{4 if places == 180 else 0.5} --count {honest * 2} --floor 0.005 '
                     '--min-runs 8 ' + ('--max-runs 60' if places == 180 else
                                        '--max-runs 8 --t-m 0.08'))
        began = time.monotonic()
        rows += simulate(arguments)
        print(f'  k = {places}: {time.monotonic() - began:.0f} s', flush=True)
        commands += command_line(arguments)
    save('rate', rows)
    lines = []
    for places in ('180', '10000'):
        mine = [row for row in rows if row['places'] == places]
        rates = list(dict.fromkeys(row['attack'] for row in mine))
        for attack in rates:
            found = [row for row in mine if row['attack'] == attack]
            lines.append([f'{int(places):,}', f'{int(attack):,}', f'{float(found[0]["load"]):.3g}',
                          f'{1000 * int(places) / (int(attack) + int(places) // 6):.3g}',
                          *(percent(row, 'served') for row in found)])
        plot(f'rate-{places}', f'Honest clients served, k = {int(places):,}',
             'attack connections a second', '%',
             {f'{strategy}{", reserve" if reserve else ""}':
              [(row['attack'], percent(row, 'served')) for row in mine
               if row['strategy'] == strategy and (float(row['reserve']) > 0) == reserve]
              for reserve in (False, True) for strategy in ('uniform', 'tournament')},
             'set logscale x')
    return commands + '\n' + table(
        ['k', 'attack/s', 'load', 'k/rate, ms', 'uniform', '+ reserve', 'roulette',
         '+ reserve', 'tournament', '+ reserve'], lines)


def rounds():
    """The round's length, and the honest clients' need."""
    rows, commands = [], ''
    for name, values in (('round', (0.01, 0.1, 1)), ('need', (0.005, 0.02, 0.1, 0.5))):
        for value in values:
            t_m = 0.08 if name == 'round' else 4 * value
            arguments = (f'http --places 180 --attack 1000 --{name} {value} --t-m {t_m:g} '
                         '--strategy uniform,tournament --reserve 0,5% --count 500 '
                         '--floor 0.005 --max-runs 100')
            for row in simulate(arguments):
                rows.append({'varied': name, 'value': value, **row})
            commands += command_line(arguments)
    save('rounds', rows)
    lines = []
    for name, value in dict.fromkeys((row['varied'], row['value']) for row in rows):
        found = [row for row in rows if (row['varied'], row['value']) == (name, value)]
        lines.append(['T_S' if name == 'round' else 'need', f'{1000 * value:g} ms',
                      *(percent(row, 'served') for row in found)])
    first = commands.splitlines(keepends=True)
    return first[0] + first[3] + '\n' + table(
        ['', '', 'uniform', '+ reserve', 'tournament', '+ reserve'], lines)


def farm():
    """Many servers behind a balancer, with the same places in all."""
    rows, commands = [], ''
    for servers, places in ((1, 2880), (4, 720), (16, 180), (64, 45), (360, 8)):
        arguments = (f'http --servers {servers} --places {places} --balance all --honest 480 '
                     '--attack 5000,16000 --reserve 0,5% --t-m 0.08 --count 1000 '
                     '--min-runs 8 --floor 0.003 --max-runs 100')
        rows += simulate(arguments)
        commands += command_line(arguments)
    save('farm', rows)
    lines = []
    for servers in dict.fromkeys(row['servers'] for row in rows):
        found = {(row['balance'], row['attack'], float(row['reserve']) > 0): row for row in rows
                 if row['servers'] == servers}
        lines.append([servers, str(2880 // int(servers))] + [
            percent(found[balance, attack, reserve], 'served')
            for attack in ('5000', '16000') for reserve in (False, True)
            for balance in ('rr', 'lc')])
    plot('farm', '2880 places in all, a reserve of 5 %', 'servers', '%',
         {f'{balance}, {attack}/s': [(row['servers'], percent(row, 'served')) for row in rows
                                     if (row['balance'], row['attack']) == (balance, attack) and
                                     float(row['reserve']) > 0]
          for balance in ('rr', 'lc') for attack in ('5000', '16000')}, 'set logscale x 2')
    return commands.splitlines(keepends=True)[0] + '\n' + table(
        ['servers', 'k each', '5000/s rr', 'lc', 'reserve rr', 'lc', '16000/s rr', 'lc',
         'reserve rr', 'lc'], lines)


def time_public_model(strategy):
    """Seconds of processor that maude says a run of the public model took, and the
    seconds that the whole program took: medians of five."""
    took = []
    with tempfile.TemporaryDirectory() as scratch:
        script = os.path.join(scratch, 'run.maude')
        with open(script, 'w') as file:
            file.write(f'load {options.public_model}/seven_coor_model_voip\n'
                       f'load {options.public_model}/{strategy}\nrew initState .\nq\n')
        for seed in range(5):
            began = time.monotonic()
            done = subprocess.run(['maude', '-no-banner', f'-random-seed={seed + 1}', script],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  timeout=120)
            whole = time.monotonic() - began
            found = re.findall(r'in (\d+)ms cpu', done.stdout)
            if not found:
                return None
            took.append((float(found[-1]) / 1000, whole))
    return tuple(statistics.median(column) for column in zip(*took))


def speed():
    """Simulated calls a second on one core, and against Maude."""
    done = subprocess.run([SIM, '--speed'], capture_output=True, text=True, check=True)
    with open(os.path.join(OUT, 'speed.txt'), 'w') as file:
        file.write(done.stdout)
    text = command_line('--speed') + '\n```\n' + done.stdout + '```'
    if not options.public_model:
        return None
    lines = []
    for strategy in ('uniform', 'roulette', 'tournament'):
        ours = float(re.search(rf'as published, K=325, {strategy} +\S+ +(\S+)',
                               done.stdout)[1]) / 1e6
        took = time_public_model(strategy)
        if took:
            lines.append([strategy, f'{1e3 * took[0]:.0f}', f'{1e3 * took[1]:.0f}',
                          f'{1e6 * ours:.0f}', f'{took[0] / ours:,.0f}'])
    return text + '\n\n' + table(
        ['public model, K = 325, 50 %', 'Maude, ms a run', 'with its start', 'seven-sim, µs a run',
         'times'], lines)


SECTIONS = {function.__name__: function for function in (
    published, calls, bound, http2014, load, rate, rounds, farm, speed)}


def write(name, text):
    """Put a table between its marks in the page."""
    with open(PAGE) as file:
        page = file.read()
    mark = re.compile(rf'(<!-- {name} -->\n).*?(<!-- /{name} -->)', re.DOTALL)
    if not mark.search(page):
        sys.exit(f'{PAGE} has no mark for {name}')
    with open(PAGE, 'w') as file:
        file.write(mark.sub(lambda found: found[1] + text + '\n' + found[2], page))


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('sections', nargs='*', metavar='SECTION',
                        help=f'of {", ".join(SECTIONS)}; all unless given')
    parser.add_argument('--quick', action='store_true', help='a hundredth; the page stays')
    parser.add_argument('--threads', type=int, help='all cores unless given')
    parser.add_argument('--public-model', metavar='DIR',
                        help='a copy of the public model, to time it')
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f'there is no section {unknown[0]}: {", ".join(SECTIONS)}')
    if not os.path.exists(SIM):
        sys.exit('build/seven-sim is not there: make build/seven-sim')
    os.makedirs(OUT, exist_ok=True)
    for name in options.sections or SECTIONS:
        began = time.monotonic()
        print(f'{name}: {SECTIONS[name].__doc__.splitlines()[0]}', flush=True)
        text = SECTIONS[name]()
        print(f'  {time.monotonic() - began:.0f} s', flush=True)
        if text is None:
            print('  the page keeps its table: --public-model is needed for it')
        elif options.quick:
            print(text)
        else:
            write(name, text)


if __name__ == '__main__':
    main()

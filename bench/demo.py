#!/usr/bin/env python3
"""The demonstration: two httpds, one with mod_seven and one without, under the
same slow attack, while honest clients keep asking both. About one minute.
Leaves nothing running."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

# bench/http.py is named as a part of the standard library is: keep bench/ off
# the search path, and leave no compiled files about.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from bench import robots                                        # noqa: E402
from bench.progress import Progress                             # noqa: E402
from t.httpd import Httpd, HttpdError                           # noqa: E402

HONEST_RATE = 30       # new connections a second, to each server
HONEST_LIMIT = 10      # seconds each may take
CALM_SECONDS = 4
ATTACK_NAMES = {'slowloris': 'slow request heads (slowloris)',
                'post': 'slow request bodies (slow POST)',
                'read': 'slow readers of a large page (slow read)',
                'tuned': 'bodies sent just fast enough (tuned slow POST)'}


class Side:
    """One of the two servers, and the honest clients that ask it."""

    def __init__(self, name, options, module, directory):
        lines = [f'SevenServerLimit {options.limit}'] if module else []
        self.name = name
        self.module = module
        self.live = os.path.join(directory, re.sub(r'\W', '-', name))
        self.httpd = Httpd(mpm=options.mpm, workers=options.workers,
                           module=module, lines=lines)
        self.honest = self.attack = None

    def start_honest(self, seconds):
        if os.path.exists(self.live):
            os.unlink(self.live)
        self.honest = robots.webbots('honest', url=self.httpd.url('/'),
                                     rate=HONEST_RATE, seconds=seconds,
                                     limit=HONEST_LIMIT, live=self.live)

    def start_attack(self, options):
        path = robots.ATTACKS[options.attack][1]
        self.attack = robots.Attack(options.attack, options.rate,
                                    self.httpd.url(path),
                                    options.seconds + HONEST_LIMIT + 20)

    def counters(self):
        """The honest clients' counters so far."""
        try:
            with open(self.live) as file:
                return {key: int(value) for key, value in
                        re.findall(r'(\w+): (\d+)', file.read())}
        except OSError:
            return {'offered': 0, 'served': 0}

    def stop(self):
        if self.honest:
            robots.stop(self.honest)
        if self.attack:
            self.attack.stop()
        self.httpd.stop(timeout=1)


def progress_text(seconds, sides, options):
    parts = []
    for side in sides:
        now = side.counters()
        parts.append(f'{side.name}: {now["served"]:>4} of {now["offered"]:>4}')
    waiting = '  waiting' if seconds > options.seconds + 1 else ''
    return f'{seconds:>4.0f} s  served  ' + '   '.join(parts) + waiting


def calm(sides):
    """Let honest clients ask with nobody attacking. Each side's figures."""
    for side in sides:
        side.start_honest(CALM_SECONDS)
    return [robots.figures(side.honest, CALM_SECONDS + HONEST_LIMIT + 5)
            for side in sides]


def attacked(sides, options):
    """Attack both while honest clients ask both. Each side's figures."""
    progress = Progress()
    for side in sides:
        side.start_attack(options)
        side.start_honest(options.seconds)
    began = time.monotonic()
    longest = options.seconds + HONEST_LIMIT + 10
    while time.monotonic() - began < longest and \
            any(side.honest.poll() is None for side in sides):
        for side in sides:
            side.attack.check()
        progress.show(progress_text(time.monotonic() - began, sides, options))
        time.sleep(0.1)
    progress.next = 0
    progress.show(progress_text(time.monotonic() - began, sides, options))
    progress.end()
    return [robots.figures(side.honest, 5) for side in sides]


def print_plan(options):
    print(f'Two httpds on 127.0.0.1, one with mod_seven and one without; '
          f'{options.workers} workers\n'
          f'  each, {options.mpm} MPM.\n'
          f'The attack on each: {ATTACK_NAMES[options.attack]},\n'
          f'  {options.rate} new connections a second, by slowhttptest.\n'
          f'The honest clients of each: {HONEST_RATE} new connections a second '
          'on schedule,\n'
          f'  whatever became of the others; each may take {HONEST_LIMIT} s.\n')


def milliseconds(figures, key):
    return f'{figures[key]:.1f} ms' if figures['served'] else '-'


def print_table(sides, results, rates):
    rows = [('', [side.name for side in sides])]
    for key in ('offered', 'served', 'refused', 'failed'):
        rows.append((key, [f'{r[key]:.0f}' for r in results]))
    rows.append(('served, percent', [f'{r["served_pct"]:.1f}' for r in results]))
    rows.append(('p50 of the served', [milliseconds(r, 'p50_ms') for r in results]))
    rows.append(('p99 of the served', [milliseconds(r, 'p99_ms') for r in results]))
    rows.append(('attackers a second', [f'{rate:.0f}' for rate in rates]))
    print()
    for name, cells in rows:
        print(f'  {name:<20}' + ''.join(f'{cell:>18}' for cell in cells))
    print()


def in_ms(status, name):
    try:
        return f'{float(status[robots.STATUS_KEYS[name]]) / 1000:.2f} ms'
    except (KeyError, ValueError):
        return 'unknown'


def print_what_it_did(side):
    if not side.module:
        return
    status = side.httpd.seven_status()
    keys = robots.STATUS_KEYS
    print(f'mod_seven evicted {status.get(keys["evictions"], "?")} connections '
          f'and refused {status.get(keys["refusals"], "?")}.\n'
          'From eviction to freed worker: median '
          f'{in_ms(status, "free_p50_us")}, 99 % within '
          f'{in_ms(status, "free_p99_us")}.')


def run(options, directory):
    sides = []
    try:
        sides.append(Side('with mod_seven', options, options.module, directory))
        sides.append(Side('without', options, None, directory))
        for side, figures in zip(sides, calm(sides)):
            print(f'Nobody attacks: {side.name}, {figures["served"]:.0f} of '
                  f'{figures["offered"]:.0f} served, '
                  f'p99 {milliseconds(figures, "p99_ms")}')
        print('\nThe attack begins.')
        results = attacked(sides, options)
        rates = [side.attack.stop() for side in sides]
        for side in sides:
            side.attack = None
        print_table(sides, results, rates)
        print_what_it_did(sides[0])
    finally:
        for side in sides:
            side.stop()


def read_options():
    parser = argparse.ArgumentParser(
        description='Show an httpd with mod_seven beside one without, attacked.')
    parser.add_argument('--module', default='build/mod_seven.so',
                        help='the module (build/mod_seven.so)')
    parser.add_argument('--mpm', default='event',
                        choices=('event', 'worker', 'prefork'))
    parser.add_argument('--workers', type=int, default=100,
                        help='MaxRequestWorkers of each server (100)')
    parser.add_argument('--attack', default='slowloris', choices=robots.ATTACKS)
    parser.add_argument('--rate', type=int, default=50,
                        help='attacking connections a second, on each (50)')
    parser.add_argument('--seconds', type=int, default=35,
                        help='how long the honest clients ask, attacked (35)')
    options = parser.parse_args()
    if not 2 <= options.workers <= 400:
        parser.error('--workers must be from 2 to 400.')
    if not 1 <= options.rate <= 500:
        parser.error('--rate must be from 1 to 500.')
    if not 5 <= options.seconds <= 600:
        parser.error('--seconds must be from 5 to 600.')
    options.limit = max(1, options.workers * 9 // 10)
    return options


def main():
    options = read_options()
    if options.module == 'none':
        options.module = None
    elif not os.path.exists(options.module):
        sys.exit(f'There is no {options.module}; run make first.')
    if not os.path.exists(robots.WEBBOTS):
        sys.exit(f'There is no {robots.WEBBOTS}; run make first.')
    robots.raise_file_limit()
    print_plan(options)
    with tempfile.TemporaryDirectory(prefix='seven-demo-') as directory:
        try:
            run(options, directory)
        except KeyboardInterrupt:
            sys.exit('\nStopped.')
        except (HttpdError, RuntimeError, OSError,
                subprocess.SubprocessError) as error:
            sys.exit(f'\nThe demonstration could not go on: {error}')


if __name__ == '__main__':
    main()

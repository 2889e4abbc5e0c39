#!/usr/bin/env python3
"""The HTTP benchmark: one row a case, each against a real httpd under attack.

    bench/http.py --list             name the cases
    bench/http.py event-slowloris    run one (any number may be named)
    bench/http.py event              run those whose names begin with "event-"
    bench/http.py all --runs 3       run all, medians of three interleaved runs
    bench/http.py all --module none  the same without a module

How a case is run. A server is started and honest clients ask it for a page
with nobody attacking: their p99 is the baseline. Then slowhttptest attacks,
and keeps attacking until the end. Once the attack has lasted long enough to
fill an undefended server, the honest clients start: an open loop, 30 new
connections a second on schedule, each allowed 20 seconds. Served is what came
back whole with a 200 in that time; its latency counts from the schedule.

The same attack is run on the same server without the module, once for each
distinct attack: if more than half of the honest clients were served there,
the attack proves nothing and the row says INVALID.
"""

import argparse
import csv
import dataclasses
import os
import re
import statistics
import subprocess
import sys
import time

# This file is named as a part of the standard library is: keep bench/ off the
# search path, and leave no compiled files about.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from bench.cases import choose                                   # noqa: E402
from bench import robots                                        # noqa: E402
from t.httpd import Httpd, HttpdError, free_port                # noqa: E402

HONEST_RATE = 30          # new connections a second
HONEST_LIMIT = 20         # seconds each may take
UPLOAD_LIMIT = 30
BASELINE_SECONDS = 5
UNDEFENDED_SECONDS = 5    # the honest window of an undefended run
SETTLE_SECONDS = 2        # added to the time the attack needs to fill a server
LEAST_LEAD_SECONDS = 4
MPMS = ('event', 'worker', 'prefork')
TUNNELS, UPLOADS_AT_ONCE = 20, 150
# Two equal servers differ by 5 %: see wrk_pairs().
WRK_ROUNDS, WRK_PAIRS, WRK_SECONDS = 40, 2, 1


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table. A rate of 0 is as fast as slowhttptest goes."""
    name: str
    about: str
    mpm: str = 'event'
    workers: int = 200
    limit: int = 180             # SevenServerLimit, k
    attack: str = 'slowloris'
    rate: int = 25
    tls: bool = False            # the attack and the honest clients use HTTPS
    half_http2: bool = False     # every other honest client speaks HTTP/2
    far_ms: int = 0              # honest HTTPS clients are this far, one way
    uploads: bool = False        # judged by slow uploads beside the honest
    lines: tuple = ()
    served: float = 99.9         # must reach, percent
    p99_over: float = None       # p99 may exceed the baseline by this, ms
    kind: str = 'attack'         # or 'quiet', 'free', 'wrk'

    def attack_key(self):
        """What makes the attack on an undefended server a distinct one."""
        return (self.mpm, self.workers, self.attack, self.rate, self.tls,
                self.half_http2, self.far_ms, self.uploads)

    def lead_seconds(self):
        """How long the attack runs before the honest clients come."""
        fill = self.workers / self.rate if self.rate else 0
        return max(LEAST_LEAD_SECONDS, fill + SETTLE_SECONDS)


def mpm_cases():
    for mpm in MPMS:
        for attack in robots.ATTACKS:
            yield Case(f'{mpm}-{attack}', f'{attack} 25/s', mpm=mpm,
                       attack=attack, p99_over=20)


def heavy_cases():
    yield Case('slowloris-300', 'slowloris 300/s', rate=300)
    yield Case('slowloris-max', 'slowloris as fast as it goes', rate=0)
    small = dict(workers=10, limit=8)
    yield Case('small-25', '10 workers, k=8, slowloris 25/s', served=99.5, **small)
    yield Case('small-300', '10 workers, k=8, slowloris 300/s', rate=300,
               served=98, **small)
    yield Case('far', 'slowloris 25/s, honest HTTPS 300 ms away', far_ms=150,
               served=99)
    yield Case('full', 'k = MaxRequestWorkers, slowloris 50/s', limit=200,
               rate=50, served=99.8)


def law_cases():
    law = ('SevenReserve 0', 'SevenStrategy uniform')
    for attack in ('slowloris', 'post'):
        yield Case(f'law-{attack}', f'published law alone, {attack} 7/s',
                   attack=attack, rate=7, lines=law, served=99)


def tls_cases():
    for attack in robots.ATTACKS:
        yield Case(f'tls-{attack}', f'{attack} 25/s over HTTPS, half HTTP/2',
                   attack=attack, tls=True, half_http2=True, served=99.8)


def upload_cases():
    for attack, rate in (('slowloris', 25), ('tuned', 25), ('slowloris', 300)):
        yield Case(f'upload-{attack}-{rate}', f'slow uploads, {attack} {rate}/s',
                   attack=attack, rate=rate, uploads=True, served=99)


def other_cases():
    yield Case('quiet', f'no attack: {UPLOADS_AT_ONCE} slow uploads and '
               f'{TUNNELS} idle tunnels at once', kind='quiet', served=100)
    for mpm in MPMS:
        yield Case(f'free-{mpm}', 'eviction to freed worker, slowloris 50/s',
                   mpm=mpm, rate=50, kind='free', served=0)
    yield Case('wrk-kept', 'throughput, kept-alive connections', kind='wrk')
    yield Case('wrk-close', 'throughput, new connections', kind='wrk')


CASES = [*mpm_cases(), *heavy_cases(), *law_cases(), *tls_cases(),
         *upload_cases(), *other_cases()]


# ---- one run of an attack case -----------------------------------------------

def say(text):
    print(text, file=sys.stderr, flush=True)


def start_httpd(case, module, more_lines=(), modules=()):
    lines = list(more_lines)
    if module:
        lines += [f'SevenServerLimit {case.limit}', *case.lines]
    tls = case.tls or case.far_ms > 0
    httpd = Httpd(mpm=case.mpm, workers=case.workers, module=module, lines=lines,
                  tls=tls, http2=tls, modules=modules)
    if case.mpm == 'prefork':
        wait_for_children(httpd, case.workers)
    return httpd


def wait_for_children(httpd, wanted, timeout=20):
    end = time.monotonic() + timeout
    while len(httpd.children()) < wanted and time.monotonic() < end:
        time.sleep(0.05)


def start_honest(case, url, seconds):
    return robots.webbots('honest', url=url, rate=HONEST_RATE, seconds=seconds,
                          limit=HONEST_LIMIT, insecure=True,
                          half_http2=case.half_http2)


def honest_url(case, httpd):
    """Where honest clients ask, and the relay in between, if there is one."""
    if not case.far_ms:
        return httpd.url('/', case.tls), None
    port = free_port()
    relay = robots.webbots('relay', listen=port, to=httpd.tls_port,
                           delay_ms=case.far_ms, seconds=300)
    return f'https://127.0.0.1:{port}/', relay


def wait_while_attacked(attack, seconds=None, processes=()):
    """Keep the attack going, for a time or until these processes end."""
    end = time.monotonic() + (seconds if seconds is not None else 600)
    while time.monotonic() < end:
        attack.check()
        if processes and all(p.poll() is not None for p in processes):
            return
        time.sleep(0.1)


def begin_attack(case, httpd, seconds):
    longest = UPLOAD_LIMIT if case.uploads else HONEST_LIMIT
    whole = case.lead_seconds() + seconds + longest + 10
    return robots.Attack(case.attack, case.rate,
                         httpd.url(robots.ATTACKS[case.attack][1], case.tls), whole)


def attack_window(case, httpd, url, seconds):
    """Attack, wait until it would have filled a server, let the honest ask.
    Returns (honest figures, upload figures or None, real attack rate)."""
    attack = begin_attack(case, httpd, seconds)
    try:
        wait_while_attacked(attack, case.lead_seconds())
        honest = start_honest(case, url, seconds)
        asking = [honest]
        if case.uploads:
            asking.append(robots.webbots(
                'upload', url=httpd.url('/upload'), rate=1, seconds=seconds,
                limit=UPLOAD_LIMIT))
        wait_while_attacked(attack, processes=asking)
        results = [robots.figures(process, 5) for process in asking]
    finally:
        rate = attack.stop()
    return results[0], results[1] if case.uploads else None, rate


def module_figures(httpd):
    """What the module counted, by our names for it; missing keys are left out."""
    status = httpd.seven_status()
    found = {}
    for name, key in robots.STATUS_KEYS.items():
        try:
            found[name] = float(status[key])
        except (KeyError, ValueError):
            continue
    return found


def run_undefended(case):
    """The share of honest clients an undefended server serves, in percent."""
    say(f'  {case.name}: the same attack on an undefended server')
    with start_httpd(case, None) as httpd:
        url, relay = honest_url(case, httpd)
        try:
            honest, uploads, _ = attack_window(case, httpd, url,
                                               UNDEFENDED_SECONDS)
        finally:
            if relay:
                robots.stop(relay)
    return (uploads or honest)['served_pct']


def run_attack(case, options):
    with start_httpd(case, options.module) as httpd:
        url, relay = honest_url(case, httpd)
        try:
            baseline = robots.figures(
                start_honest(case, url, BASELINE_SECONDS), 60)
            honest, uploads, rate = attack_window(case, httpd, url,
                                                  options.seconds)
        finally:
            if relay:
                robots.stop(relay)
        row = result_of(honest, uploads)
        row.update(baseline_p99_ms=baseline['p99_ms'], attack_rate=rate,
                   p99_over_ms=honest['p99_ms'] - baseline['p99_ms'],
                   honest_pct=honest['served_pct'])
        if options.module:
            row.update(module_figures(httpd))
    return row


def result_of(honest, uploads):
    """The figures a row shows: of the uploads, in a case about uploads."""
    shown = uploads or honest
    keys = ['offered', 'served', 'refused', 'failed', 'served_pct']
    if shown['served']:
        keys += ['p50_ms', 'p99_ms']
    return {key: shown[key] for key in keys}


# ---- nobody attacks ----------------------------------------------------------

def run_quiet(case, options):
    """150 slow uploads and 20 idle tunnels at once, and nobody attacks."""
    port = free_port()
    backend = robots.webbots('echo', listen=port, seconds=120)
    proxy = [f'ProxyPass /ws http://127.0.0.1:{port}/ws upgrade=websocket']
    try:
        with start_httpd(case, options.module, proxy,
                         ('proxy', 'proxy_http')) as httpd:
            tunnels = robots.webbots('idle', port=httpd.port, count=TUNNELS,
                                     seconds=15, kind='websocket')
            time.sleep(1)
            uploads = robots.webbots('upload', url=httpd.url('/upload'),
                                     rate=UPLOADS_AT_ONCE, seconds=1,
                                     limit=UPLOAD_LIMIT)
            row = result_of(robots.figures(uploads, 60), None)
            alive = robots.figures(tunnels, 60)
            if options.module:
                row.update(module_figures(httpd))
    finally:
        robots.stop(backend)
    row.update(opened=alive['opened'], alive=alive['alive'])
    return row


# ---- throughput --------------------------------------------------------------

def wrk_requests(httpd, close):
    """Requests a second by wrk, with few enough connections to fill nothing."""
    command = ['wrk', '-t', '1', '-c', '16', '-d', f'{WRK_SECONDS}s']
    if close:
        command += ['-H', 'Connection: close']
    text = robots.stop_after(robots.start(command + [httpd.url('/')]),
                             WRK_SECONDS + 30)
    found = re.search(r'Requests/sec:\s+([\d.]+)', text)
    if not found:
        raise RuntimeError(f'wrk printed no rate: {text}')
    return float(found.group(1))


def cpu_seconds(httpd):
    """Processor time its children have used, user and system."""
    ticks = 0
    for pid in httpd.children():
        with open(f'/proc/{pid}/stat') as file:
            fields = file.read().rsplit(')', 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def cpu_per_request(httpd, rates, began):
    """Microseconds of processor time a request, over all runs of a server."""
    requests = sum(rates) * WRK_SECONDS
    return (cpu_seconds(httpd) - began) * 1e6 / requests


def wrk_pairs(case, module, close):
    """Two fresh servers, asked in turn: the rates of each, and its processor time
    a request. Which of two equal servers is quicker is settled by where their
    memory came to lie, when they start, by some 5 %: hence many such rounds."""
    lines = ['MaxKeepAliveRequests 0']
    with start_httpd(case, module, lines) as seven, \
            start_httpd(case, None, lines) as bare:
        both = (seven, bare)
        for httpd in both:
            wrk_requests(httpd, close)          # warm both up
        began = {httpd: cpu_seconds(httpd) for httpd in both}
        rates = {httpd: [] for httpd in both}
        for pair in range(WRK_PAIRS):
            for httpd in both if pair % 2 else reversed(both):
                rates[httpd].append(wrk_requests(httpd, close))
        return [(rates[httpd], cpu_per_request(httpd, rates[httpd], began[httpd]))
                for httpd in both]


def run_wrk(case, options):
    """Pairs of runs, with and without the module in turn: the mean of the rounds'
    ratios, and half of its 95 % interval."""
    close = case.name.endswith('close')
    rounds = [wrk_pairs(case, options.module, close) for _ in range(WRK_ROUNDS)]
    seven = [rate for pair in rounds for rate in pair[0][0]]
    cpu, bare_cpu = (statistics.median(pair[at][1] for pair in rounds) for at in (0, 1))
    ratios = [statistics.median(pair[0][0]) / statistics.median(pair[1][0])
              for pair in rounds]
    return {'ratio': statistics.mean(ratios),
            'ratio_half': 2.02 * statistics.stdev(ratios) / len(ratios)**0.5,
            'requests_per_s': statistics.median(seven),
            'cpu_us': cpu, 'bare_cpu_us': bare_cpu}


RUNNERS = {'attack': run_attack, 'free': run_attack, 'quiet': run_quiet,
           'wrk': run_wrk}


# ---- judging -----------------------------------------------------------------

def target_text(case):
    if case.kind == 'wrk':
        return 'ratio >= 0.98'
    if case.kind == 'free':
        return 'free p50 <= 1 ms'
    if case.kind == 'quiet':
        return 'none touched'
    text = f'>= {case.served:g} %'
    return text + (f', p99 +{case.p99_over:g} ms' if case.p99_over else '')


def reached(case, row):
    """Whether a row reaches its target; None if it cannot be told."""
    if case.kind == 'wrk':
        return row['ratio'] >= 0.98
    if case.kind == 'free':
        return row['free_p50_us'] <= 1000 if 'free_p50_us' in row else None
    if case.kind == 'quiet':
        return (row['served'] == row['offered'] and
                row['alive'] == row['opened'] == TUNNELS and
                not row.get('evictions') and not row.get('refusals'))
    return (row['served_pct'] >= case.served and
            (case.p99_over is None or row['p99_over_ms'] <= case.p99_over))


def verdict(case, row):
    if row.get('undefended_pct') is not None and row['undefended_pct'] > 50:
        return 'INVALID'
    answer = reached(case, row)
    return '?' if answer is None else 'PASS' if answer else 'FAIL'


def median_row(rows):
    """The median of each figure over several runs of a case."""
    keys = set.intersection(*(set(row) for row in rows))
    return {key: statistics.median(row[key] for row in rows) for key in keys}


# ---- printing ----------------------------------------------------------------

COLUMNS = [('case', 18), ('offered', 7), ('served', 6), ('served%', 7),
           ('p50 ms', 7), ('p99 ms', 8), ('base', 6), ('evicted', 7),
           ('refused', 7), ('free us', 7), ('none%', 6), ('att/s', 5)]
FIELDS = ['offered', 'served', 'served_pct', 'p50_ms', 'p99_ms',
          'baseline_p99_ms', 'evictions', 'refusals', 'free_p50_us',
          'undefended_pct', 'attack_rate']
CSV_FIELDS = ['case', 'about', 'module', 'runs', 'seconds', *FIELDS,
              'p99_over_ms', 'honest_pct', 'free_p99_us', 'opened', 'alive',
              'ratio', 'ratio_half', 'requests_per_s', 'cpu_us', 'bare_cpu_us', 'target',
              'verdict']


def number(value):
    if value is None:
        return '-'
    return f'{value:.0f}' if float(value).is_integer() else f'{value:.2f}'


def print_header():
    print('served% is honest clients served / offered; base is their p99 with no '
          'attack;\nfree us is the median from eviction to freed worker; none% '
          'is served% without\nthe module; att/s is the attack rate reached.\n')
    print('  '.join(f'{name:>{width}}' if at else f'{name:<{width}}'
                    for at, (name, width) in enumerate(COLUMNS)) + '  target')


def print_row(case, row):
    cells = [f'{case.name:<{COLUMNS[0][1]}}']
    for (_, width), field in zip(COLUMNS[1:], FIELDS):
        cells.append(f'{number(row.get(field)):>{width}}')
    extra = ''
    if case.kind == 'wrk':
        extra = (f' (ratio {row["ratio"]:.3f} +- {row["ratio_half"]:.3f}; '
                 f'{row["requests_per_s"]:.0f}/s; '
                 f'{row["cpu_us"]:.0f} and {row["bare_cpu_us"]:.0f} us CPU each)')
    if case.kind == 'quiet':
        extra = f' ({row["alive"]:.0f} of {TUNNELS} tunnels)'
    print('  '.join(cells) + f'  {target_text(case)}{extra}: {verdict(case, row)}',
          flush=True)


def append_csv(path, case, row, options):
    new = not os.path.exists(path) or os.path.getsize(path) == 0
    with open(path, 'a', newline='') as file:
        writer = csv.DictWriter(file, CSV_FIELDS, extrasaction='ignore')
        if new:
            writer.writeheader()
        values = {key: f'{value:.3f}'.rstrip('0').rstrip('.')
                  for key, value in row.items()}
        writer.writerow({**values, 'case': case.name, 'about': case.about,
                         'module': os.path.basename(options.module or 'none'),
                         'runs': options.runs, 'seconds': options.seconds,
                         'target': target_text(case),
                         'verdict': verdict(case, row)})


# ---- the program -------------------------------------------------------------

def run_all(cases, options):
    """Run the cases in turn, as often as asked; print each one's row when its
    last run is over."""
    rows = {case: [] for case in cases}
    for number_of_run in range(options.runs):
        for case in cases:
            say(f'  {case.name}: {case.about} '
                f'(run {number_of_run + 1} of {options.runs})')
            rows[case].append(RUNNERS[case.kind](case, options))
            if options.runs > 1:
                say(f'    served% {number(rows[case][-1].get("served_pct"))}')
            if number_of_run == options.runs - 1:
                finish(case, rows[case], options)


_undefended = {}


def undefended_pct(case, options):
    """Served without the module, measured once for each distinct attack."""
    if case.kind not in ('attack', 'free') or not options.validity:
        return None
    key = case.attack_key()
    if key not in _undefended:
        _undefended[key] = run_undefended(case)
    return _undefended[key]


def finish(case, rows, options):
    row = median_row(rows)
    if options.module:
        row['undefended_pct'] = undefended_pct(case, options)
    elif 'served_pct' in row and case.kind in ('attack', 'free'):
        row['undefended_pct'] = row['served_pct']
    row = {key: value for key, value in row.items() if value is not None}
    print_row(case, row)
    if options.csv:
        append_csv(options.csv, case, row, options)


def read_options():
    parser = argparse.ArgumentParser(
        description='Measure how an httpd under attack serves honest clients.')
    parser.add_argument('cases', nargs='*', metavar='CASE',
                        help='names, beginnings of names, or all')
    parser.add_argument('--list', action='store_true', help='name the cases')
    parser.add_argument('--seconds', type=float, default=15,
                        help='how long honest clients start, while attacked (15)')
    parser.add_argument('--runs', type=int, default=1,
                        help='runs of each case; the row shows medians (1)')
    parser.add_argument('--module', default='build/mod_seven.so',
                        help='the module, or none (build/mod_seven.so)')
    parser.add_argument('--csv', metavar='FILE', help='append the rows to FILE')
    parser.add_argument('--no-validity', dest='validity', action='store_false',
                        help='do not run the attacks on an undefended server')
    options = parser.parse_args()
    if options.seconds < 1 or options.runs < 1:
        parser.error('--seconds and --runs must be at least 1.')
    if not options.list and not options.cases:
        parser.error('Name a case; --list names them all.')
    return options


def check_tools(options):
    if options.module == 'none':
        options.module = None
    elif not os.path.exists(options.module):
        sys.exit(f'There is no {options.module}; run make, or give --module.')
    if not os.path.exists(robots.WEBBOTS):
        sys.exit(f'There is no {robots.WEBBOTS}; run make.')


def main():
    options = read_options()
    if options.list:
        for case in CASES:
            print(f'{case.name:<20} {case.about:<60} {target_text(case)}')
        return
    cases = choose(CASES, options.cases)
    check_tools(options)
    robots.raise_file_limit()
    print_header()
    try:
        run_all(cases, options)
    except KeyboardInterrupt:
        sys.exit('Stopped.')
    except (HttpdError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f'The benchmark could not go on: {error}')


if __name__ == '__main__':
    main()

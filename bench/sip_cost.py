"""What seven-sip costs: processor time, memory, delay. The cases that bench/sip.py
runs beside those about availability. Each is a function that makes one run and
returns its figures."""

import functools
import statistics
import time

from bench.callers import HONEST, Callee, Callers, percentile
from bench.crowd import Crowd
from t.sip import Kamailio, SevenSip, SipError
from t.sipwire import Call, Endpoint

RATE, SECONDS, PAIRS = 500, 6, 3     # calls a second, for so long, so often
FEW, MANY = 100, 100_000
NEWCOMERS = 3000
NEWCOMER_RATE = 300                  # three or so in a round of 10 ms
AFTER = 45                           # seconds until no transaction is left (32 s, 17.2)
DELAY_CALLS = 1500


# ---- calls a CPU second --------------------------------------------------------

def calls_per_cpu_second(proxy, to):
    """SIPp's calls through a proxy: set up, answered, ended. Calls a second of
    processor time, by all of its processes."""
    count = RATE * SECONDS
    rows = [(0, 1, 'bob', f'{HONEST}{at + 1}') for at in range(count)]
    before = proxy.cpu()
    with Callers(rows, to, rate=RATE, trace=False) as callers:
        if not callers.wait(60 + 3 * SECONDS):
            raise SipError('the callers have not ended')
        complete = sum(record.complete is not None for record in callers.calls())
    used = proxy.cpu() - before
    if complete < 0.99 * count:
        raise SipError(f'only {complete} of {count} calls were complete')
    return complete / used


def throughput():
    """seven-sip and Kamailio with its dialog module, in turn before the same SIPp."""
    rates = {'seven': [], 'kamailio': []}
    with Callee(ring_ms=0, trace=False) as callee:
        at = ('127.0.0.1', callee.port)
        with SevenSip(at, MANY, t_m='5s', forward='now') as seven, \
                Kamailio(dialog=True, relay=at, memory=1024) as kamailio:
            for pair in range(PAIRS + 1):
                for name, proxy in (('seven', seven), ('kamailio', kamailio)):
                    rate = calls_per_cpu_second(proxy, proxy.address)
                    if pair:        # the first warms up
                        rates[name].append(rate)
    seven, kamailio = (statistics.median(rates[name]) for name in ('seven', 'kamailio'))
    return {'seven_per_cpu_s': seven, 'kamailio_per_cpu_s': kamailio,
            'ratio': seven / kamailio}


# ---- many calls up ---------------------------------------------------------------

def cpu_us(pid):
    """Processor time of a single-threaded process, microseconds."""
    with open(f'/proc/{pid}/schedstat') as file:
        return int(file.read().split()[0]) / 1000


def rss_bytes(pid):
    with open(f'/proc/{pid}/status') as file:
        return next(int(line.split()[1]) for line in file
                    if line.startswith('VmRSS:')) * 1024


def fill(crowd, calls):
    if not crowd.call(calls) or crowd.refused:
        raise SipError(f'only {crowd.answered} of {calls} calls were set up')
    crowd.settle()


def full_server(calls, strategy):
    """A server with so many calls up, and newcomers that replace them. Figures."""
    with Crowd(None) as crowd:
        with SevenSip(crowd.server_address, calls, t_m='1s', round='10ms',
                      forward='now', strategy=strategy) as proxy:
            crowd.proxy = proxy.address
            crowd.call(1)
            crowd.settle()
            empty = rss_bytes(proxy.pid)
            fill(crowd, calls - 1)
            up = proxy.status()
            if up['incall'] != calls:
                raise SipError(f'{up["incall"]} of {calls} calls are up')
            peak = rss_bytes(proxy.pid)
            time.sleep(1.1 if calls < MANY else AFTER)
            full = rss_bytes(proxy.pid)
            before, byes = cpu_us(proxy.pid), crowd.byes
            crowd.call(NEWCOMERS, at_once=8, rate=NEWCOMER_RATE)
            crowd.settle()
            used = cpu_us(proxy.pid) - before
            status = proxy.status()
            cut = status['ended']['cut_incall'] + status['ended']['cut_waiting']
            return {'bytes_per_call': (full - empty) / calls,
                    'peak_bytes_per_call': (peak - empty) / calls,
                    'newcomer_us': used / status['replaced'],
                    'replaced': status['replaced'], 'victims': cut,
                    'byes': crowd.byes - byes,
                    'within_1s_pct': 100 * status['cut_within_1s'] / max(1, cut)}


def many(strategy):
    """Memory a call with many up, and what a newcomer costs against few up."""
    few = full_server(FEW, strategy)
    many_up = full_server(MANY, strategy)
    return {'bytes_per_call': many_up['bytes_per_call'],
            'peak_bytes_per_call': many_up['peak_bytes_per_call'],
            'newcomer_us': many_up['newcomer_us'], 'newcomer_few_us': few['newcomer_us'],
            'ratio': many_up['newcomer_us'] / few['newcomer_us'],
            'victims': few['victims'] + many_up['victims'],
            'within_1s_pct': min(few['within_1s_pct'], many_up['within_1s_pct'])}


def victims():
    """How soon victims are gone."""
    found = full_server(FEW, 'tournament')
    return {key: found[key] for key in ('replaced', 'victims', 'byes', 'within_1s_pct')}


# ---- delay -------------------------------------------------------------------------

def dial(caller, callee, to):
    """Milliseconds from an INVITE to its 180; the callee is busy then."""
    call = Call(caller, to)
    began = time.perf_counter()
    call.invite()
    invite = callee.expect('INVITE', call_id=call.call_id)
    callee.reply(invite, 180, tag='t')
    call.expect(180)
    took = 1000 * (time.perf_counter() - began)
    callee.reply(invite, 486, tag='t')
    call.ack(call.expect(486))
    for endpoint in (caller, callee):
        endpoint.pump()
        endpoint.seen.clear()
        endpoint.waiting.clear()
    return took


def delay():
    """To a Kamailio directly and by way of seven-sip, in turn."""
    with Kamailio(limit=1000) as server, \
            SevenSip(server.address, 1000, forward='now', t_m='5s') as proxy, \
            Endpoint() as caller, Endpoint() as callee:
        server.register('bob', f'sip:bob@{callee.at}')
        times = {server.address: [], proxy.address: []}
        for _ in range(DELAY_CALLS):
            for to, took in times.items():
                took.append(dial(caller, callee, to))
    direct, through = (sorted(took) for took in times.values())
    return {'direct_p50_ms': percentile(direct, 0.5), 'direct_p99_ms': percentile(direct, 0.99),
            'p50_ms': percentile(through, 0.5), 'p99_ms': percentile(through, 0.99),
            'added_p50_ms': percentile(through, 0.5) - percentile(direct, 0.5),
            'added_p99_ms': percentile(through, 0.99) - percentile(direct, 0.99)}


CASES = {
    'cost-throughput': ('calls a CPU second, against Kamailio with dialogs', throughput),
    **{f'cost-many-{strategy}':
       (f'{MANY} calls up, {strategy}', functools.partial(many, strategy))
       for strategy in ('tournament', 'roulette', 'uniform')},
    'cost-delay': ('added post-dial delay, forward = now, not full', delay),
    'cost-victims': ('victims gone within a second of the decision', victims),
}
TARGETS = {
    'cost-throughput': ('ratio >= 2', lambda row: row['ratio'] >= 2),
    **{f'cost-many-{strategy}':
       ('<= 2 kB a call, ratio <= 2', lambda row: row['bytes_per_call'] <= 2048 and
        row['ratio'] <= 2) for strategy in ('tournament', 'roulette', 'uniform')},
    'cost-delay': ('added p99 <= 2 ms', lambda row: row['added_p99_ms'] <= 2),
    'cost-victims': ('>= 99.9 %', lambda row: row['within_1s_pct'] >= 99.9),
}
FIELDS = ['seven_per_cpu_s', 'kamailio_per_cpu_s', 'bytes_per_call', 'peak_bytes_per_call',
          'newcomer_us', 'newcomer_few_us', 'direct_p50_ms', 'direct_p99_ms', 'added_p50_ms',
          'added_p99_ms', 'p50_ms', 'p99_ms', 'ratio', 'replaced', 'victims', 'byes',
          'within_1s_pct']

"""What the SIP benchmark and its demonstration share: honest callers, attacking
pairs and callees, all of them SIPps, and reading what became of their calls.

Honest callers and attackers come as two independent Poisson streams. When each
calls and how long it means to talk is drawn here and given to SIPp in a file, so
that a seed is a load: servers that are compared are asked the same.
"""

import contextlib
import dataclasses
import math
import random
import re
import signal

from t.sip import Sipp

RATE = 4.75                  # new calls a second, of both kinds together
MEAN = 5.0                   # seconds of an honest call: t_M
LENGTHS = ('exponential', 'lognormal')
MU, SIGMA = 1.160, 0.9485    # of ln(seconds): mean 5 s
RING_MS = 300
FOREVER = 2147483647         # what SIPp waits for at most: a call never hung up
HONEST, ATTACKER = 'honest', 'attacker'
CALLEE = {HONEST: 'bob', ATTACKER: 'mallory'}


def length(rng, law, mean=MEAN):
    """How long an honest call means to last, in seconds."""
    if law == 'exponential':
        return rng.expovariate(1 / mean)
    return rng.lognormvariate(MU + math.log(mean / MEAN), SIGMA)


def load(seed, share, seconds, law='exponential', rate=RATE):
    """Honest callers and attackers, these a share of all new calls."""
    return schedule(seed, HONEST, rate * (1 - share), seconds, law) + \
        schedule(seed, ATTACKER, rate * share, seconds, law)


def schedule(seed, kind, rate, seconds, law='exponential', mean=MEAN):
    """A Poisson stream of callers: rows of SIPp's injection file."""
    rng = random.Random(f'{seed} {kind}')
    rows, at = [], 0.0
    while rate > 0:
        at += rng.expovariate(rate)
        if at >= seconds:
            break
        hold = FOREVER if kind == ATTACKER else max(1, round(1000 * length(rng, law, mean)))
        rows.append((round(1000 * at), hold, CALLEE[kind], f'{kind}{len(rows) + 1}'))
    return rows


@dataclasses.dataclass
class Record:
    """When what became of a call, in seconds since the callers were started."""
    number: int
    kind: str
    invite: float = None
    ringing: float = None
    answered: float = None
    complete: float = None
    cut: float = None
    refused: float = None


class Callee(Sipp):
    """Rings at once, answers after RING_MS, and waits for BYE. Its scenario knows how
    many Vias an INVITE has: three behind a proxy, two behind a user agent."""

    def __init__(self, seconds=600, ring_ms=RING_MS, scenario='callee', **how):
        super().__init__(scenario, words=['-d', ring_ms], seconds=seconds, **how)


class Callers(Sipp):
    """The callers of a schedule, calling an address."""

    def __init__(self, rows, to, rate=5000, domain='example.org', **how):
        self.rows = rows
        self.kinds = [re.match('[a-z]+', row[3])[0] for row in rows]
        super().__init__('caller', to, ['-key', 'domain', domain, '-m', len(rows),
                                        '-r', rate, '-l', max(1, len(rows))],
                         rows=rows, **how)

    def halt(self):
        """Stop calling, at once; the log is whole."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.wait(3)
        self.end(0.2)

    def calls(self):
        """What became of each call so far: a list of Records."""
        found = {}
        for line in self.log():
            with contextlib.suppress(ValueError, IndexError):
                word, number, clock = line.split()
                number = int(number)
                if number not in found:
                    found[number] = Record(number, self.kinds[number - 1])
                setattr(found[number], word, int(clock) / 1000)
        return list(found.values())

    def delays(self):
        """Milliseconds from INVITE to the first 180, of each honest call that had
        one, in order of size."""
        asked, found = {}, {}
        for line in self.read('messages').splitlines():
            match = SHORT.match(line)
            if not match:
                continue
            clock, way, call_id, text = match.groups()
            if way == 'S' and text.startswith('INVITE '):
                asked.setdefault(call_id, float(clock))
            elif way == 'R' and text.startswith('SIP/2.0 180 ') and call_id in asked:
                found.setdefault(call_id, 1000 * (float(clock) - asked[call_id]))
        return sorted(delay for call_id, delay in found.items()
                      if self.kinds[int(call_id.split('-')[0]) - 1] == HONEST)


# A line of SIPp's short messages: date and time, seconds, way, Call-ID, CSeq, text.
SHORT = re.compile(r'^\S+\t[\d:.]+\t(\d+\.\d+)\t([SR])\t(\S+)\t[^\t]*\t(.*)$')


@dataclasses.dataclass
class Outcome:
    """What became of some calls of one kind."""
    calls: int = 0
    complete: int = 0       # hung up by itself, or still talking
    cut: int = 0            # answered, and ended by somebody else
    unconnected: int = 0    # refused, or not answered

    def add(self, other):
        for field in dataclasses.fields(self):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def share(self):
        return self.complete / self.calls if self.calls else math.nan


def outcome(records, kind, began=0.0, ended=math.inf, seen_at=math.inf):
    """Of the calls of a kind made from began to ended: what had become of them at
    a time. (The published model measures so: from 0 to 40, at 40.)"""
    found = Outcome()
    for record in records:
        if record.kind != kind or record.invite is None or \
                not began <= record.invite < ended:
            continue
        found.calls += 1
        if record.answered is None or record.answered > seen_at:
            found.unconnected += 1
        elif record.cut is not None and record.cut <= seen_at:
            found.cut += 1
        else:
            found.complete += 1
    return found


def percentile(ordered, share):
    """Of figures in order of size; NaN if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered \
        else math.nan

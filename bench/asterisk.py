#!/usr/bin/env python3
"""The call attack on a back-to-back user agent: two Asterisks, one with seven-sip in
front of it and one without, and SIPp's callers. About 90 s.

    bench/asterisk.py
    bench/asterisk.py --attackers 67 --lengths lognormal --strategy uniform

Asterisk is 16, of Debian 11: debootstrap puts it into build/bullseye once (a minute,
500 MB; as root) and it runs from there as an ordinary program, with that tree's
libraries. No service starts and nothing is mounted. All of it goes on in a network
namespace that has a loopback and nothing else: Asterisk binds to 127.0.0.1, but its
resolver's sockets cannot be told to.

To an Asterisk one call is two dialogs with unrelated Call-IDs, and both pass seven-sip:
the caller's on the way in, the callee's as its outbound proxy. So this measures, too,
that a call is counted once, and that a victim leaves Asterisk with both of its dialogs.

Honest callers and attackers, who do not hang up while it lasts, come as two Poisson
streams, the same to both Asterisks. Then come no more, and what seven-sip counts is
compared with Asterisk's own count; then everybody hangs up, and nothing may be left.
"""

import argparse
import contextlib
import fcntl
import glob
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

# Keep bench/ off the search path, and leave no compiled files about.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from bench.callers import (ATTACKER, CALLEE, HONEST, MEAN, RATE, Callee,        # noqa: E402
                           Callers, load, outcome, percentile)
from bench.sip import age_only_bound                                   # noqa: E402
from t.httpd import die_with_parent                                     # noqa: E402
from t.sip import (BUILD, PLAIN, Program, SevenSip, SipError, free_sip_port,    # noqa: E402
                   options as ask)
from t.sipwire import Endpoint                                          # noqa: E402

PLACES = 24              # k; maxcalls of the Asterisk without seven-sip
ROOM = 6                 # more for calls that are just being ended for others
HORIZON = 40             # the published model's: calls from 0 to 40 s, seen at 40 s
COMING = 60              # so long new calls come, seconds
LETTING_GO = 68          # when those who still talk hang up
SETTLED = 15             # so long it may take until no call is left
TREE = os.path.join(BUILD, 'bullseye')
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
MIRROR = 'http://deb.debian.org/debian'


# ---- a loopback and nothing else -----------------------------------------------------

def go_alone():
    """This program again, in a network namespace of its own."""
    own = ['unshare', '--net', *([] if os.geteuid() == 0 else ['--map-root-user']), '--',
           sys.executable, os.path.abspath(__file__), *sys.argv[1:], '--alone']
    sys.stdout.flush()
    try:
        os.execvp('unshare', own)
    except OSError as error:
        sys.exit(f'unshare (package util-linux) could not be run: {error}')


def loopback_up():
    """A new network namespace has a loopback, and it is down (see netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        fcntl.ioctl(asker, SIOCSIFFLAGS, struct.pack('16sH14x', b'lo', IFF_UP))


# ---- an Asterisk -------------------------------------------------------------------

def have_tree(tree):
    """Asterisk as Debian 11 has it, in a directory of its own."""
    if os.path.exists(os.path.join(tree, 'usr/sbin/asterisk')):
        return
    if os.geteuid() != 0:
        sys.exit(f'There is no Asterisk in {tree}; run this as root once, to put it there.')
    with_apt = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
    if not shutil.which('debootstrap'):
        print('Installing debootstrap', flush=True)
        subprocess.run('apt-get update -qq && apt-get install -qq -y '
                       '--no-install-recommends debootstrap >/dev/null', shell=True,
                       check=True, env=with_apt, timeout=300)
    print(f'Putting Debian 11 and Asterisk into {tree}', flush=True)
    part = tree + '.part'
    shutil.rmtree(part, ignore_errors=True)
    try:
        # What it mounts and starts is gone when it ends, however that may be. Its
        # start-stop-daemon starts nothing.
        subprocess.run(['unshare', '--mount', '--pid', '--kill-child', 'debootstrap',
                        '--variant=minbase', '--include=asterisk', 'bullseye', part,
                        MIRROR], check=True, env=with_apt, timeout=900,
                       stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
        os.rename(part, tree)
    except (OSError, subprocess.SubprocessError) as error:
        log = os.path.join(part, 'debootstrap/debootstrap.log')
        with contextlib.suppress(OSError), open(log, errors='replace') as file:
            print(file.read()[-1500:], file=sys.stderr)
        sys.exit(f'Asterisk could not be had: {error}')
    finally:
        shutil.rmtree(part, ignore_errors=True)


ASTERISK_CONF = '''[directories]
astetcdir => {dir}
astmoddir => {tree}/usr/lib/asterisk/modules
astvarlibdir => {tree}/usr/share/asterisk
astdatadir => {tree}/usr/share/asterisk
astdbdir => {dir}
astkeydir => {dir}
astagidir => {dir}
astspooldir => {dir}
astrundir => {dir}
astlogdir => {dir}
[options]
maxcalls = {places}
entityid = 02:00:00:00:00:01
'''
MODULES = '''res_sorcery_astdb res_sorcery_config res_sorcery_memory res_pjproject
res_pjsip res_pjsip_authenticator_digest res_pjsip_session res_pjsip_pubsub
res_pjsip_sdp_rtp res_pjsip_endpoint_identifier_anonymous res_timing_timerfd
res_rtp_asterisk chan_pjsip app_dial pbx_config codec_ulaw bridge_simple
bridge_native_rtp'''.split()
EMPTY = 'acl ccss cdr cel features pjproject stasis udptl'.split()
PJSIP_CONF = '''[udp]
type = transport
protocol = udp
bind = 127.0.0.1:{port}

[phone](!)
type = endpoint
disallow = all
allow = ulaw
direct_media = no
media_address = 127.0.0.1
bind_rtp_to_media_address = yes

[anonymous](phone)
context = calls
'''
PHONE = '''
[{name}](phone)
aors = {name}
{outbound}
[{name}]
type = aor
contact = sip:{name}@{at}
'''
EXTENSIONS_CONF = '''[calls]
exten => _[a-z].,1,Dial(PJSIP/${EXTEN},60)
 same => n,Hangup(${HANGUPCAUSE})
'''


class Asterisk(Program):
    """A real Asterisk: whom a caller asks for by name, it calls on his behalf.

    tree      the Debian that it is in
    places    maxcalls
    callees   {name: host:port of the phone}
    port      where it listens
    outbound  (host, port): requests to callees go through it, or None
    """

    name = 'asterisk'

    def __init__(self, tree, places, callees, port, outbound=None):
        super().__init__()
        self.tree, self.port = os.path.realpath(tree), port
        hop = 'outbound_proxy = sip:%s:%d\\;lr\n' % outbound if outbound else ''
        first = 20000 if outbound else 24000
        self.write('asterisk.conf', ASTERISK_CONF.format(dir=self.dir, tree=self.tree,
                                                         places=places))
        self.write('modules.conf', '[modules]\nautoload = no\n' + ''.join(
            f'load = {name}.so\n' for name in MODULES))
        self.write('pjsip.conf', PJSIP_CONF.format(port=port) + ''.join(
            PHONE.format(name=name, at=at, outbound=hop) for name, at in callees.items()))
        self.write('rtp.conf', f'[general]\nrtpstart = {first}\nrtpend = {first + 3999}\n')
        self.write('extensions.conf', EXTENSIONS_CONF)
        for name in EMPTY:              # else it complains
            self.write(name + '.conf', '')
        self.write('logger.conf', '[logfiles]\nconsole = error,warning\n')
        self.spawn([*self.program(), '-f', '-n', '-C', self.path('asterisk.conf')])
        self._wait_ready()

    @property
    def address(self):
        return '127.0.0.1', self.port

    def program(self):
        """Asterisk with the libraries that it was made for."""
        found = glob.glob(f'{self.tree}/usr/lib/*-linux-gnu*/ld-2*.so')
        if not found:
            raise SipError(f'There is no dynamic linker in {self.tree}.')
        place = os.path.dirname(found[0])
        return [found[0], '--library-path', f'{place}:{self.tree}/usr/lib',
                f'{self.tree}/usr/sbin/asterisk']

    def _wait_ready(self, timeout=30):
        end = time.monotonic() + timeout
        with Endpoint() as asker:
            while time.monotonic() < end:
                if self.process.poll() is not None:
                    raise SipError(f'Asterisk ended:\n{self.output()[-2000:]}')
                asker.send(ask(asker, self.address), self.address)
                if asker.pump(0.2) and (asker.take(200) or asker.take(404)):
                    return
        raise SipError(f'Asterisk did not answer:\n{self.output()[-2000:]}')

    def command(self, text):
        """What its command line says to that."""
        done = subprocess.run([*self.program(), '-C', self.path('asterisk.conf'), '-rx',
                               text], capture_output=True, text=True, timeout=10,
                              check=False)
        return done.stdout + done.stderr

    def channels(self):
        """How many channels it has: two for each call that has reached its callee."""
        answer = self.command('core show channels count')
        found = re.search(r'(\d+) active channels?', answer)
        if not found:
            raise SipError(f'Asterisk does not count its channels: {answer[:300]}')
        return int(found[1])

    def version(self):
        found = re.search(r'Asterisk \S+', self.command('core show version'))
        return found[0] if found else 'Asterisk'


# ---- one side, and the attack ----------------------------------------------------------

class Side:
    """One of the two Asterisks, and who calls it."""

    def __init__(self, name, options, callees, defended):
        self.name, self.proxy, self.callers = name, None, None
        self.settled = self.left_after = None
        port = free_sip_port()
        if defended:
            self.proxy = SevenSip(('127.0.0.1', port), PLACES, strategy=options.strategy,
                                  t_m=f'{MEAN:g}s')
        self.server = Asterisk(options.tree, PLACES + (ROOM if defended else 0), callees,
                               port, self.proxy.address if defended else None)
        self.address = (self.proxy or self.server).address

    def begin(self, rows):
        self.callers = Callers(rows, self.address)

    def check(self):
        self.callers.check()
        for program in (self.proxy, self.server):
            if program and program.process.poll() is not None:
                raise SipError(f'{program.name} ended:\n{program.output()[-2000:]}')

    def counted(self):
        """Calls up and waiting as seven-sip has them, or as the callers do."""
        if self.proxy:
            status = self.proxy.status()
            return status['incall'] + status['waiting'] + status['ending']
        return sum(record.answered is not None and record.complete is None and
                   record.cut is None for record in self.callers.calls())

    def stop(self):
        for program in (self.callers, self.proxy, self.server):
            if program:
                program.stop(timeout=2)


def rows_of(options):
    """The callers; whoever would still talk at LETTING_GO hangs up then."""
    rows = load(f'{options.lengths} {options.attackers} {options.seed}',
                options.attackers / 100, COMING, options.lengths, options.rate)
    return [(at, min(hold, 1000 * LETTING_GO - at), callee, who)
            for at, hold, callee, who in rows]


def attacked(sides, options):
    rows = rows_of(options)
    for side in sides:
        side.begin(rows)
    began = time.monotonic()
    follow(sides, began, COMING + 1)
    for side in sides:
        side.settled = agreed(side, began + LETTING_GO - 1)
    follow(sides, began, LETTING_GO)
    end = time.monotonic() + SETTLED
    while time.monotonic() < end:
        for side in sides:
            if side.left_after is None and side.server.channels() == 0 and \
                    side.counted() == 0:
                side.left_after = time.monotonic() - began - LETTING_GO
        if all(side.left_after is not None for side in sides):
            break
        time.sleep(0.2)


def follow(sides, began, until):
    """Watch and tell, to so many seconds after the beginning."""
    told = time.monotonic()
    while time.monotonic() < began + until:
        for side in sides:
            side.check()
        if time.monotonic() > told + 5:
            told = time.monotonic()
            print(f'{told - began:>3.0f} s  ' + ',  '.join(
                f'{side.name}: {side.counted()} calls, {side.server.channels()} channels'
                for side in sides), flush=True)
        time.sleep(0.3)


def agreed(side, end):
    """What both count when nobody is just calling: (calls, channels), as soon as these
    are twice those, or at last."""
    while True:
        calls, channels = side.counted(), side.server.channels()
        if 2 * calls == channels == 2 * side.counted() or time.monotonic() > end:
            return calls, channels
        time.sleep(0.1)


# ---- printing ----------------------------------------------------------------------------

def print_table(sides, options):
    found = [side.callers.calls() for side in sides]
    model = [outcome(records, HONEST, 0, HORIZON, HORIZON) for records in found]
    every = [outcome(records, HONEST) for records in found]
    attackers = [outcome(records, ATTACKER) for records in found]
    delays = [side.callers.delays() for side in sides]
    rows = [('', [side.name for side in sides])]
    for title, some in ((f'honest calls of the first {HORIZON} s, then', model),
                        (f'honest calls of all {COMING} s', every)):
        rows += [(title, [one.calls for one in some]),
                 ('  complete', [one.complete for one in some]),
                 ('  cut short', [one.cut for one in some]),
                 ('  never connected', [one.unconnected for one in some]),
                 ('  complete, percent', [f'{100 * one.share:.1f}' for one in some])]
    rows += [("attackers' calls", [one.calls for one in attackers]),
             ('  cut', [one.cut for one in attackers]),
             ('  never connected', [one.unconnected for one in attackers]),
             ('post-dial delay, p50, ms', [f'{percentile(some, 0.5):.1f}' for some in delays]),
             ('post-dial delay, p99, ms', [f'{percentile(some, 0.99):.1f}' for some in delays])]
    print()
    for name, cells in rows:
        print(f'  {name:<36}' + ''.join(f'{cell:>18}' for cell in cells))
    bound = age_only_bound(options.lengths, options.attackers / 100)
    if options.rate == RATE:
        print(f'  the most by age alone, percent{100 * bound:>24.1f}')
    print()


def print_checks(side):
    """What only the side behind seven-sip has. True if all is well."""
    status, (calls, channels) = side.proxy.status(), side.settled
    cuts, waiting = status['ended']['cut_incall'], status['ended']['cut_waiting']
    print(f'victims: {cuts} in progress, {waiting} that still rang; the server confirmed '
          f'{status["cut_within_1s"]} of these ends within 1 s, and refused '
          f'{status["cut_refused"]}.\n'
          f'newcomers refused by seven-sip: {status["refused"]}; by Asterisk, and other '
          f'failures: {status["ended"]["failed"]}; malformed messages: {status["malformed"]}.')
    once, gone = 2 * calls == channels, side.left_after is not None
    print(f'calls counted once: {"yes" if once else "NO"}: seven-sip has {calls}, Asterisk '
          f'{channels} channels.')
    if gone:
        print(f'nothing left {side.left_after:.1f} s after everybody hung up: yes')
    else:
        print(f'nothing left {SETTLED} s after everybody hung up: NO: seven-sip has '
              f'{side.counted()} calls, Asterisk {side.server.channels()} channels.\n'
              + side.server.command('core show channels concise'))
    return once and gone


def print_errors(side):
    wrong = [line for line in side.server.output().partition('Ready')[2].splitlines()
             if ('ERROR' in line or 'WARNING' in line) and 'call limit' not in line]
    if wrong:
        print(f'{side.name}: Asterisk complains {len(wrong)} times, last: {wrong[-1][:200]}')


def run(options):
    sides, callees = [], {}
    try:
        callees = {CALLEE[kind]: Callee(trace=False, scenario='callee_b2bua')
                   for kind in (HONEST, ATTACKER)}
        at = {name: callee.at for name, callee in callees.items()}
        sides.append(Side('with seven-sip', options, at, True))
        sides.append(Side('without', options, at, False))
        print(f'{sides[0].server.version()}: {PLACES} calls; {options.rate:g} new calls a '
              f'second to each, {options.attackers:g} % of them of attackers;\n{options.lengths} '
              f'lengths of {MEAN:g} s on average; P2: {options.strategy}.', flush=True)
        attacked(sides, options)
        for side in sides:
            side.callers.halt()
        print_table(sides, options)
        well = print_checks(sides[0])
        for side in sides:
            print_errors(side)
        return well
    finally:
        for program in (*sides, *callees.values()):
            program.stop()


def read_options():
    parser = argparse.ArgumentParser(
        description='Show an Asterisk with seven-sip beside one without, attacked.')
    parser.add_argument('--rate', type=float, default=RATE,
                        help=f'new calls a second, in all, to each ({RATE:g})')
    parser.add_argument('--attackers', type=float, default=50,
                        help='percent of the new calls (50)')
    parser.add_argument('--strategy', default='tournament',
                        choices=('uniform', 'roulette', 'tournament'))
    parser.add_argument('--lengths', default='exponential',
                        choices=('exponential', 'lognormal'))
    parser.add_argument('--seed', type=int, default=1, help='another load (1)')
    parser.add_argument('--tree', default=TREE, help=f'where Asterisk is, or goes ({TREE})')
    parser.add_argument('--remove-tree', action='store_true',
                        help='remove it in the end, and do not keep it for the next run')
    parser.add_argument('--alone', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.path.realpath(options.tree) == '/':
        parser.error('--tree must be a directory of its own.')
    if not 0.1 <= options.rate <= 50:
        parser.error('--rate must be from 0.1 to 50.')
    if not 0 <= options.attackers <= 100:
        parser.error('--attackers must be from 0 to 100.')
    return options


def main():
    options = read_options()
    if not os.path.exists(PLAIN):
        sys.exit(f'There is no {PLAIN}; run make sip first.')
    if not options.alone:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            have_tree(options.tree)
        except KeyboardInterrupt:
            sys.exit('\nStopped.')
        go_alone()
    try:
        loopback_up()
        well = run(options)
    except KeyboardInterrupt:
        sys.exit('\nStopped.')
    except (SipError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f'\nThe benchmark could not go on: {error}')
    finally:
        if options.remove_tree:
            shutil.rmtree(options.tree)
    sys.exit(0 if well else 1)


if __name__ == '__main__':
    main()

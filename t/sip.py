"""Throwaway SIP servers for tests and benchmarks: Kamailio, seven-sip and SIPp,
each with its own temporary directory, free loopback ports and process group.

    with Kamailio(limit=24) as server, \\
            SevenSip(server.address, calls=24) as proxy:
        ... proxy.address ...

Nothing is left running or lying about: not after the `with` block, nor after an
exception, Ctrl-C or SIGTERM. See t/sipwire.py for endpoints that send and expect
exact messages.
"""

import atexit
import contextlib
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from t.httpd import TOP, claim_port, die_with_parent, free_port, install_cleanup, reap_group
from t.sipwire import Endpoint, Message, build, unique

KAMAILIO = '/usr/sbin/kamailio'
SIPP = '/usr/bin/sipp'
BUILD = os.path.join(TOP, os.environ.get('B', 'build'))     # make's B
PLAIN = os.path.join(BUILD, 'seven-sip')
ASAN = os.path.join(BUILD, 'asan', 'seven-sip')
SCENARIOS = os.path.join(TOP, 'bench', 'sip')
PASSWORD = 'tell nobody'

_running = set()


class SipError(Exception):
    """A SIP server could not be started or did not do what it was told to."""


def _stop_all():
    for server in list(_running):
        server.stop(timeout=0.5)


def free_sip_port(host='127.0.0.1'):
    """A port that is free for UDP and TCP."""
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    for _ in range(100):
        port = free_port()
        with socket.socket(family, socket.SOCK_DGRAM) as udp, \
                socket.socket(family, socket.SOCK_STREAM) as tcp:
            try:
                udp.bind((host, port))
                tcp.bind((host, port))
                return port
            except OSError:
                continue
    raise SipError(f'no free port found on {host}')


def cpu_seconds(pids):
    """Processor time that these processes have used, user and system."""
    ticks = 0
    for pid in pids:
        try:
            with open(f'/proc/{pid}/stat') as file:
                fields = file.read().rsplit(')', 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


class Program:
    """A program in a temporary directory, in a process group of its own."""

    name = 'program'
    user = None           # whom it runs as, if we are root

    def __init__(self):
        install_cleanup()
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)
        self.dir = tempfile.mkdtemp(prefix=f'seven-{self.name}-')
        os.chmod(self.dir, 0o755)
        self.process = None
        _running.add(self)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def write(self, name, text):
        with open(self.path(name), 'w') as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        try:
            with open(self.path(name), errors='replace') as file:
                return file.read()
        except OSError:
            return ''

    def spawn(self, command, env=None):
        with open(self.path('output.log'), 'ab') as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.dir, start_new_session=True, preexec_fn=die_with_parent,
                user=self.user if os.geteuid() == 0 else None,
                env=dict(os.environ, **(env or {})))

    def output(self):
        """What it wrote to its terminal."""
        return self.read('output.log')

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def pids(self):
        """Its processes: all of its group."""
        found = []
        for name in os.listdir('/proc'):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.getpgid(int(name)) == self.pid:
                        found.append(int(name))
        return found

    def cpu(self):
        return cpu_seconds(self.pids())

    def end(self, timeout=5, number=signal.SIGTERM):
        """End its processes; its files stay."""
        if not self.process:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        reap_group(self.process.pid)
        self.process = None

    def stop(self, timeout=5):
        self.end(timeout)
        shutil.rmtree(self.dir, ignore_errors=True)
        _running.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


# ---- Kamailio ----------------------------------------------------------------

def module_path():
    """Where this machine's Kamailio has its modules."""
    found = glob.glob('/usr/lib/*/kamailio/modules')
    if not found or not os.path.exists(KAMAILIO):
        raise SipError('Kamailio is not installed (package kamailio).')
    return found[0] + '/'


HEAD = '''#!KAMAILIO
debug=0
log_stderror=yes
memdbg=5
memlog=5
children={children}
tcp_children=1
auto_aliases=no
dns=no
rev_dns=no
use_dns_cache=no
{listen}
mpath="{modules}"
'''
MODULES = 'tm tmx sl rr maxfwd pv siputils textops usrloc registrar'.split()
PARAMETERS = '''
modparam("rr", "enable_full_lr", 1)
modparam("rr", "append_fromtag", 1)
modparam("usrloc", "db_mode", 0)
'''
DIALOG = 'modparam("dialog", "db_mode", 0)\n'
BY_TAGS = 'modparam("dialog", "dlg_match_mode", 1)\n'
PROFILE = 'modparam("dialog", "profiles_with_value", "calls")\n'
ROUTE = '''
request_route {{
    if (!mf_process_maxfwd_header("10")) {{ sl_send_reply("483", "Too Many Hops"); exit; }}
    if (is_method("CANCEL")) {{ if (t_check_trans()) t_relay(); exit; }}
    if (!is_method("ACK")) {{
        if (t_precheck_trans()) {{ t_check_trans(); exit; }}
        t_check_trans();
    }}
    if (has_totag()) {{
        if (loose_route()) {{ t_relay(); exit; }}
        if (is_method("ACK")) {{ if (t_check_trans()) t_relay(); exit; }}
        sl_send_reply("404", "Not here");
        exit;
    }}
    if (is_method("REGISTER")) {{ {register} save("location"); exit; }}
    if (is_method("OPTIONS") && $rU == $null) {{ sl_send_reply("200", "OK"); exit; }}
    if (is_method("INVITE")) {{
        {invite}
        record_route();
    }}
    {locate}
    {outbound}
    t_relay();
}}
'''
LOCATE = 'if (!lookup("location")) { sl_send_reply("404", "Not Found"); exit; }'
CHALLENGE = '''
        if (!pv_{kind}_authenticate("{realm}", "{password}", "0")) {{
            {kind}_challenge("{realm}", "0");
            exit;
        }}
'''
LIMIT = '''
        {limits}
        get_profile_size("calls", "$Rp", "$var(up)");
        if ($var(up) >= $var(limit)) {{ sl_send_reply("503", "Full"); exit; }}
        dlg_manage();
        set_dlg_profile("calls", "$Rp");
'''


class Kamailio(Program):
    """A real Kamailio: registrar and record-routing proxy.

    ports     how many; each has its own places, as if it were a server of its own
    limit     calls at once on each port (a number, or one for each port), or None;
              who comes then is told 503
    dialog    follow dialogs (implied by a limit)
    auth      challenge REGISTER (401) and INVITE (407); the password is PASSWORD
    outbound  (host, port, transport): requests to callees go through it
    relay     (host, port): every callee is there; nobody registers
    by_tags   know a dialog by its tags, too, and not only by what it wrote into its route
    """

    name = 'kamailio'

    def __init__(self, ports=1, limit=None, dialog=False, auth=False, outbound=None,
                 relay=None, by_tags=False, children=2, memory=64):
        super().__init__()
        self.relay, self.by_tags = relay, by_tags
        self.limit, self.dialog, self.auth = limit, dialog or limit is not None, auth
        self.outbound, self.children, self.memory = outbound, children, memory
        for attempt in range(4):
            self.ports = [free_sip_port() for _ in range(ports)]
            self._start()
            try:
                self._wait_ready()
                return
            except SipError:
                self.end(0.5)
                if attempt == 3 or 'Address already in use' not in self.output():
                    raise

    @property
    def port(self):
        return self.ports[0]

    @property
    def address(self):
        return '127.0.0.1', self.port

    def config(self):
        modules = MODULES + (['dialog'] if self.dialog else []) + \
            (['auth'] if self.auth else [])
        listen = '\n'.join(f'listen={kind}:127.0.0.1:{port}'
                           for port in self.ports for kind in ('udp', 'tcp'))
        challenge = {kind: CHALLENGE.format(kind=kind, realm='example.org',
                                            password=PASSWORD) if self.auth else ''
                     for kind in ('www', 'proxy')}
        invite = challenge['proxy']
        if invite:
            invite += '        consume_credentials();\n'
        if self.limit is not None:
            limits = self.limit if isinstance(self.limit, (list, tuple)) else \
                [self.limit] * len(self.ports)
            invite += LIMIT.format(limits=' '.join(
                f'if ($Rp == {port}) $var(limit) = {limit};'
                for port, limit in zip(self.ports, limits)))
        elif self.dialog:
            invite += 'dlg_manage();\n'
        # Out by the port it came in by, not by the one that the phone registered at.
        outbound = '$fs = "udp:127.0.0.1:" + $Rp;' if len(self.ports) > 1 else ''
        if self.outbound:
            outbound = '$du = "sip:%s:%d;transport=%s";' % self.outbound
        locate = LOCATE if self.relay is None else '$du = "sip:%s:%d";' % self.relay
        return (HEAD.format(children=self.children, listen=listen,
                            modules=module_path()) +
                ''.join(f'loadmodule "{name}.so"\n' for name in modules) +
                PARAMETERS + (DIALOG if self.dialog else '') +
                (BY_TAGS if self.dialog and self.by_tags else '') +
                (PROFILE if self.limit is not None else '') +
                ROUTE.format(register=challenge['www'], invite=invite, locate=locate,
                             outbound=outbound))

    def _start(self):
        self.write('kamailio.cfg', self.config())
        self.spawn([KAMAILIO, '-f', self.path('kamailio.cfg'), '-DD', '-E',
                    '-m', str(self.memory), '-M', '16', '-Y', self.dir,
                    '-P', self.path('pid')])

    def _wait_ready(self, timeout=20):
        end = time.monotonic() + timeout
        with Endpoint() as asker:
            while time.monotonic() < end:
                if self.process.poll() is not None:
                    raise SipError(f'Kamailio ended:\n{self.output()[-2000:]}')
                asker.send(options(asker, self.address), self.address)
                if asker.pump(0.1) and asker.take(200):
                    return
        raise SipError(f'Kamailio did not answer:\n{self.output()[-2000:]}')

    def register(self, user, contact):
        """Bind an address of record to a contact URI (without authentication)."""
        with Endpoint() as phone:
            register(phone, self.address, user, contact)


def options(endpoint, address):
    host, port = address
    return build(f'OPTIONS sip:{host}:{port} SIP/2.0', [
        ('Via', endpoint.via()), ('Max-Forwards', '70'),
        ('From', f'<sip:t@{host}>;tag={unique()}'), ('To', f'<sip:{host}:{port}>'),
        ('Call-ID', unique('o')), ('CSeq', '1 OPTIONS')])


def register(endpoint, to, user, contact, expires=3600, headers=()):
    """REGISTER and wait for the 200."""
    data = build('REGISTER sip:example.org SIP/2.0', [
        ('Via', endpoint.via()), ('Max-Forwards', '70'),
        ('From', f'<sip:{user}@example.org>;tag={unique()}'),
        ('To', f'<sip:{user}@example.org>'), ('Call-ID', unique('r')),
        ('CSeq', '1 REGISTER'), ('Contact', f'<{contact}>'),
        ('Expires', str(expires)), *headers])
    endpoint.send(data, to)
    return endpoint.expect((200, 'REGISTER'), call_id=Message(data).call_id)


def digest(challenge, method, uri, user):
    """The credentials that answer a Digest challenge (RFC 2617, without qop)."""
    words = dict(re.findall(r'(\w+)="([^"]*)"', challenge))

    def md5(*parts):
        return hashlib.md5(':'.join(parts).encode()).hexdigest()
    response = md5(md5(user, words['realm'], PASSWORD), words['nonce'], md5(method, uri))
    return (f'Digest username="{user}", realm="{words["realm"]}", '
            f'nonce="{words["nonce"]}", uri="{uri}", response="{response}"')


# ---- seven-sip ---------------------------------------------------------------

def uri_address(address, transport='udp'):
    """transport:host:port as in the configuration."""
    host, port = address
    return f'{transport}:[{host}]:{port}' if ':' in host else f'{transport}:{host}:{port}'


class SevenSip(Program):
    """A seven-sip in front of a server.

    server     (host, port) of the protected server
    transport  how it is reached
    calls      k
    hosts      addresses to listen on, each for UDP and TCP, at one port
    keys       any other key; a list repeats it; None leaves it out
    asan       run the sanitized build if there is one
    """

    name = 'sip'

    def __init__(self, server, calls=24, transport='udp', hosts=('127.0.0.1',),
                 asan=False, start=True, lines=(), **keys):
        super().__init__()
        self.quiet = not asan       # the log is for tests
        self.server, self.calls, self.transport = server, calls, transport
        self.hosts, self.lines = hosts, list(lines)
        self.keys = {'control': self.path('control'), **keys}
        self.program = ASAN if asan and os.path.exists(ASAN) else PLAIN
        if not start:
            self.choose_port()
            self.configure()
            return
        for attempt in range(4):
            self.choose_port()
            self.configure()
            try:
                self.start()
                return
            except SipError:
                if attempt == 3 or 'in use' not in self.output():
                    raise

    def choose_port(self):
        self.port = free_sip_port(self.hosts[0])

    @property
    def address(self):
        return self.hosts[0], self.port

    def configure(self, **keys):
        """Write the configuration, with changes; takes effect at start() or
        reload()."""
        self.keys.update(keys)
        lines = [f'listen = {uri_address((host, self.port), kind)}'
                 for host in self.hosts for kind in ('udp', 'tcp')]
        lines += [f'server = {uri_address(self.server, self.transport)}',
                  f'calls = {self.calls}']
        for key, value in self.keys.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is not None:
                    lines.append(f'{key} = {one}')
        return self.write('sip.conf', '\n'.join(lines + self.lines) + '\n')

    def start(self):
        program = self.program
        if self.user:            # who need not be able to reach where it was built
            program = shutil.copy(program, self.path('seven-sip'))
        self.spawn([program, '-f', self.path('sip.conf')],
                   {'ASAN_OPTIONS': 'detect_leaks=1:abort_on_error=0',
                    'UBSAN_OPTIONS': 'print_stacktrace=1',
                    # sofia-sip does not free OpenSSL's context.
                    'LSAN_OPTIONS': 'print_suppressions=0:suppressions=' + self.write(
                        'leaks', 'leak:libcrypto\nleak:libssl\n')})
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if self.process.poll() is not None:
                status = self.process.returncode
                self.end(0.1)
                raise SipError(f'seven-sip ended with status {status}:\n'
                               f'{self.output()[-3000:]}')
            with contextlib.suppress(OSError, ValueError):
                self.status(timeout=2)
                return
            time.sleep(0.02)
        raise SipError(f'seven-sip did not answer:\n{self.output()[-3000:]}')

    def control(self, word, timeout=5):
        """Ask the control socket."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout)
            link.connect(self.keys['control'])
            link.sendall(word.encode() + b'\n')
            data = b''
            while True:
                more = link.recv(65536)
                if not more:
                    return data.decode()
                data += more

    def status(self, timeout=5):
        """Its figures, as the control socket's JSON has them."""
        return json.loads(self.control('status json', timeout))

    def kill(self):
        """As a crash would end it."""
        self.end(5, signal.SIGKILL)

    def reload(self):
        os.kill(self.pid, signal.SIGHUP)

    def leave(self, timeout=10):
        """SIGTERM until it has ended: once lets its calls go on, twice does not."""
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)

    def stop(self, timeout=5):
        text = self.output()
        if text and self.quiet is False:
            print(f'---- log of seven-sip on port {self.port}:')
            print(text[-6000:])
            self.quiet = True
        if self.process is not None:
            self.leave(timeout)
        super().stop(timeout)


# ---- SIPp --------------------------------------------------------------------

class Sipp(Program):
    """A SIPp on a scenario of bench/sip/.

    to      (host, port) that its requests go to
    words   more of its command line
    rows    what it is to inject, a row a call
    trace   keep a line on each message in the file `messages`

    Its <log> lines are log(); the file `errors` has what it did not expect.
    """

    name = 'sipp'

    def __init__(self, scenario, to=None, words=(), seconds=600, transport='u1',
                 port=None, rows=None, trace=True):
        super().__init__()
        self.port = port or free_sip_port()
        command = [SIPP, '-sf', os.path.join(SCENARIOS, scenario + '.xml'),
                   '-i', '127.0.0.1', '-bind_local', '-p', str(self.port), '-nostdin',
                   # Of these it tries only some, and the same ones as every other.
                   '-ci', '127.0.0.1', '-cp', str(free_sip_port()),
                   '-mp', str(media_port()),
                   '-t', transport, '-timeout', f'{seconds}s', '-timer_resol', '1',
                   '-trace_logs', '-log_file', self.path('log'),
                   '-trace_err', '-error_file', self.path('errors'),
                   '-buff_size', '1048576', '-skip_rlimit']
        if trace:
            command += ['-trace_shortmsg', '-shortmessage_file', self.path('messages')]
        if to:
            command.append('%s:%d' % to)
        if rows is not None:
            command += ['-inf', self.write('rows.csv', injection(rows))]
        self.spawn([*command, *map(str, words)])

    @property
    def at(self):
        return f'127.0.0.1:{self.port}'

    def log(self):
        return self.read('log').splitlines()

    def check(self):
        """It goes on, or has done all that it was to do."""
        if self.process is not None and self.process.poll() not in (None, 0, 1, 99):
            raise SipError(f'SIPp ended with status {self.process.returncode}:\n'
                           f'{self.output()[-1500:]}{self.read("errors")[-500:]}')

    def wait(self, timeout):
        """Wait for its own end. True if it came."""
        try:
            self.process.wait(timeout)
            return True
        except subprocess.TimeoutExpired:
            return False


def media_port():
    """The first of four UDP ports in a row that are free, below those that others are
    given: SIPp binds them though no media passes, and gives up if it cannot."""
    for _ in range(200):
        port = random.SystemRandom().randrange(2000, 11000, 4)
        with contextlib.ExitStack() as held:
            try:
                for at in range(4):
                    probe = held.enter_context(socket.socket(socket.AF_INET,
                                                             socket.SOCK_DGRAM))
                    probe.bind(('127.0.0.1', port + at))
            except OSError:
                continue
        if claim_port(port):
            return port
    raise SipError('no free ports found for media')


def injection(lines):
    """The text of a SIPp injection file, from rows of fields."""
    return 'SEQUENTIAL\n' + ''.join(';'.join(map(str, row)) + ';\n' for row in lines)


def main():
    """Start a Kamailio and ask it something."""
    with Kamailio(ports=2, limit=3, auth=True) as server:
        print('Kamailio on', server.ports, 'processes', len(server.pids()),
              'CPU', server.cpu())


if __name__ == '__main__':
    sys.exit(main())

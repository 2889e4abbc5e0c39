"""seven-sip from outside: its command line, what it says of a wrong configuration,
its control socket and metrics, reading the configuration again, and signals."""

import json
import os
import pwd
import re
import signal
import socket
import stat
import subprocess
import time
import urllib.error
import urllib.request

from t.httpd import TOP, free_port
from t.it_common import cases, check, poll
from t.sip import PLAIN, SevenSip, SipError, free_sip_port
from t.sip_common import Setup, clean

NOBODY = ('127.0.0.1', 5099)       # a server that is not there
LIMIT = 20                         # seconds for a command line


def places(proxy):
    """k, as its status has it; None if it cannot be asked now."""
    try:
        return proxy.status()['places']
    except (OSError, ValueError):
        return None


def run(*words):
    """Run seven-sip to its end: (exit status, standard output, standard error)."""
    done = subprocess.run([PLAIN, *words], capture_output=True, text=True, timeout=LIMIT,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


class Idle(SevenSip):
    """A seven-sip that no calls come to; judged when its block ends."""

    def __init__(self, **how):
        super().__init__(NOBODY, asan=True, **how)

    def __exit__(self, kind, *_):
        clean(self, kind is None)


def file_of(proxy, name, *lines):
    return proxy.write(name, ''.join(line + '\n' for line in lines))


def complaint(words, place, *said):
    """It ends with status 2 and one line, which has the place and what else is
    said; nothing on standard output."""
    status, out, err = run(*words)
    check(status == 2 and out == '', words, 'ends with', status, out, err)
    check(len(err.splitlines()) == 1 and err.startswith(f'seven-sip: {place}'), err)
    for word in said:
        check(word in err, err, '- it does not say', word)


# ---- the command line --------------------------------------------------------------

def test_help_and_version():
    status, out, err = run('-h')
    check(status == 0 and out.startswith('usage: seven-sip ') and err == '', out, err)
    status, out, err = run('-V')
    check(status == 0 and re.fullmatch(r'seven-sip \d+\.\d+\n', out) and err == '', out)


def test_wrong_command_lines():
    for words in (['-x'], ['-f'], ['word'], ['-t', 'word'], ['--help']):
        status, out, err = run(*words)
        check(status == 2 and out == '' and 'usage: seven-sip' in err, words, status, err)


WRONG = {'key': ('colour = red', 'colour'), 'value': ('calls = many', 'calls'),
         'twice': ('refuse = 503\nrefuse = 600', 'refuse'),
         'together': ('strategy = tournament 25', 'strategy'),
         'address': ('listen = udp:127.0.0.1.5:5060', 'listen'),
         'name': ('listen = udp:localhost:5060', 'listen'),
         'elsewhere': ('listen = udp:192.0.2.1:5060', 'listen'),
         'metrics': ('metrics = 192.0.2.1:9907', 'metrics'),
         'exempt': ('exempt = 192.0.2.1/24', 'exempt'),
         'tls': ('listen = tls:127.0.0.1:5061', 'tls_certificates'),
         'certificates': ('tls_certificates = /nonexistent', 'agent.pem')}


@cases(*WRONG)
def test_wrong_configurations(name):
    """Tested or started, it is the same line, and no port is left open."""
    wrong, key = WRONG[name]
    with Idle(start=False) as proxy:
        file = file_of(proxy, 'wrong.conf', '# a comment',
                       f'server = udp:127.0.0.1:{proxy.port}',
                       *([] if key == 'calls' else ['calls = 24']), *wrong.split('\n'))
        line = len(open(file).read().splitlines())
        for words in (['-f', file], ['-t', '-f', file]):
            complaint(words, f'{file}:{line}: ', key)


def test_files_that_cannot_be_read():
    with Idle(start=False) as proxy:
        complaint(['-f', proxy.path('none')], proxy.path('none'), 'No such file')
        complaint(['-f', proxy.dir], proxy.dir, 'directory')
        file = file_of(proxy, 'no\n\x1b[31m', 'calls = 0')
        complaint(['-f', file], proxy.path('no') + '\\x0A\\x1B[31m:1: ', 'calls')


def test_a_right_configuration():
    with Idle(start=False) as proxy:
        file = proxy.configure()
        status, out, err = run('-t', '-f', file)
        check((status, out, err) == (0, f'{file} is right\n', ''), out, err)


def test_addresses_in_use():
    """Of each transport; testing does not mind, as it may be this program that has
    them."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with Idle(start=False) as proxy, socket.socket(socket.AF_INET, kind) as taken:
            taken.bind(('127.0.0.1', proxy.port))
            if kind == socket.SOCK_STREAM:
                taken.listen()
            file = proxy.path('sip.conf')
            line = 1 if kind == socket.SOCK_DGRAM else 2
            complaint(['-f', file], f'{file}:{line}: listen = ', 'in use', str(proxy.port))
            check(run('-t', '-f', file)[0] == 0)
            check(not os.path.exists(proxy.keys['control']))


def test_metrics_address_in_use():
    with Idle(start=False) as proxy, socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        file = proxy.configure(metrics=f'127.0.0.1:{taken.getsockname()[1]}')
        complaint(['-f', file], f'{file}:6: metrics = 127.0.0.1:', 'in use')


def test_stores_that_cannot_be_used():
    with Idle(start=False) as proxy:
        file = proxy.configure(store=proxy.path('calls'))
        line = open(file).read().splitlines().index(f'store = {proxy.path("calls")}') + 1
        proxy.write('calls', 'something else\n')
        complaint(['-f', file], f'{file}:{line}: the store ', 'is not a store')
        check(proxy.read('calls') == 'something else\n', 'it was written to')
        os.unlink(proxy.path('calls'))
        proxy.start()
        with Idle(start=False, store=proxy.path('calls')) as other:
            complaint(['-f', other.path('sip.conf')], other.path('sip.conf:'), 'the store',
                      'in use by another process')
        proxy.kill()
        size = os.path.getsize(proxy.path('calls'))
        os.truncate(proxy.path('calls'), size // 2)
        complaint(['-f', file], f'{file}:{line}: the store ', 'is damaged')


def test_certificates():
    """A key and certificate that TLS could not be spoken with are refused."""
    with Idle(start=False) as proxy:
        file = file_of(proxy, 'tls.conf', f'listen = udp:127.0.0.1:{proxy.port}',
                       f'listen = tls:127.0.0.1:{free_sip_port()}',
                       'server = udp:127.0.0.1:5099', 'calls = 24',
                       f'tls_certificates = {proxy.dir}')
        made = {}
        for name in ('a', 'b', 'locked'):
            how = ['-passout', 'pass:x'] if name == 'locked' else ['-nodes']
            subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-subj',
                            '/CN=127.0.0.1', '-keyout', proxy.path('key'), '-out',
                            proxy.path('certificate'), *how], check=True,
                           capture_output=True, timeout=LIMIT)
            made[name] = proxy.read('key'), proxy.read('certificate')
        place = f'{file}:5: tls_certificates: '
        complaint(['-t', '-f', file], place, 'agent.pem cannot be read')
        for text, words in (('garbage', 'no certificate'), (made['a'][0], 'no certificate'),
                            (made['a'][1], 'no key'),
                            (made['a'][0] + made['b'][1], 'agent.pem has '),
                            (''.join(made['locked']), 'without a passphrase')):
            proxy.write('agent.pem', text)
            complaint(['-t', '-f', file], place, words)
        proxy.write('agent.pem', ''.join(made['a']))
        proxy.write('cafile.pem', 'garbage')
        complaint(['-t', '-f', file], place, 'cafile.pem')
        proxy.write('cafile.pem', made['b'][1])
        status, out, err = run('-t', '-f', file)
        check(status == 0, err)


def test_an_ordinary_user():
    if os.geteuid() != 0:
        return
    with Idle() as proxy:
        poll(proxy.output, lambda text: 'runs as root' in text)
    nobody = pwd.getpwnam('nobody')
    with Idle(start=False) as proxy:
        proxy.user = 'nobody'
        os.chown(proxy.dir, nobody.pw_uid, nobody.pw_gid)
        proxy.configure(store=proxy.path('calls'))
        proxy.start()
        check('root' not in proxy.output(), proxy.output())
        for name in ('calls', 'control'):
            status = os.stat(proxy.path(name))
            check(stat.S_IMODE(status.st_mode) == 0o600 and
                  status.st_uid == nobody.pw_uid, name, status)


# ---- what is shipped -----------------------------------------------------------------

def keys():
    """All keys that the program knows."""
    with open(os.path.join(TOP, 'sip_ext', 'config.c')) as file:
        found = re.findall(r'(?m)^    \{"(\w+)", set_', file.read())
    check(len(found) > 15, found)
    return set(found)


def shipped(name):
    with open(os.path.join(TOP, 'conf', name)) as file:
        return file.read()


def test_shipped_configuration():
    """It is right as it is, and shows every key (t/test_sip_config.c sees that what is
    commented out is the default)."""
    named = re.findall(r'(?m)^#?([a-z]\w*) = ', shipped('seven-sip.conf'))
    check(sorted(named) == sorted(keys()), set(named) ^ keys())
    status, out, err = run('-t', '-f', os.path.join(TOP, 'conf', 'seven-sip.conf'))
    check(status == 0, out, err)


def test_manual_describes_every_key():
    named = re.findall(r'(?m)^\.It Ic (\w+)', shipped('seven-sip.8'))
    check(sorted(named) == sorted(keys()), set(named) ^ keys())


# ---- the control socket ------------------------------------------------------------------

def test_control_commands():
    with Setup(calls=2) as test:
        proxy = test.proxy
        call, at_server, tag = test.waiting()
        text = dict(line.split(': ') for line in proxy.control('status').splitlines())
        figures = proxy.status()
        check(text['waiting'] == '1' and figures['waiting'] == 1, text, figures)
        check(set(text) >= {name for name in figures if name != 'ended'}, text, figures)
        check({name[6:] for name in text if name.startswith('ended_')} ==
              set(figures['ended']), text, figures)
        [line] = proxy.control('calls').splitlines()
        check(f'call_id="{call.call_id}"' in line and 'state="waiting"' in line, line)
        check('status json' in proxy.control('help'))
        for wrong in ('', 'x', 'statusx', 'calls 0', 'calls x', 'calls 10001', 'STATUS',
                      'a' * 1000, '\x1b[31m'):
            answer = proxy.control(wrong)
            check(len(answer.splitlines()) == 1 and answer.isprintable() is False and
                  '\x1b' not in answer, repr(wrong), repr(answer))


def test_calls_are_bounded_and_escaped():
    with Setup(calls=5) as test:
        for _ in range(3):
            test.waiting()
        check(len(test.proxy.control('calls').splitlines()) == 3)
        two = test.proxy.control('calls 2').splitlines()
        check(len(two) == 3 and two[-1] == '...', two)


def test_control_takes_no_harm():
    """Of clients that say nothing, or do not read, or leave."""
    with Idle() as proxy:
        links = []
        for number in range(50):
            link = socket.socket(socket.AF_UNIX)
            link.connect(proxy.keys['control'])
            if number % 3 == 1:
                link.sendall(b'calls')
            if number % 3 == 2:
                link.sendall(b'status\n')
                link.close()
            links.append(link)
        began = time.monotonic()
        poll(lambda: places(proxy), lambda value: value == 24)
        check(time.monotonic() - began < 4, 'it waited for others')
        # Those that stay silent are put out in the end.
        last = socket.socket(socket.AF_UNIX)
        last.connect(proxy.keys['control'])
        last.settimeout(15)
        check(last.recv(1) == b'', 'a silent client got an answer')
        for link in [*links, last]:
            link.close()


def test_control_socket_file():
    with Idle() as proxy:
        path = proxy.keys['control']
        check(stat.S_IMODE(os.stat(path).st_mode) == 0o600)
        # A live one is another process's.
        with Idle(start=False, control=path) as other:
            file = other.path('sip.conf')
            complaint(['-f', file], f'{file}:5: the control socket', 'another process')
        check(proxy.status()['places'] == 24)
        # A stale one is replaced, one's own removed.
        proxy.kill()
        check(os.path.exists(path))
        proxy.configure(control_mode='0660')
        proxy.start()
        check(stat.S_IMODE(os.stat(path).st_mode) == 0o660)
        proxy.leave()
        check(not os.path.exists(path), 'the socket stays behind')
        # Anything else stays.
        proxy.end()
        proxy.write('control', 'precious')
        file = proxy.path('sip.conf')
        complaint(['-f', file], f'{file}:5: the control socket', 'not a socket')
        check(proxy.read('control') == 'precious')


# ---- metrics ---------------------------------------------------------------------------

def get(port, path='/metrics', method='GET', data=None, timeout=15):
    """(status, content type, text)"""
    request = urllib.request.Request(f'http://127.0.0.1:{port}{path}', data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status, reply.headers['Content-Type'], reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers['Content-Type'], error.read().decode()


def series(text):
    """The exposition's values by series; checks its form (Prometheus 0.0.4)."""
    values, typed = {}, set()
    for line in text.splitlines():
        if line.startswith('# TYPE '):
            name = line.split()[2]
            check(name not in typed, name, 'twice')
            typed.add(name)
        elif not line.startswith('# HELP '):
            match = re.fullmatch(r'([a-z_][a-z0-9_]*)((?:\{[a-z_]+="[^"\\]*"\})?) (\S+)', line)
            check(match, 'not a sample:', line)
            base = re.sub(r'_(bucket|sum|count)$', '', match[1])
            check(match[1] in typed or base in typed, line, 'has no type')
            check(match[1] + match[2] not in values, line, 'twice')
            values[match[1] + match[2]] = float(match[3])
    check(text.endswith('\n'))
    return values


def test_metrics():
    with Setup(calls=2, metrics=f'127.0.0.1:{free_port()}') as test:
        port = int(test.proxy.keys['metrics'].rpartition(':')[2])
        test.waiting()
        status, kind, text = get(port)
        check(status == 200 and kind.startswith('text/plain; version=0.0.4'), status, kind)
        values = series(text)
        check(values['seven_sip_places'] == 2, text)
        check(values['seven_sip_calls{state="waiting"}'] == 1, text)
        check(values['seven_sip_calls_ended_total{reason="cut_incall"}'] == 0, text)
        check(values['seven_sip_victim_end_seconds_count'] == 0, text)
        check(get(port, '/')[0] == 404 and get(port, '/metrics/x')[0] == 404)
        check(get(port, data=b'x=y', method='POST')[0] == 405)
        check(get(port, method='HEAD')[2] == '')


def test_metrics_over_ipv6():
    port = free_port()
    with Idle(metrics=f'[::1]:{port}'):
        with socket.create_connection(('::1', port), timeout=10) as link:
            link.sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
            check(b' 200 OK' in link.recv(4096))


def test_metrics_take_no_harm():
    """Of silent, slow and broken clients: the others are served, and calls at once."""
    with Setup(calls=2, metrics=f'127.0.0.1:{free_port()}') as test:
        port = int(test.proxy.keys['metrics'].rpartition(':')[2])
        links = [socket.create_connection(('127.0.0.1', port)) for _ in range(60)]
        for number, link in enumerate(links):
            link.sendall([b'', b'GET /met', b'\0\xff\r\n\r\n', b'GET / HTTP/1.1\r\nA: b\r\n',
                          b'POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: '
                          b'99999999999\r\n\r\n', b'G' * 20000][number % 6])
        began = time.monotonic()
        test.waiting()
        check(test.proxy.status()['waiting'] == 1)
        check(time.monotonic() - began < 4, 'the event loop waited for them')
        poll(lambda: get(port, timeout=60)[0], lambda code: code == 200, timeout=50)
        for link in links:
            link.close()


test_metrics_take_no_harm.limit = 90


# ---- while it runs ------------------------------------------------------------------------

def test_reload():
    with Idle() as proxy:
        proxy.calls = 48
        proxy.configure(strategy='roulette')
        proxy.reload()
        poll(proxy.status, lambda s: s['places'] == 48 and s['strategy'] == 'roulette')
        proxy.calls = 0
        proxy.configure()
        proxy.reload()
        poll(proxy.output, lambda text: f'{proxy.path("sip.conf")}:4: calls must' in text)
        check(proxy.status()['places'] == 48)
        proxy.calls = 12
        proxy.server = ('127.0.0.1', 5098)
        proxy.configure(metrics=f'127.0.0.1:{free_port()}', log_level='info')
        proxy.reload()
        poll(proxy.status, lambda s: s['places'] == 12)
        text = poll(proxy.output, lambda text: 'takes effect with a restart' in text)
        check('what changed of server, metrics takes effect' in text, text)
        os.unlink(proxy.path('sip.conf'))
        proxy.reload()
        poll(proxy.output, lambda text: 'cannot be read: No such file' in text)
        check(proxy.status()['places'] == 12)


def test_many_reloads():
    """No memory is lost by them (the sanitizer would say so at the end)."""
    with Setup(calls=4) as test:
        call, callee = test.up()
        for number in range(60):
            test.proxy.calls = 4 + number % 7
            test.proxy.configure(exempt=[f'192.0.2.{number} 112 sip:a{number}@b'])
            test.proxy.reload()
            if number % 10 == 0:
                poll(test.proxy.status,
                     lambda s: s['places'] == test.proxy.calls, say='a reload')
        check(test.figure('incall') == 1)
        test.hang_up(call)


@cases('TERM', 'INT', 'QUIT')
def test_signals_without_calls(name):
    with Idle() as proxy:
        os.kill(proxy.pid, getattr(signal, 'SIG' + name))
        check(proxy.process.wait(15) == 0)
        check(not os.path.exists(proxy.keys['control']))


def test_stops_when_the_last_call_is_over():
    with Setup(calls=4) as test:
        call, callee = test.up()
        os.kill(test.proxy.pid, signal.SIGTERM)
        poll(test.proxy.status, lambda s: s['stopping'])
        test.hang_up(call)
        check(test.proxy.process.wait(20) == 0)


@cases('TERM', 'QUIT')
def test_stops_at_once(name):
    with Setup(calls=4) as test:
        test.up()
        if name == 'TERM':
            os.kill(test.proxy.pid, signal.SIGTERM)
            poll(test.proxy.status, lambda s: s['stopping'])
        check(test.proxy.process.poll() is None)
        os.kill(test.proxy.pid, getattr(signal, 'SIG' + name))
        check(test.proxy.process.wait(15) == 0)


def test_closed_outputs():
    """Whoever read its log has gone: it goes on."""
    with Idle(start=False) as proxy:
        read, write = os.pipe()
        proxy.process = subprocess.Popen([PLAIN, '-f', proxy.path('sip.conf')],
                                         stdin=subprocess.DEVNULL, stdout=write,
                                         stderr=write, start_new_session=True)
        os.close(write)
        os.close(read)
        poll(lambda: places(proxy), lambda value: value == 24)
        proxy.reload()
        proxy.calls = 5
        proxy.configure()
        proxy.reload()
        poll(lambda: places(proxy), lambda value: value == 5)


def test_overload_is_told_once():
    """One warning, however many are decided about."""
    with Setup(calls=1, round='50ms') as test:
        test.up()

        def more():
            test.call().invite()
            return test.proxy.output()
        text = poll(more, lambda text: 'all 1 places are taken' in text, timeout=30)
        for _ in range(30):
            more()
            time.sleep(0.05)
        text = test.proxy.output()
        check(text.count('all 1 places are taken') == 1, text)

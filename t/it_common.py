"""What the integration tests share."""

import os
import subprocess
import time

from t import clients
from t.httpd import TOP, Httpd, die_with_parent

MPMS = ('event', 'worker', 'prefork')
MODULE = os.path.join(TOP, 'build', 'mod_seven.so')
WEBBOTS = os.path.join(TOP, 'build', 'webbots')
FRIEND = '127.0.0.2'      # exempt: it asks for figures without being one of them
LOG_SHOWN = 6000


def long_round(clock=0):
    """A round that will not end while a test runs, so that PMod only grows. Rounds
    begin at multiples of their length, on a clock that is so much ahead of the
    system's monotonic one (seconds)."""
    now = clock + time.monotonic()
    return next(f'{hours}h' for hours in (24, 23, 22, 21)
                if now % (hours * 3600) < hours * 3600 - 900)


LONG_ROUND = 'SevenRound ' + long_round()


class Skip(Exception):
    """This test cannot run here; the message says why."""


def cases(*names):
    """A test for each name, which it is given."""
    def mark(function):
        function.cases = list(names)
        return function
    return mark


def limit(seconds):
    """How long a test may take; 60 s otherwise."""
    def mark(function):
        function.limit = seconds
        return function
    return mark


def check(true, *words):
    """An assertion with a sentence."""
    if not true:
        raise AssertionError(' '.join(str(word) for word in words))


def poll(what, wanted, timeout=15, say=''):
    """Ask what() again and again until wanted(it); returns it."""
    end = time.monotonic() + timeout
    while True:
        value = what()
        if wanted(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f'{say or "what was waited for"} did not happen '
                                 f'within {timeout} s; last seen: {value}')
        time.sleep(0.03)


class Server(Httpd):
    """An httpd with mod_seven, small, that FRIEND may always ask. Prints its log
    at its end (which is shown if the test fails)."""

    def __init__(self, mpm='event', workers=12, lines=(), exempt=True,
                 module=MODULE, log_level='warn seven:info', **how):
        first = [f'LogLevel {log_level}',
                 'LogFormat "%{seven}n %a %>s %U" seven',
                 'CustomLog ${DIR}/access.log seven']
        if exempt and module:
            first.append(f'SevenExempt {FRIEND}')
        super().__init__(mpm=mpm, workers=workers, module=module,
                         lines=first + list(lines), **how)

    def config_text(self, lines):
        return f'Define DIR {self.dir}\nDefine PORT {self.port}\n' + super().config_text(lines)

    def hold(self):
        """From now on /wait?KB waits, and /cgi-bin/pause, until let_go()."""
        self._write('htdocs/hold', '')

    def let_go(self):
        os.remove(self.path('htdocs', 'hold'))

    patience = 5      # seconds that an orderly end may take

    def stop(self, timeout=None):
        log = self.error_log()
        if log or self.output():
            print(f'---- error log of {self.mpm} httpd {self.lines[3:]}:')
            print(log[:1500] if len(log) > LOG_SHOWN else '', end='')
            print('\n...\n' if len(log) > LOG_SHOWN else '', log[-LOG_SHOWN:])
            print(self.output()[-2000:])
        super().stop(self.patience if timeout is None else timeout)

    def change(self, lines):
        """Other lines after the first ones; takes effect with graceful()."""
        kept = [line for line in self.lines[:4]
                if line.startswith(('LogLevel', 'LogFormat', 'CustomLog',
                                    f'SevenExempt {FRIEND}'))]
        self.rewrite(kept + list(lines))

    def get(self, path, timeout=5):
        """As Httpd.get(), but from FRIEND."""
        reply = clients.ask(self.port, path, source=FRIEND, timeout=timeout)
        if reply.status != 200 or not reply.complete:
            raise OSError(f'{path}: {reply}')
        return reply.body.decode('utf-8', 'replace')

    def figure(self, name):
        return int(self.seven_status()[name])

    def figures(self):
        return {name: int(value) for name, value in self.seven_status().items()
                if value.isdigit()}

    def wait_figure(self, name, wanted, timeout=15):
        """Wait until a figure is as wanted (a number, or a function of it)."""
        test = wanted if callable(wanted) else lambda value: value == wanted
        return poll(lambda: self.figure(name), test, timeout,
                    f'{name} {"as wanted" if callable(wanted) else wanted}')

    def access_log(self):
        return self._read('access.log').splitlines()

    def seven_log(self):
        """mod_seven's own lines in the error log."""
        return [line for line in self.error_log().splitlines() if '[seven:' in line]


def honest(server, count=20, path='/', tls=False, every=0.05, timeout=15):
    """Honest clients, one after the other: their Replies."""
    port = server.tls_port if tls else server.port
    replies = []
    for _ in range(count):
        replies.append(clients.ask(port, path, tls=tls, timeout=timeout))
        time.sleep(every)
    return replies


def served(replies):
    return sum(reply.status == 200 and reply.complete for reply in replies)


def check_served(replies, least=None):
    """All, or at least so many, got a whole 200; the others a whole 503."""
    least = len(replies) - 1 if least is None else least
    check(served(replies) >= least, 'served only', served(replies), 'of', len(replies),
          [reply for reply in replies if reply.status != 200][:5])


def curl(url, *options, timeout=20):
    """What curl says: (exit status, HTTP status, version, output with heads)."""
    done = subprocess.run(['curl', '-s', '-k', '-i', '--noproxy', '*', '-m', str(timeout),
                           '-w', '\n%{http_code} %{http_version}', *options, url],
                          capture_output=True, timeout=timeout + 10)
    text, _, last = done.stdout.decode('utf-8', 'replace').rpartition('\n')
    code, _, version = last.partition(' ')
    return done.returncode, int(code or 0), version, text


def crowd(server, kind, rate=20, most=60, tls=None, **how):
    """A Crowd against a server, at the right port."""
    over_tls = kind == 'hello' or bool(tls)
    return clients.Crowd(server.tls_port if over_tls else server.port, kind,
                         rate, most, tls=over_tls and kind != 'hello', **how)


def full_house(server, places, pmod=200):
    """Fill all places with young half heads, and ask so often that in this round
    hardly anybody gets in any more. For servers with SevenReserve 0 and a long
    SevenRound. Returns the clients, to be closed."""
    holders = [clients.half_head(server.port) for _ in range(places)]
    server.wait_figure('Held', places)
    while server.figure('PMod') < pmod:
        more = [clients.half_head(server.port) for _ in range(50)]
        holders += more
        poll(lambda: server.figure('Leashed'), lambda n: n == 0, say='Leashed 0')
    return holders


class Robots:
    """A program that asks or attacks, webbots as a rule; it ends with its block."""

    def __init__(self, mode, **options):
        words = [WEBBOTS, mode]
        for name, value in options.items():
            words += ['--' + name.replace('_', '-')] + ([] if value is True
                                                         else [str(value)])
        self._start(words)
        if mode == 'echo':
            poll(lambda: clients.ask(options['listen'], timeout=1).status,
                 lambda code: code == 200, say='the answer of an echo')

    @classmethod
    def command(cls, words):
        """Any other program."""
        robots = cls.__new__(cls)
        robots._start(words)
        return robots

    def _start(self, words):
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL,
                                        preexec_fn=die_with_parent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def figures(self, timeout=60):
        """Wait for its own end; its `key: value` lines as numbers."""
        text, _ = self.process.communicate(timeout=timeout)
        check(self.process.returncode == 0, 'webbots:', text)
        return {key: float(value) for key, _, value in
                (line.partition(': ') for line in text.splitlines()) if value}

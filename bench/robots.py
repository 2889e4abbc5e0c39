"""What the benchmark and the demo share: starting the programs that attack and
ask, making sure that they end, and reading what they print."""

import atexit
import os
import re
import resource
import signal
import subprocess
import tempfile
import time

from t.httpd import TOP, die_with_parent, install_cleanup

WEBBOTS = os.path.join(TOP, 'build', 'webbots')

# mod_seven's status keys, in the one place that names them.
STATUS_KEYS = {
    'evictions': 'Evictions',
    'refusals': 'Refusals',
    'offers': 'Offers',
    'held': 'Held',
    'pmod': 'PMod',
    'free_p50_us': 'EvictToFreeP50us',
    'free_p99_us': 'EvictToFreeP99us',
}

# slowhttptest's options for each attack, and what it asks for. "tuned" sends a
# piece of 3000 bytes (on average) every second: fast enough for the minimum
# rates that other modules set. "read" asks for 16 MB: the kernel takes 1.6 MB off
# the server's hands at once (on loopback), and a worker is held by the rest.
ATTACKS = {
    'slowloris': (['-H', '-i', '10'], '/'),
    'post': (['-B', '-i', '10', '-s', '8192', '-x', '10'], '/upload'),
    'tuned': (['-B', '-i', '1', '-s', '1000000', '-x', '3000'], '/upload'),
    'read': (['-X', '-w', '512', '-y', '1024', '-n', '5', '-z', '32', '-k', '1'],
             '/huge.bin'),
}
AS_FAST_AS_IT_GOES = 100000   # slowhttptest's -r
FASTEST = 1000                # more than it can make a second
RATE_OF_ONE = 100             # what one of several is asked for
SECONDS_PER_PLACE = 1.45e-7   # what each of -c costs it a connection
MOST_CONNECTIONS = 60000      # slowhttptest's own limit is 65539

_running = set()


def _stop_all():
    for process in list(_running):
        stop(process)


def start(command, output=subprocess.PIPE):
    """Start a program that ends when we do."""
    install_cleanup()
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                               stderr=subprocess.STDOUT, text=True,
                               preexec_fn=die_with_parent)
    _running.add(process)
    return process


def stop(process, timeout=3):
    """End a program gently, then firmly. Returns what it printed, if piped."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
    _running.discard(process)
    return text


def stop_after(process, timeout):
    """Wait for a program to end, at most so long. Returns what it printed."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        pass
    return stop(process)


def webbots(mode, **options):
    """Start webbots; underscores become dashes, True is a flag."""
    command = [WEBBOTS, mode]
    for name, value in options.items():
        if value is None or value is False:
            continue
        command.append('--' + name.replace('_', '-'))
        if value is not True:
            command.append(str(value))
    return start(command)


def figures(process, timeout):
    """Wait for webbots to end; its `key: value` lines as numbers."""
    try:
        text, _ = process.communicate(timeout=timeout)
        _running.discard(process)
    except subprocess.TimeoutExpired:
        text = stop(process)
    if process.returncode != 0:
        raise RuntimeError(f'webbots failed: {text.strip()}')
    return {key: float(value) for key, value in
            re.findall(r'^(\w+): ([-\d.]+)$', text, re.MULTILINE)}


def raise_file_limit():
    """Let the attackers open as many sockets as the system allows."""
    wanted = MOST_CONNECTIONS + 5000
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    except (ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Slowhttptest:
    """One slowhttptest, which makes so many connections a second at most.

    It counts connections in all, so it is given as many as it could need, and
    it ends when all of them are closed at the same moment: check() then starts
    it again.
    """

    def __init__(self, kind, rate, url, end):
        self.kind, self.rate, self.url, self.end = kind, rate, url, end
        self.opened = self.seconds = 0
        self._start()

    def _start(self):
        seconds = max(1, int(self.end - time.monotonic()))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100
        count = min(int(self.rate * (seconds + 5)), MOST_CONNECTIONS, limit)
        # Between two connections it sleeps 1/r s, and then looks at every one
        # of its -c places: allow for that, or 300/s would be 210/s.
        sleep = 1 / self.rate - count * SECONDS_PER_PLACE
        nominal = min(AS_FAST_AS_IT_GOES, round(1 / max(sleep, 1e-5)))
        self._output = tempfile.TemporaryFile('w+')
        self.process = start(
            ['slowhttptest', *ATTACKS[self.kind][0], '-c', str(count),
             '-r', str(nominal), '-l', str(seconds), '-p', '5', '-v', '1',
             '-u', self.url], output=self._output)

    def check(self):
        if self.process.poll() is not None and time.monotonic() < self.end - 1:
            self.stop()
            self._start()

    def stop(self):
        """End it, and add to .opened and .seconds what it says it did."""
        stop(self.process)
        self._output.seek(0)
        text = re.sub(r'\x1b\[[\d;]*[a-zA-Z]', '', self._output.read())
        self._output.close()
        blocks = re.findall(r'test status on (\d+)th second:(.*?)service',
                            text, re.DOTALL)
        if blocks:
            second, block = blocks[-1]
            self.opened += sum(int(n) for n in re.findall(r':\s+(\d+)', block))
            self.seconds += int(second)


class Attack:
    """An attack at so many new connections a second, kept up until stop();
    a rate of 0 is one slowhttptest as fast as it goes. Others are shared by
    several, each at a rate it can keep."""

    def __init__(self, kind, rate, url, seconds):
        end = time.monotonic() + seconds
        shares = -(-rate // RATE_OF_ONE) or 1
        each = rate / shares if rate else FASTEST
        self.parts = [Slowhttptest(kind, each, url, end) for _ in range(shares)]

    def check(self):
        """Keep it going."""
        for part in self.parts:
            part.check()

    def stop(self):
        """End it. Returns the new connections a second it really made."""
        for part in self.parts:
            part.stop()
        return sum(part.opened / part.seconds for part in self.parts
                   if part.seconds)

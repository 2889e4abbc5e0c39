#!/usr/bin/env python3
"""A throwaway Apache httpd for tests and benchmarks.

    with Httpd(mpm='event', workers=200, module='build/mod_seven.so') as h:
        ... http://127.0.0.1:{h.port}/ ...

Each instance has its own temporary directory, its own free loopback ports and
its own process group. Nothing is left running or lying about: not after the
`with` block, nor after an exception, Ctrl-C or SIGTERM (if the program itself
is killed with SIGKILL, the kernel sends its httpds a SIGTERM).

What it serves:
    /index.html      a small page
    /big.bin         1 MB of random bytes
    /huge.bin        16 MB of zeros: more than the kernel buffers, for slow readers
    /upload          reads the whole request body, then answers 200 with its size
    /echo-size?N     N kB built in memory (it passes through the output filters)
    /sleep?MS        answers 200 after MS milliseconds spent in a handler
    /wait?KB         answers when there is no file htdocs/hold any more (or after a
                     minute), and then so many kB, one by one
    /cgi-bin/sleep.sh?S   (with modules=['cgi'] or ['cgid']) the same as a CGI
    /server-status   mod_status, ExtendedStatus On
    /seven-status    mod_seven's own, if a module is given
"""

import atexit
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

APACHE = '/usr/sbin/apache2'
MODULE_DIR = '/usr/lib/apache2/modules'
BUILT_IN = {'core', 'so', 'watchdog', 'http', 'log_config', 'logio', 'version',
            'unixd'}
BASE_MODULES = ['authz_core', 'authz_host', 'mime', 'dir', 'alias', 'status', 'lua']
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

LUA_UPLOAD = '''
function handle(r)
  local body = r:requestbody()
  r.content_type = "text/plain"
  if not body then
    r.status = 400
    r:puts("the body did not arrive\\n")
    return apache2.OK
  end
  r:puts("received " .. #body .. " bytes\\n")
  return apache2.OK
end
'''

LUA_SLEEP = '''
function handle(r)
  r.content_type = "text/plain"
  r.usleep((tonumber(r.args) or 0) * 1000)
  r:puts("slept\\n")
  return apache2.OK
end
'''

LUA_WAIT = '''
function handle(r)
  local kb = tonumber(r.args) or 0
  r.content_type = "text/plain"
  for _ = 1, 6000 do
    local file = io.open(r.document_root .. "/hold")
    if not file then break end
    file:close()
    r.usleep(10000)
  end
  r:puts("waited\\n")
  for _ = 1, kb do
    r:puts(string.rep("x", 1024))
  end
  return apache2.OK
end
'''

LUA_MEMORY = '''
function handle(r)
  local kb = tonumber(r.args) or 1
  r.content_type = "application/octet-stream"
  r:puts(string.rep("x", 1024 * kb))
  return apache2.OK
end
'''

CGI_SLEEP = '''#!/bin/sh
sleep "${QUERY_STRING:-0}"
printf 'Content-Type: text/plain\\n\\nslept\\n'
'''

_running = set()


class HttpdError(Exception):
    """An httpd could not be started or did not do what it was told to."""


def _stop_all():
    for httpd in list(_running):
        httpd.stop(timeout=0.5)


def _on_signal(number, _frame):
    """Stop every httpd, then end as the signal would have."""
    _stop_all()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def adopt_orphans():
    """Have the kernel give us, not init, the children of an httpd that is
    killed: so that we can see them end."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def reap_group(group, timeout=5):
    """Wait until nothing is left of a killed process group of ours."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            if os.waitpid(-group, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


def install_cleanup():
    """Clean up at exit and on SIGINT, SIGTERM and SIGHUP. Safe to repeat."""
    adopt_orphans()
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            if signal.getsignal(number) in (signal.SIG_DFL,
                                            signal.default_int_handler):
                signal.signal(number, _on_signal)
        except ValueError:
            return    # not the main thread: atexit alone must do


def die_with_parent():
    """For subprocess's preexec_fn: have the kernel end us with our parent."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)


_claims = []


def claim_port(port):
    """Make this number ours among all who ask here, in any process, until this one
    ends: a port is free from its choice until its server listens, and between that
    server's end and its next start. False if it is another's."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f'\0seven-test-port-{port}')
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def free_port():
    """A loopback port nobody listens on, outside the range clients are given. It is
    nobody else's for as long as this process lives."""
    for _ in range(200):
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', port))
            except OSError:
                continue
        if claim_port(port):
            return port
    raise HttpdError('no free port found on 127.0.0.1')


def threads_per_child(workers):
    """How event and worker divide so many workers: 25 a child, or two halves."""
    if workers % 25 == 0 and workers > 25:
        return 25
    return workers // 2 if workers % 2 == 0 else workers


def mpm_lines(mpm, workers, threads=None, server_limit=None):
    """The MPM's directives, with all workers started at once and kept."""
    if mpm == 'prefork':
        limit = server_limit or workers
        return [f'ServerLimit {limit}', f'StartServers {workers}',
                'MinSpareServers 1', f'MaxSpareServers {workers + 1}',
                f'MaxRequestWorkers {workers}']
    threads = threads or threads_per_child(workers)
    children = workers // threads
    limit = server_limit or children
    return [f'ThreadLimit {threads}', f'ThreadsPerChild {threads}',
            f'ServerLimit {limit}', f'StartServers {children}',
            f'MinSpareThreads 1', f'MaxSpareThreads {workers + threads}',
            f'MaxRequestWorkers {workers}']


class Httpd:
    """One httpd: its configuration, its files and its processes.

    mpm           'event', 'worker' or 'prefork'
    workers       MaxRequestWorkers; event and worker get 25 threads a child
    module        path of mod_seven.so, or None
    lines         extra directives, main server
    vhost_lines   extra directives inside the TLS virtual host
    tls, http2    add a TLS port; add h2 and h2c to Protocols
    key           'p256' or 'rsa'
    modules       more modules by name, e.g. ['proxy', 'proxy_http', 'cgid']
    threads       ThreadsPerChild; server_limit  ServerLimit
    timeout       Timeout, seconds
    wrapper       words put before the command, e.g. ['valgrind', '-q']
    env           variables added to the environment
    start=False   only write the files (for configtest)
    """

    def __init__(self, mpm='event', workers=200, module=None, lines=(),
                 tls=False, http2=False, modules=(), key='p256', timeout=40,
                 threads=None, server_limit=None, vhost_lines=(), wrapper=(),
                 env=None, start=True):
        install_cleanup()
        self.mpm, self.workers, self.tls, self.http2 = mpm, workers, tls, http2
        self.module = os.path.abspath(module) if module else None
        self.lines, self.vhost_lines = list(lines), list(vhost_lines)
        self.modules, self.key, self.timeout = list(modules), key, timeout
        self.threads, self.server_limit = threads, server_limit
        self.wrapper, self.env = list(wrapper), env
        self.process = None
        self.port = self.tls_port = None
        self.dir = tempfile.mkdtemp(prefix='seven-httpd-')
        _running.add(self)
        try:
            self._write_files()
            self._write_config()
            if start:
                self.start()
        except BaseException:
            self.stop(timeout=0.5)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # ---- files -------------------------------------------------------------

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    @property
    def conf(self):
        return self.path('httpd.conf')

    def _write(self, name, data, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb' if isinstance(data, bytes) else 'w') as file:
            file.write(data)
        os.chmod(path, mode)

    def _write_files(self):
        for name in ('', 'htdocs', 'lua', 'cgi-bin', 'run'):
            os.makedirs(self.path(name), exist_ok=True)
            os.chmod(self.path(name), 0o755)
        self._write('htdocs/index.html', '<html><body><h1>It works</h1>'
                    f'<!-- {os.path.basename(self.dir)} --></body></html>\n')
        self._write('htdocs/big.bin', os.urandom(1 << 20))
        self._write('htdocs/huge.bin', b'')
        os.truncate(self.path('htdocs/huge.bin'), 16 << 20)
        self._write('lua/upload.lua', LUA_UPLOAD)
        self._write('lua/sleep.lua', LUA_SLEEP)
        self._write('lua/wait.lua', LUA_WAIT)
        self._write('lua/memory.lua', LUA_MEMORY)
        self._write('cgi-bin/sleep.sh', CGI_SLEEP, 0o755)
        self._write('mime.types', 'text/html html\n')
        if self.tls:
            self._make_certificate()

    def _make_certificate(self):
        kind = (['-newkey', 'rsa:2048'] if self.key == 'rsa' else
                ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'])
        subprocess.run(['openssl', 'req', '-x509', '-nodes', '-days', '2', *kind,
                        '-subj', '/CN=localhost', '-addext',
                        'subjectAltName=DNS:localhost,IP:127.0.0.1',
                        '-keyout', self.path('key.pem'),
                        '-out', self.path('cert.pem')],
                       check=True, capture_output=True)

    def _load_lines(self):
        names = [f'mpm_{self.mpm}'] + BASE_MODULES + self.modules
        if self.tls:
            names += ['ssl']
        if self.http2:
            names += ['http2']
        wanted = [n for n in dict.fromkeys(names) if n not in BUILT_IN]
        lines = [f'LoadModule {n}_module {MODULE_DIR}/mod_{n}.so' for n in wanted]
        if self.module:
            lines.append(f'LoadModule seven_module {self.module}')
        return lines

    def _basic_lines(self):
        lines = ['ServerName localhost', f'ServerRoot {self.dir}',
                 f'DefaultRuntimeDir {self.path("run")}',
                 f'PidFile {self.path("run", "pid")}',
                 'Mutex pthread default',
                 f'ErrorLog {self.path("error.log")}', 'LogLevel warn',
                 f'Timeout {self.timeout}', 'KeepAlive On', 'KeepAliveTimeout 5',
                 'GracefulShutdownTimeout 5',
                 f'DocumentRoot {self.path("htdocs")}',
                 f'TypesConfig {self.path("mime.types")}',
                 f'Listen 127.0.0.1:{self.port}']
        if os.geteuid() == 0:
            lines += ['User www-data', 'Group www-data']
        if self.http2:
            lines += ['Protocols h2 h2c http/1.1']
        return lines

    def _content_lines(self):
        lines = [f'<Directory {self.dir}>', 'Require all granted', '</Directory>',
                 'DirectoryIndex index.html', 'ExtendedStatus On']
        for url, script in (('/upload', 'upload'), ('/sleep', 'sleep'),
                            ('/wait', 'wait'), ('/echo-size', 'memory')):
            lines.append(f'LuaMapHandler {url} {self.path("lua", script)}.lua handle')
        handlers = [('/server-status', 'server-status')]
        if self.module:
            handlers.append(('/seven-status', 'seven-status'))
        for url, handler in handlers:
            lines += [f'<Location {url}>', f'SetHandler {handler}',
                      'Require all granted', '</Location>']
        if {'cgi', 'cgid'} & set(self.modules):
            lines.append(f'ScriptAlias /cgi-bin/ {self.path("cgi-bin")}/')
        if 'cgid' in self.modules:
            lines.append(f'ScriptSock {self.path("run", "cgid")}')
        return lines

    def _tls_lines(self):
        if not self.tls:
            return []
        return [f'Listen 127.0.0.1:{self.tls_port}', 'SSLSessionCache none',
                f'<VirtualHost 127.0.0.1:{self.tls_port}>', 'ServerName localhost',
                'SSLEngine on', f'SSLCertificateFile {self.path("cert.pem")}',
                f'SSLCertificateKeyFile {self.path("key.pem")}',
                *self.vhost_lines, '</VirtualHost>']

    def config_text(self, lines):
        """The whole configuration, with these extra directives."""
        return '\n'.join(self._load_lines() + self._basic_lines() +
                         mpm_lines(self.mpm, self.workers, self.threads,
                                   self.server_limit) +
                         self._content_lines() + list(lines) +
                         self._tls_lines()) + '\n'

    def _write_config(self):
        self.port = free_port()
        self.tls_port = free_port() if self.tls else None
        self.rewrite(self.lines)

    def rewrite(self, lines):
        """Replace the extra directives; takes effect at the next graceful()."""
        self.lines = list(lines)
        self._write('httpd.conf', self.config_text(self.lines))

    # ---- running -----------------------------------------------------------

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def _environment(self):
        return dict(os.environ, **(self.env or {}))

    def start(self):
        """Start it and wait until it answers. A port lost to another process
        between choosing and binding is replaced, a few times."""
        for attempt in range(4):
            self._spawn()
            try:
                self.wait_ready()
                return
            except HttpdError:
                if attempt == 3 or 'Address already in use' not in self.error_log():
                    raise
                self._kill(0.5)
                self._write_config()

    def _spawn(self):
        self._output = open(self.path('output.log'), 'ab')
        self.process = subprocess.Popen(
            [*self.wrapper, APACHE, '-f', self.conf, '-DFOREGROUND'],
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
            start_new_session=True, preexec_fn=die_with_parent,
            env=self._environment())

    def wait_ready(self, timeout=30):
        """Poll until it answers a request for the index page."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise HttpdError(f'httpd ended with status {self.process.returncode}:'
                                 f'\n{self.output()}{self.error_log()}')
            try:
                body = self.get('/index.html', timeout=2)
                if os.path.basename(self.dir) in body:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise HttpdError(f'httpd did not answer within {timeout} s:\n'
                         f'{self.output()}{self.error_log()}')

    def stop(self, timeout=5):
        """Stop it, kill what is left of its process group, remove its files."""
        self._kill(timeout)
        shutil.rmtree(self.dir, ignore_errors=True)
        _running.discard(self)

    def _kill(self, timeout):
        if not self.process:
            return
        try:
            self.process.terminate()
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.wait()
        reap_group(self.process.pid)
        self._output.close()
        self.process = None

    def graceful(self, timeout=20):
        """Restart gracefully; returns when the parent says it has."""
        before = self.generations()
        os.kill(self.pid, signal.SIGUSR1)
        end = time.monotonic() + timeout
        while self.generations() <= before:
            if self.process.poll() is not None or time.monotonic() > end:
                raise HttpdError('no graceful restart:\n' + self.error_log())
            time.sleep(0.01)

    def generations(self):
        """How many times the parent has said that it is running."""
        return self.error_log().count('resuming normal operations')

    def children(self):
        """Pids of the parent's direct children (cgid's daemon included)."""
        found = []
        for name in os.listdir('/proc'):
            if not name.isdigit():
                continue
            try:
                with open(f'/proc/{name}/stat') as file:
                    after_comm = file.read().rsplit(')', 1)[1].split()
            except OSError:
                continue
            if int(after_comm[1]) == self.pid and after_comm[0] != 'Z':
                found.append(int(name))
        return sorted(found)

    # ---- asking ------------------------------------------------------------

    def url(self, path='/', tls=False):
        return (f'https://127.0.0.1:{self.tls_port}{path}' if tls else
                f'http://127.0.0.1:{self.port}{path}')

    def get(self, path, timeout=5):
        """The body of a GET; OSError (or HTTPError, its child) on failure."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url(path), timeout=timeout) as reply:
                return reply.read().decode('utf-8', 'replace')
        except (ValueError, EOFError) as error:
            raise OSError(str(error)) from error

    def _keys(self, path, timeout):
        """Read a `key: value` page, asking again until it is answered."""
        end = time.monotonic() + timeout
        while True:
            try:
                page = self.get(path, timeout=3)
                return dict(line.split(': ', 1) for line in page.splitlines()
                            if ': ' in line)
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                    raise
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def seven_status(self, timeout=10):
        """mod_seven's figures, as a dictionary of strings."""
        return self._keys('/seven-status?auto', timeout)

    def server_status(self, timeout=10):
        """mod_status's figures, as a dictionary of strings."""
        return self._keys('/server-status?auto', timeout)

    def error_log(self):
        return self._read('error.log')

    def output(self):
        """What it wrote to its terminal."""
        return self._read('output.log')

    def _read(self, name):
        try:
            with open(self.path(name), errors='replace') as file:
                return file.read()
        except OSError:
            return ''

    def configtest(self, lines=(), vhost_lines=None):
        """Check the configuration with other extra directives, beside the
        running one. Returns (exit status, what it printed)."""
        kept = self.vhost_lines
        if vhost_lines is not None:
            self.vhost_lines = list(vhost_lines)
        try:
            self._write('check.conf', self.config_text(lines))
        finally:
            self.vhost_lines = kept
        done = subprocess.run(
            [*self.wrapper, APACHE, '-t', '-f', self.path('check.conf')],
            capture_output=True, text=True, timeout=60, env=self._environment())
        return done.returncode, done.stdout + done.stderr


def main():
    """Start one of each kind, ask it a few things and say what it answered."""
    for mpm in ('event', 'worker', 'prefork'):
        with Httpd(mpm=mpm, tls=True, http2=True, modules=['cgid']) as httpd:
            status = httpd.server_status()
            httpd.graceful()
            print(mpm, 'port', httpd.port, 'children', len(httpd.children()),
                  'configtest', httpd.configtest()[0],
                  'workers', len(status.get('Scoreboard', '')),
                  httpd.get('/sleep?10').strip(),
                  len(httpd.get('/echo-size?1024')))


if __name__ == '__main__':
    main()

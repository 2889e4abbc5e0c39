"""One run under valgrind, and one with the module built for AddressSanitizer and
UndefinedBehaviorSanitizer: attack, honest clients, restart, stop."""

import os
import re
import shutil
import subprocess
import time

from t import clients
from t.httpd import TOP
from t.it_common import (FRIEND, MPMS, Server, Skip, cases, check, crowd, curl, honest,
                         limit, poll, served)

SANITIZED = os.path.join(TOP, 'build', 'asan', 'mod_seven.so')
OURS = re.compile(r'mod_seven|seven_core')


def exercise(server, pace=1.0, tls=True):
    """Something of everything."""
    port = server.port
    kinds = ('head', 'body', 'read') + (('hello',) if tls else ())
    for kind in kinds:
        with crowd(server, kind, rate=30 * pace, most=40):
            before = server.figure('Evictions')
            server.wait_figure('Evictions', lambda n, b=before: n >= b + 5, 40)
            replies = honest(server, 5, timeout=30)
            check(served(replies) >= 2, replies)
    for path in ('/seven-status', '/server-status', '/seven-status?auto'):
        server.get(path, timeout=20)
    clients.pipelined(port, ['/', '/', '/'])
    if server.http2:
        for _ in range(3):
            attacker = clients.H2Client(port, window=100)
            attacker.acknowledge()
            attacker.ask('/echo-size?500')
            attacker.ask('/upload', body_length=100000)
            curl(server.url('/echo-size?50'), '--http2-prior-knowledge')
            attacker.close()
    burst = [clients.half_head(port) for _ in range(40)]
    time.sleep(0.5)
    for client in burst:
        client.close(reset=True)
    server.wait_figure('Held', 0, 40)


@cases(*MPMS)
@limit(150)
def test_with_sanitizers(mpm):
    library = subprocess.run(['gcc', '-print-file-name=libasan.so'], text=True,
                             capture_output=True, check=True).stdout.strip()
    check(os.path.exists(SANITIZED), SANITIZED, 'is not built')
    with Server(mpm, module=SANITIZED, tls=True, http2=mpm != 'prefork',
                server_limit=30 if mpm == 'prefork' else 8,
                env={'LD_PRELOAD': os.path.realpath(library),
                     'ASAN_OPTIONS': 'detect_leaks=0',      # httpd's own
                     'UBSAN_OPTIONS': 'print_stacktrace=1'}) as server:
        exercise(server)
        server.graceful()
        exercise(server)
        server.process.terminate()
        server.process.wait(20)
        said = server.error_log() + server.output()
        for sign in ('AddressSanitizer', 'runtime error:', 'exit signal'):
            check(sign not in said, said[max(0, said.find(sign) - 500):][:6000])


def errors_of_ours(text):
    """valgrind's errors that have our code in their stack."""
    found = []
    for block in re.split(r'(?m)^==\d+== \n', text):
        if re.search(r'Invalid (read|write|free)|uninitialised|Mismatched|overlap', block):
            if OURS.search(block) or 'Invalid' in block:
                found.append(block)
    return found


@cases('event', 'prefork')
@limit(200)
def test_under_valgrind(mpm):
    if not shutil.which('valgrind'):
        raise Skip('valgrind is not there')
    with Server(mpm, workers=6, tls=True, timeout=60, server_limit=12,
                wrapper=['valgrind', '--quiet', '--num-callers=20',
                         '--fair-sched=yes']) as server:
        exercise(server, pace=0.5, tls=False)
        server.graceful()
        poll(lambda: clients.ask(server.port, source=FRIEND, timeout=20).status,
             lambda code: code == 200, 60, 'an answer')
        exercise(server, pace=0.5, tls=False)
        server.process.terminate()
        server.process.wait(40)
        said = server.output()
        found = errors_of_ours(said)
        check(not found, *found)

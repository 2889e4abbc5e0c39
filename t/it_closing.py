"""How a victim's connection ends: orderly while it is read from; never so that
half a response could be taken for a whole one."""

import select
import socket
import subprocess
import time

from t import clients
from t.it_common import LONG_ROUND, MPMS, Server, cases, check, poll

ONE_PLACE = ['SevenServerLimit 1', 'SevenReserve 0', LONG_ROUND]

STREAM = '''#!/usr/bin/perl
$| = 1;
print "Content-Type: text/plain\\n\\n";
print "x" x 65536 for 1..400;
'''
PAUSE = '''#!/bin/sh
printf 'Content-Type: text/plain\\n\\nhalf of it\\n'
while [ -e "$DOCUMENT_ROOT/hold" ]; do sleep 0.1; done
echo the rest
'''


def server_of_scripts(mpm, **how):
    cgi = 'cgi' if mpm == 'prefork' else 'cgid'
    server = Server(mpm, workers=8, modules=[cgi], lines=ONE_PLACE, **how)
    server._write('cgi-bin/stream', STREAM, 0o755)
    server._write('cgi-bin/pause', PAUSE, 0o755)
    server.patience = 0.5    # the script does not notice that its reader is gone
    return server


def replace(server):
    """A newcomer takes the only place. The first of a round always gets in."""
    before = server.figure('Replaced')
    reply = clients.ask(server.port)
    check(reply.status == 200, 'the newcomer got', reply)
    check(server.figure('Replaced') == before + 1, server.figures())


@cases(*(f'{mpm}-{kind}' for mpm in MPMS for kind in ('head', 'body', 'hello', 'tls')))
def test_whoever_is_read_from_gets_an_orderly_end(case):
    mpm, kind = case.split('-')
    with Server(mpm, workers=8, tls=True, lines=ONE_PLACE) as server:
        if kind == 'tls':
            victim = clients.half_head(server.tls_port, tls=True)
        else:
            victim = clients.KINDS[kind](server.tls_port if kind == 'hello'
                                         else server.port)
        server.wait_figure('Held', 1)
        if kind == 'body':
            server.wait_figure('HeldBody', 1)
        replace(server)
        end = victim.wait_closed(10)
        # Over TLS nothing more can be said, but the connection ends in order.
        check(end == 'fin' or (kind == 'tls' and end == 'cut'), end, victim.data[:80])
        check(not victim.data.startswith(b'HTTP/1.1 200'), victim.data[:80])
        server.wait_figure('Held', 0)


@cases('worker', 'prefork')
def test_idle_kept_alive_is_a_victim_where_it_holds_a_worker(mpm):
    with Server(mpm, workers=8, lines=ONE_PLACE + ['KeepAliveTimeout 60']) as server:
        victim = clients.idle(server.port)
        check(victim.first.status == 200, victim.first)
        server.wait_figure('HeldHead', 1)
        replace(server)
        end = victim.wait_closed(10)
        check(end == 'fin' and victim.data == b'', end, victim.data[:80])


@cases(*(f'{mpm}-{scheme}-{version}-{script}' for mpm in MPMS
         for scheme, version, script in (
             ('http', '1.0', 'stream'), ('http', '1.0', 'pause'),
             ('http', 'close', 'stream'), ('http', '1.1', 'stream'),
             ('http', '1.1', 'pause'), ('https', '1.0', 'stream'),
             ('https', '1.0', 'pause'), ('https', '1.1', 'stream'))))
def test_half_a_response_is_not_taken_for_a_whole(case):
    """Of a script, whose length nobody knows: to a client of 1.0 nothing but the end
    of the connection would tell that it is whole; others get it in chunks."""
    mpm, scheme, version, script = case.split('-')
    tls = scheme == 'https'
    with server_of_scripts(mpm, tls=tls) as server:
        server.hold()
        victim = clients.slow_reader(
            server.tls_port if tls else server.port, f'/cgi-bin/{script}',
            version='1.0' if version == '1.0' else '1.1',
            headers='Connection: close\r\n' if version == 'close' else '', tls=tls)
        victim.read_until(lambda: b'\r\n\r\n' in victim.data)
        time.sleep(0.05)
        server.wait_figure('HeldResponse' if script == 'stream' else 'HeldHandler', 1)
        replace(server)
        end = victim.wait_closed(15)
        server.let_go()
        reply = clients.Reply(victim.data, end)
        check(reply.status == 200 and not reply.complete, 'taken for a whole:', reply)
        if version == '1.0':
            check(end in ('rst', 'cut') if tls else end == 'rst', 'not reset:', reply)


@cases(*(f'{mpm}-{scheme}-{size}' for mpm in MPMS for scheme in ('http', 'https')
         for size in ('short', 'long')))
def test_a_victim_at_work_for_is_spared(case):
    """To cut off a client that a handler works for would free nothing; and when it has
    done its work, whoever takes what it is sent is left to take it all."""
    mpm, scheme, size = case.split('-')
    tls = scheme == 'https'
    with Server(mpm, workers=8, tls=tls, lines=ONE_PLACE) as server:
        server.hold()
        victim = clients.Client(server.tls_port if tls else server.port, tls=tls)
        victim.send(clients.request('/wait?500' if size == 'long' else '/wait',
                                    headers='Connection: close\r\n'))
        server.wait_figure('HeldHandler', 1)
        replace(server)
        server.let_go()
        reply = victim.reply()
        check(reply.status == 200 and reply.complete, reply)
        check(len(reply.body) >= (512000 if size == 'long' else 6), reply)
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_a_victim_that_was_spared_and_does_not_read_is_cut(mpm):
    with Server(mpm, workers=8, lines=ONE_PLACE) as server:
        server.hold()
        victim = clients.slow_reader(server.port, '/wait?30000')
        server.wait_figure('HeldHandler', 1)
        replace(server)
        server.let_go()
        end = victim.wait_closed(15)
        reply = clients.Reply(victim.data, end)
        check(end == 'rst' and not reply.complete, reply)
        server.wait_figure('Evictions', 1)
        server.wait_figure('Held', 0)


@cases('event', 'worker')
def test_a_victim_at_work_for_is_spared_over_http2(mpm):
    with Server(mpm, workers=8, http2=True, lines=ONE_PLACE) as server:
        server.hold()
        victim = subprocess.Popen(
            ['curl', '-s', '-m', '30', '--http2-prior-knowledge', '-w', '%{http_code}',
             server.url('/wait?500')], stdout=subprocess.PIPE)
        server.wait_figure('HeldHandler', 1)
        replace(server)
        server.let_go()
        body = victim.communicate()[0]
        check(victim.returncode == 0 and body.endswith(b'x200'), victim.returncode, body[-80:])
        check(len(body) > 512000, len(body))
        server.wait_figure('Held', 0)


@cases(*(f'{mpm}-{scheme}' for mpm in MPMS for scheme in ('http', 'https')))
def test_a_response_with_a_length_is_truncated(case):
    mpm, scheme = case.split('-')
    tls = scheme == 'https'
    with Server(mpm, workers=8, tls=tls, lines=ONE_PLACE) as server:
        victim = clients.slow_reader(server.tls_port if tls else server.port,
                                     '/echo-size?30000', tls=tls)
        server.wait_figure('HeldResponse', 1)
        replace(server)
        end = victim.wait_closed(15)
        reply = clients.Reply(victim.data, end)
        check(end != 'open' and not reply.complete, reply)


@cases(*(f'{mpm}-{host}' for mpm in ('worker', 'prefork') for host in ('127.0.0.1', '::1')))
def test_a_victim_that_keeps_its_worker_closing_is_cut(case):
    """It was answered, and sends on for as long as httpd puts up with: 30 seconds."""
    mpm, host = case.split('-')
    more = ['Listen [::1]:${PORT}'] if host == '::1' else []
    with Server(mpm, workers=8, lines=ONE_PLACE + more) as server, \
            socket.create_connection((host, server.port), timeout=10) as victim:
        victim.sendall(clients.request('/', headers='Connection: close\r\n'))
        while victim.recv(65536):
            pass
        # httpd gives up whoever says nothing for two seconds.
        poll(lambda: (victim.sendall(b'x'), server.figure('Held'))[1], lambda n: n == 1)
        replace(server)
        began = time.monotonic()
        poll(lambda: is_gone(victim), bool, say='the end of its connection')
        check(time.monotonic() - began < 12, 'it was httpd that ended it')
        server.wait_figure('Evictions', 1)
        server.wait_figure('Held', 0)


def is_gone(sock):
    try:
        sock.sendall(b'x')
    except OSError:
        return True
    return False


@cases(*MPMS)
def test_a_tail_in_the_kernel_is_not_lost(mpm):
    """An eviction of others takes nothing from whoever has been served."""
    with Server(mpm, workers=8, lines=ONE_PLACE) as server:
        served = clients.slow_reader(server.port, '/index.html',
                                     headers='Connection: close\r\n')
        select.select([served.sock], [], [], 10)
        holder = clients.half_head(server.port)     # where it lingers, in its place
        server.wait_figure('HeldHead', 1)
        reply = served.reply()
        check(reply.status == 200 and reply.complete and reply.end == 'fin', reply)
        holder.close()

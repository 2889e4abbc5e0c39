"""Whoever is refused is told, and cannot make a weapon of it."""

import threading

from t import clients
from t.httpd import free_port
from t.it_common import (FRIEND, LONG_ROUND, MPMS, Robots, Server, cases, check, curl, full_house,
                         limit, poll)

ONE_PLACE = ['SevenServerLimit 1', 'SevenReserve 0', LONG_ROUND,
             'SevenServiceTime 20s']


def check_refusal(reply, seconds='1'):
    check(reply.status == 503 and reply.complete, 'not a whole 503:', reply)
    check(reply.headers.get('retry-after') == seconds, 'Retry-After:', reply)
    check(reply.headers.get('connection', '').lower() == 'close', 'Connection:', reply)
    check(reply.end == 'fin', 'no orderly end:', reply)


def collect(server, count, ask, late=2):
    """Ask until so many were refused. Whoever was let in leaves a place free:
    then it is taken again. So many may be cut off without a word, since the leash is
    short where much else goes on, and more so for a handshake."""
    refused, asked = [], 0
    holders = full_house(server, 1)
    while len(refused) < count:
        asked += 1
        check(asked < 4 * count + 20, 'hardly anybody is refused')
        reply = ask()
        if reply.status == 200:
            server.wait_figure('Held', 0)    # or its successor might be refused
            holders.append(clients.half_head(server.port))
            server.wait_figure('Held', 1)
        elif reply.status is not None or late == 0:
            refused.append(reply)
        else:
            late -= 1
    leave(server, holders)
    return refused


def leave(server, holders):
    for holder in holders:
        holder.close()
    server.wait_figure('Held', 0)
    server.wait_figure('Leashed', 0)


@cases(*(f'{mpm}-{scheme}' for mpm in MPMS for scheme in ('http', 'https')))
def test_refused_are_told(case):
    mpm, scheme = case.split('-')
    tls = scheme == 'https'
    with Server(mpm, workers=10, tls=tls, lines=ONE_PLACE + ['SevenRetryAfter 7']) as server:
        port = server.tls_port if tls else server.port
        late = 20 if tls else 2
        for reply in collect(server, 10, lambda: clients.ask(port, '/', tls), late):
            check_refusal(reply, '7')
        for reply in collect(server, 5, lambda: clients.ask(port, '/', tls, headers=''),
                             late):
            check_refusal(reply, '7')


@cases('POST', 'HEAD', '1.0')
def test_refused_whatever_they_ask(what):
    how = {'POST': {'method': 'POST', 'body': b'x' * 5000, 'path': '/upload'},
           'HEAD': {'method': 'HEAD'}, '1.0': {'version': '1.0'}}[what]

    def ask():
        with clients.Client(server.port) as client:
            client.send(clients.request(**{'path': '/', **how}))
            client.wait_closed(5)
            return clients.Reply(client.data, client.end, what == 'HEAD')

    with Server(workers=10, lines=ONE_PLACE) as server:
        for reply in collect(server, 5, ask):
            check_refusal(reply)


@cases(*(f'{mpm}-{scheme}' for mpm in ('event', 'worker') for scheme in ('h2', 'h2c')))
def test_refused_over_http2(case):
    mpm, scheme = case.split('-')
    tls = scheme == 'h2'
    option = '--http2' if tls else '--http2-prior-knowledge'

    def ask():
        status, code, version, text = curl(server.url('/', tls), option)
        check(status != 0 or version == '2', 'not HTTP/2:', version)
        reply = clients.Reply(b'', 'fin')
        reply.status, reply.text = None if status else code, text.lower()
        return reply

    with Server(mpm, workers=10, tls=tls, http2=True, lines=ONE_PLACE) as server:
        for reply in collect(server, 5, ask, 20):
            check(reply.status == 503, reply.status, reply.text)
            check('retry-after: 1' in reply.text, reply.text)
            check('</html>' in reply.text, 'no body:', reply.text)


@cases(*MPMS)
def test_many_refused_at_once(mpm):
    """More than may be on the leash: told without being listened to."""
    with Server(mpm, workers=10, lines=ONE_PLACE) as server:
        holders = full_house(server, 1, pmod=500)
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(
            clients.ask(server.port))) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        told = [reply for reply in replies if reply.status == 503]
        # Once somebody gets in and leaves, a place is free for the next; and one may be
        # cut off whose worker was kept from it for as long as the leash.
        check(len(told) >= 10 and len(replies) == 60 and
              sum(reply.status in (200, 503) and reply.complete for reply in replies) >= 59,
              [reply for reply in replies if reply.status != 503][:5])
        for reply in told:
            check_refusal(reply)
        leave(server, holders)


@cases(*(f'{mpm}-{kind}' for mpm in MPMS
         for kind in ('head', 'body', 'hello', 'told', 'tls')))
def test_refused_that_stall(case):
    """They are cut after a moment, all of them, and others are answered."""
    mpm, kind = case.split('-')
    tls = kind in ('hello', 'tls')
    open_one = {'told': clients.idle, 'tls': clients.half_head}.get(kind) or (
        clients.KINDS[kind])

    def stall():
        try:
            return open_one(server.tls_port if tls else server.port, timeout=5,
                            **({'tls': True} if kind == 'tls' else {}))
        except OSError:
            return None      # cut within its handshake

    with Server(mpm, workers=10, tls=tls, lines=ONE_PLACE) as server:
        holders = full_house(server, 1, pmod=500)
        stalled, answers = [], []
        for n in range(60):
            stalled.append(stall())
            if n % 6 == 5:
                answers.append(clients.ask(server.port, timeout=8))
        check(sum(reply.status in (200, 503) for reply in answers) >= len(answers) - 1,
              'others are not answered:', answers)
        stalled = [client for client in stalled if client]
        # One or two may have been let in.
        poll(lambda: sum(client.is_open() for client in stalled), lambda n: n <= 3,
             say='that those who stall were cut')
        leave(server, stalled + holders)
        poll(lambda: int(server.server_status()['BusyWorkers']), lambda n: n <= 2)


@cases(*MPMS)
def test_exempt_are_never_refused(mpm):
    with Server(mpm, workers=10, lines=ONE_PLACE) as server:
        holders = full_house(server, 1)
        replies = [clients.ask(server.port, source=FRIEND) for _ in range(30)]
        check(all(reply.status == 200 for reply in replies), replies)
        server.wait_figure('Held', 1)
        leave(server, holders)


@limit(90)
def test_refused_over_a_distance():
    """The leash is long enough for a handshake over 60 ms."""
    with Server(workers=10, lines=ONE_PLACE) as server:
        port = free_port()
        with Robots('relay', listen=port, to=server.port, delay_ms=40, seconds=60):
            poll(lambda: clients.ask(port, timeout=5).status, lambda code: code == 200)
            replies = collect(server, 5, lambda: clients.ask(port))
            for reply in replies:
                check_refusal(reply)

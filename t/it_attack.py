"""A full server goes on serving, whatever it is full of."""

import threading
import time

from t import clients
from t.it_common import (MPMS, Robots, Server, cases, check, check_served, crowd,
                         curl, honest, limit, poll)


def under_attack(server, kind, tls=False, honest_tls=False, least=None, count=20):
    """Attack, wait until it tells, and ask; then let go and see all places back."""
    with crowd(server, kind, tls=tls) as attack:
        server.wait_figure('Evictions', lambda n: n >= 5)
        replies = honest(server, count, tls=honest_tls)
        ends = dict(attack.ends)
        figures = server.figures()
    print(figures, ends)
    check_served(replies, least)
    check(0 < figures['EvictToFreeP50us'] < 1000000,
          'workers of victims are not freed:', figures['EvictToFreeP50us'])
    check(figures['Held'] <= figures['Places'], figures)
    server.wait_figure('Held', 0)
    return figures, ends


@cases(*(f'{mpm}-{kind}' for mpm in MPMS for kind in ('head', 'body', 'read', 'hello')))
def test_full_server_serves(case):
    mpm, kind = case.split('-')
    with Server(mpm, tls=kind == 'hello') as server:
        figures, ends = under_attack(server, kind)
        if kind != 'read':
            # In the middle of a handshake a refused client cannot be told.
            resets = figures['Refusals'] if kind == 'hello' else 0
            check(ends.get('rst', 0) <= resets, 'victims that were read from were reset:', ends)
            check(ends.get('fin', 0) >= 3, 'victims were not closed:', ends)


@cases(*(f'{mpm}-{kind}' for mpm in MPMS for kind in ('head', 'body', 'read')))
def test_full_https_server_serves(case):
    mpm, kind = case.split('-')
    with Server(mpm, tls=True) as server:
        under_attack(server, kind, tls=True, honest_tls=True)


@cases('uniform', 'roulette', 'tournament', 'tournament 3', 'tournament 10')
def test_strategy(strategy):
    with Server(lines=[f'SevenStrategy {strategy}']) as server:
        under_attack(server, 'head')
        status = server.seven_status()
        check(status['Strategy'] == strategy.split()[0], status)


@cases('uniform', 'roulette', 'tournament', 'tournament 1', 'tournament 10')
def test_strategy_as_published(strategy):
    """Without a reserve P1 and P2 decide, and some of the honest are refused."""
    # Workers enough beyond the places: were all of them busy, the accept queue would relieve.
    with Server(workers=24, lines=[f'SevenStrategy {strategy}', 'SevenReserve 0',
                                   'SevenServerLimit 10']) as server:
        figures, _ = under_attack(server, 'body', least=11)
        check(figures['Relieved'] == 0, 'a reserve of 0 relieves:', figures)
        check(figures['Replaced'] > 0, figures)


@cases(*MPMS)
def test_the_law_decides_for_those_who_cannot_ask(mpm):
    """Every worker is held, by clients that are not past t_M, and places are free."""
    with Server(mpm, workers=6, server_limit=12 if mpm == 'prefork' else 3,
                lines=['SevenServerLimit 7', 'SevenServiceTime 60s']) as server:
        slow = [clients.half_head(server.port) for _ in range(6)]
        replies = honest(server, 3, every=0)
        check_served(replies, 3)
        check(server.figure('Relieved') >= 1, server.figures())
        for client in slow:
            client.close()


@cases(*(f'{mpm}-{where}' for mpm in MPMS for where in ('at', 'below', 'above')))
def test_limit_near_workers(case):
    """No lock-up at any head-room; and advice at start-up."""
    mpm, where = case.split('-')
    places = {'below': 9, 'at': 10, 'above': 11}[where]
    room = 15 if mpm == 'prefork' else 3
    with Server(mpm, workers=10, server_limit=room,
                lines=[f'SevenServerLimit {places}']) as server:
        # Held is one less than the workers while somebody asks for it.
        with crowd(server, 'head', rate=25):
            server.wait_figure('Evictions', lambda n: n >= 5)
            replies = honest(server, 20)
        check_served(replies, 17)
        server.wait_figure('Held', 0)
        advice = [line for line in server.seven_log() if ':warn]' in line and
                  'leave at least 2' in line]
        check(len(advice) == 1, 'no advice at start-up, or too much:',
              server.seven_log()[:5])
        check(f'is {places} ' in advice[0] and ' 10 workers' in advice[0], advice)


@cases('event', 'worker')     # mod_http2 does not do prefork
def test_http2_clients_are_served(mpm):
    with Server(mpm, tls=True, http2=True) as server:
        with crowd(server, 'head', tls=True):
            server.wait_figure('Evictions', lambda n: n >= 5)
            answers = [curl(server.url('/', tls=True), '--http2') for _ in range(10)]
        good = [answer for answer in answers if answer[:3] == (0, 200, '2')]
        check(len(good) >= 9, answers)
        server.wait_figure('Held', 0)


@cases(*(f'{mpm}-{kind}' for mpm in ('event', 'worker')
         for kind in ('body', 'file', 'memory')))
def test_http2_slow_streams(case):
    """A stream whose body does not come, or whose response no window is given."""
    mpm, kind = case.split('-')
    with Server(mpm, http2=True) as server:
        attackers = []
        for _ in range(30):
            attacker = clients.H2Client(server.port, window=100)
            attacker.acknowledge()
            if kind == 'body':
                stream = attacker.ask('/upload', body_length=1000000)
                attacker.send(clients.h2_frame(clients.H2_DATA, 0, stream, b'x'))
            else:
                attacker.ask('/huge.bin' if kind == 'file' else '/echo-size?1000')
            attackers.append(attacker)
            time.sleep(0.02)
        check_served(honest(server, 10, timeout=3))
        answers = [curl(server.url('/echo-size?1'), '--http2-prior-knowledge',
                        timeout=3)[:3]
                   for _ in range(10)]
        check(answers.count((0, 200, '2')) >= 9, answers)
        figures = server.figures()
        print(figures)
        # Their handlers wait for them: they are not busy.
        server.wait_figure('HeldHandler', 0)
        for attacker in attackers:
            attacker.close()
        server.wait_figure('Held', 0)


@cases('head', 'body', 'read')
def test_a_burst(kind):
    """More attackers than workers, all at once."""
    with Server() as server:
        burst = [clients.KINDS[kind](server.port) for _ in range(60)]
        check_served(honest(server, 10), 8)
        for client in burst:
            client.close()
        server.wait_figure('Held', 0)


@cases('slowloris', 'post', 'read', 'tuned')
@limit(90)
def test_slowhttptest(kind):
    """The attacks of the benchmark, for a few seconds."""
    options, path = {
        'slowloris': (['-H', '-i', '10'], '/'),
        'post': (['-B', '-i', '10', '-s', '8192', '-x', '10'], '/upload'),
        'tuned': (['-B', '-i', '1', '-s', '1000000', '-x', '3000'], '/upload'),
        'read': (['-X', '-w', '512', '-y', '1024', '-n', '5', '-z', '32', '-k', '1'],
                 '/huge.bin')}[kind]
    with Server(workers=20) as server:
        attack = Robots.command(['slowhttptest', *options, '-c', '200', '-r', '25',
                                 '-l', '8', '-p', '3', '-v', '0', '-u',
                                 server.url(path)])
        with attack:
            server.wait_figure('Evictions', lambda n: n >= 5, 20)
            check_served(honest(server, 40, every=0.02), 37)
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_busy_handlers_are_last(mpm):
    """Whoever the server is at work for is spared while anybody else is left."""
    with Server(mpm, lines=['SevenReserve 0', 'SevenStrategy uniform']) as server:
        replies = []
        busy = [threading.Thread(target=lambda: replies.append(
            clients.ask(server.port, '/sleep?4000', timeout=20))) for _ in range(4)]
        for thread in busy:
            thread.start()
        server.wait_figure('HeldHandler', 4)
        with crowd(server, 'head', rate=40):
            server.wait_figure('Evictions', lambda n: n >= 40)
            check(server.figure('HeldHandler') == 4 or len(replies) > 0,
                  server.figures())
            for thread in busy:
                thread.join(20)
        check(len(replies) == 4 and all(reply.status == 200 for reply in replies),
              replies)


@cases(*MPMS)
def test_pipelined_requests(mpm):
    with Server(mpm) as server:
        end, data = clients.pipelined(server.port, ['/'] * 5)
        check(end == 'fin' and data.count(b'HTTP/1.1 200') == 5, end, data[:200])
        with crowd(server, 'head'):
            server.wait_figure('Evictions', lambda n: n >= 5)
            good = 0
            for _ in range(5):
                end, data = clients.pipelined(server.port, ['/'] * 5)
                good += data.count(b'HTTP/1.1 200') == 5
        check(good >= 4, 'only', good, 'of 5 pipelines were answered')
        poll(lambda: server.figure('Held'), lambda n: n == 0)


@cases(*(f'{mpm}-{kind}' for mpm in MPMS for kind in ('head', 'body', 'hello')))
def test_beside_mod_reqtimeout(case):
    """Debian has it on. It reads heads in its own way."""
    mpm, kind = case.split('-')
    with Server(mpm, tls=kind == 'hello', modules=['reqtimeout'],
                lines=['RequestReadTimeout header=20-40,minrate=500',
                       'RequestReadTimeout body=10,minrate=500']) as server:
        under_attack(server, kind)


@cases(*MPMS)
def test_busy_beside_mod_reqtimeout(mpm):
    """A handler is busy, and an idle or stalled client is not, with it too."""
    with Server(mpm, modules=['reqtimeout'],
                lines=['RequestReadTimeout header=20-40,minrate=500', 'SevenReserve 0',
                       'KeepAliveTimeout 60']) as server:
        others = [clients.half_head(server.port), clients.idle(server.port)]
        server.hold()
        busy = clients.slow_reader(server.port, '/wait')
        held = 2 if mpm == 'event' else 3
        poll(server.figures, lambda figures: figures['HeldHandler'] == 1 and
             figures['HeldHead'] == held - 1 and figures['Overdue'] == held - 1)
        server.let_go()
        check(busy.reply().status == 200)
        for client in others + [busy]:
            client.close()
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_stalled_chunk_beside_mod_reqtimeout(mpm):
    """Half a chunk-size line is a client that keeps its worker waiting, not a busy handler."""
    with Server(mpm, modules=['reqtimeout', 'cgid'],
                lines=['RequestReadTimeout header=20-40,minrate=500 body=60',
                       'SevenReserve 0']) as server:
        victims = []
        for start in (b'', b'1', b'5\r\nab'):
            victim = clients.Client(server.port)
            victim.send(clients.request('/cgi-bin/sleep.sh?0', 'POST',
                                        headers='Transfer-Encoding: chunked\r\n') + start)
            victims.append(victim)
        server.wait_figure('HeldBody', 3)
        server.wait_figure('Overdue', 3)
        for victim in victims:
            victim.close()
        server.wait_figure('Held', 0)


def test_behind_mod_remoteip():
    """Whoever a proxy names is not who connects: exempt is the connection's address."""
    with Server(modules=['remoteip'],
                lines=['RemoteIPHeader X-Forwarded-For']) as server:
        for _ in range(3):
            clients.ask(server.port, '/index.html',
                        headers='X-Forwarded-For: 127.0.0.2\r\nConnection: close\r\n')
        check(server.figure('Admitted') == 3, server.figures())

"""Whom the module must not touch: the honest, the slow but honest, everybody when
nobody attacks, and anybody at all when it is told only to look."""

import threading
import time

from t import clients
from t.httpd import free_port
from t.it_common import (LONG_ROUND, MPMS, Robots, Server, cases, check, check_served, crowd,
                         full_house, honest, limit, poll)


def slow_download(port, seconds, speed=20000, tls=False):
    """Read evenly for so long. True if the server kept its side open."""
    with clients.Client(port, tls, receive_buffer=4096) as client:
        client.send(clients.request('/huge.bin'))
        end = time.monotonic() + seconds
        while time.monotonic() < end and not client.end:
            client.read(speed // 20, 2)
            time.sleep(0.05)
        return client.end is None and len(client.data) > seconds * speed / 6


def in_threads(functions):
    """Run all at once: their results."""
    results = []
    threads = [threading.Thread(target=lambda f=function: results.append(f()))
               for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@cases(*(f'{mpm}-{kind}' for mpm in MPMS for kind in ('head', 'body')))
def test_slow_uploads_survive_a_small_attack(case):
    mpm, kind = case.split('-')
    with Server(mpm, workers=20) as server:
        with crowd(server, kind, rate=4):
            server.wait_figure('Evictions', lambda n: n >= 5, 20)
            with Robots('upload', url=server.url('/upload'), rate=3, seconds=2,
                        bytes=40000, speed=20000, limit=20) as robots:
                figures = robots.figures()
        check(figures['served'] == figures['offered'] >= 5, figures)


@cases('http2', 'https')
def test_slow_uploads_over(protocol):
    with Server(workers=20, tls=True, http2=True) as server:
        with crowd(server, 'head', rate=4):
            server.wait_figure('Evictions', lambda n: n >= 5, 20)
            with Robots('upload', url=server.url('/upload', tls=True), rate=3,
                        seconds=2, bytes=40000, speed=20000, limit=20, insecure=True,
                        **({'http2': True} if protocol == 'http2' else {})) as robots:
                figures = robots.figures()
        check(figures['served'] == figures['offered'] >= 5, figures)


@cases(*MPMS)
def test_slow_downloads_survive_a_small_attack(mpm):
    with Server(mpm, workers=20) as server:
        with crowd(server, 'head', rate=4):
            server.wait_figure('Evictions', lambda n: n >= 5, 20)
            kept = in_threads([lambda: slow_download(server.port, 4)] * 4)
        check(kept == [True] * 4, kept, server.figures())


@cases(*MPMS)
def test_nobody_is_touched_without_attack(mpm):
    """Slow uploads and downloads, kept-alive and stalled clients, and honest ones:
    as long as there is a reserve, nobody has to go."""
    with Server(mpm, workers=20, tls=True, lines=['KeepAliveTimeout 60']) as server:
        others = [clients.half_head(server.port), clients.slow_body(server.port),
                  clients.stalled_hello(server.tls_port)]
        others += [clients.idle(server.port) for _ in range(2)]
        with Robots('upload', url=server.url('/upload'), rate=1, seconds=3,
                    bytes=60000, speed=20000, limit=20) as robots:
            kept = in_threads([lambda: slow_download(server.port, 4)] * 2)
            check_served(honest(server, 15), 15)
            check_served(honest(server, 5, tls=True), 5)
            uploads = robots.figures()
        figures = server.figures()
        check(all(other.is_open() for other in others), 'somebody was closed', figures)
        check(kept == [True] * 2, kept)
        check(uploads['served'] == uploads['offered'], uploads)
        check(figures['Evictions'] == figures['Refusals'] == figures['Relieved'] == 0 and
              figures['Replaced'] == figures['ParkedClosed'] == 0, figures)
        lines = server.seven_log()
        check(len(lines) == 1 and ':notice]' in lines[0], lines)
        for other in others:
            other.close()
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_detect_only_touches_nobody(mpm):
    with Server(mpm, workers=36, lines=['SevenEngine DetectOnly', 'SevenServerLimit 3',
                                        'SevenReserve 0', LONG_ROUND]) as server:
        slow = [clients.half_head(server.port) for _ in range(28)]
        slow += [clients.slow_body(server.port) for _ in range(2)]
        replies = honest(server, 30, every=0)
        check_served(replies, 30)
        check(all(client.is_open() for client in slow), 'somebody was closed')
        status = server.seven_status()
        check(status['Engine'] == 'DetectOnly', status)
        figures = server.figures()
        check(figures['Evictions'] == figures['ParkedClosed'] == 0, figures)
        check(figures['Replaced'] > 0 and figures['Refusals'] > 0, figures)
        check(figures['Leashed'] == 0, figures)
        log = server.error_log()
        check('is refused' in log and 'in place of' in log and '127.0.0.1' in log,
              'the log does not say what would have been')
        for line in server.seven_log():
            check('evicted' not in line or 'would have evicted' in line, line)
        poll(server.error_log, lambda text: 'would have evicted 127.0.0.1' in text)
        poll(server.error_log, lambda text: 'DetectOnly: nobody is touched' in text,
             say='the warning that says so')
        slow[0].send(b'\r\n')
        check(slow[0].reply().status == 200)
        for client in slow:
            client.close()


def test_detect_only_counts_relief():
    """Clients past t_M would be evicted for the reserve: counted, and left alone."""
    with Server(workers=14, lines=['SevenEngine DetectOnly',
                                   'SevenServerLimit 4']) as server:
        slow = [clients.half_head(server.port) for _ in range(8)]
        server.wait_figure('Relieved', lambda n: n >= 1)
        check_served(honest(server, 10, every=0), 10)
        check(all(client.is_open() for client in slow), 'somebody was closed')
        check(server.figure('Evictions') == 0, server.figures())
        for client in slow:
            client.close()


def test_engine_off():
    with Server(lines=['SevenEngine Off']) as server:
        slow = [clients.half_head(server.port) for _ in range(8)]
        check_served(honest(server, 10, every=0), 10)
        for query in ('', '?auto'):
            page = server.get('/seven-status' + query)
            check('Off' in page, page)
        check('mod_seven' not in server.get('/server-status'),
              'a section in mod_status of an engine that is off')
        check(all(client.is_open() for client in slow), 'somebody was closed')
        check(server.seven_log() == [], server.seven_log())
        for client in slow:
            client.close()


def test_engine_switched_by_restarts():
    with Server(server_limit=8) as server:
        for engine in ('Off', 'On', 'DetectOnly', 'On', 'Off'):
            server.change([f'SevenEngine {engine}'])
            server.graceful()
            poll(lambda: server.seven_status(), lambda s, e=engine: s['Engine'] == e)
            check_served(honest(server, 3, every=0), 3)
        check('exit signal' not in server.error_log())


def test_below_the_limit_it_only_counts():
    with Server(lines=['SevenReserve 0', 'SevenServerLimit 10']) as server:
        slow = [clients.half_head(server.port) for _ in range(7)]
        check_served(honest(server, 20, every=0), 20)
        figures = poll(server.figures, lambda f: f['Held'] == f['Overdue'] == 7)
        check(figures['Offers'] == figures['Admitted'] >= 27, figures)
        check(figures['Evictions'] == figures['Refusals'] == 0, figures)
        check(all(client.is_open() for client in slow), 'somebody was closed')
        for client in slow:
            client.close()


@cases('large-read', 'large-body')
def test_large_and_fast(kind):
    """Whoever moves much quickly is not slow."""
    with Server(workers=12) as server:
        with crowd(server, 'head', rate=5):
            server.wait_figure('Evictions', lambda n: n >= 5)
            done = 0
            for _ in range(4):
                if kind == 'large-read':
                    reply = clients.ask(server.port, '/huge.bin', timeout=20)
                    done += reply.status == 200 and len(reply.body) == 16 << 20
                else:
                    reply = clients.ask(server.port, '/upload', method='POST',
                                        body=b'x' * 4000000, timeout=20)
                    done += b'received 4000000' in reply.body
        check(done >= 3, 'only', done, 'of 4 were done')


@limit(90)
def test_honest_clients_far_away():
    """300 ms round trips, under attack from near."""
    port = free_port()
    with Server(workers=20) as server, \
            Robots('relay', listen=port, to=server.port, delay_ms=150, seconds=60):
        poll(lambda: clients.ask(port).status, lambda code: code == 200)
        with crowd(server, 'head', rate=10):
            server.wait_figure('Evictions', lambda n: n >= 5)
            with Robots('honest', url=f'http://127.0.0.1:{port}/', rate=5, seconds=5,
                        limit=20) as robots:
                figures = robots.figures()
        check(figures['served'] >= 0.8 * figures['offered'] > 0, figures)


def test_full_of_the_young_is_decided_by_law():
    """No holder is past t_M: the reserve takes nothing, and P1 decides."""
    with Server(workers=10, lines=['SevenServerLimit 4', 'SevenServiceTime 60s',
                                   LONG_ROUND]) as server:
        holders = full_house(server, 4, pmod=100)
        figures = server.figures()
        check(figures['Relieved'] == 0, figures)
        check(figures['Replaced'] > 0 and figures['Refusals'] > 50, figures)
        for holder in holders:
            holder.close()
        server.wait_figure('Held', 0)

"""Places: who holds one, who does not, and that all come back."""

import contextlib
import os
import random
import signal
import tempfile
import threading
import time

from t import clients
from t.httpd import TOP, free_port
from t.it_common import (FRIEND, LONG_ROUND, MPMS, Robots, Server, cases, check, check_served,
                         crowd, full_house, honest, limit, poll, served)

PROXY = ['proxy', 'proxy_http']
SLOW = f'LoadModule slow_module {os.path.join(TOP, "build", "mod_slow.so")}'


# ---- who holds a place ------------------------------------------------------------

def test_kept_alive_hold_no_place_under_event():
    with Server('event', lines=['KeepAliveTimeout 60']) as server:
        idle = [clients.idle(server.port) for _ in range(20)]
        server.wait_figure('Held', 0)
        check_served(honest(server, 10))
        for client in idle:
            client.data = b''
            client.send(clients.request('/'))
            reply = client.reply()
            check(reply.status == 200 and reply.complete, reply)
        figures = server.figures()
        check(figures['Evictions'] == figures['ParkedClosed'] == figures['Refusals'] == 0,
              figures)
        for client in idle:
            client.close()


@cases('h2c', 'h2')
def test_idle_http2_hold_no_place_under_event(scheme):
    with Server('event', http2=True, tls=True, lines=['KeepAliveTimeout 60']) as server:
        idle = []
        for _ in range(15):
            client = clients.H2Client(server.tls_port if scheme == 'h2' else server.port,
                                      tls=scheme == 'h2')
            client.acknowledge()
            check(client.wait_finished(client.ask('/')), client.data[:100], client.end)
            idle.append(client)
        server.wait_figure('Held', 0)
        for client in idle:
            check(client.wait_finished(client.ask('/')), client.frames()[-3:], client.end)
        server.wait_figure('Held', 0)
        check(server.figure('Evictions') == 0, server.figures())
        for client in idle:
            client.close()


@cases('worker', 'prefork')
def test_idle_kept_alive_make_room(mpm):
    with Server(mpm, lines=['SevenServerLimit 6', 'KeepAliveTimeout 60']) as server:
        idle = [clients.idle(server.port) for _ in range(4)]
        server.wait_figure('Held', 4)
        idle += [clients.idle(server.port) for _ in range(6)]
        check_served(honest(server, 10))
        ends = poll(lambda: [client.end for client in idle if not client.is_open()],
                    lambda ends: len(ends) >= 5)
        check(set(ends) == {'fin'}, ends)
        for client in idle:
            client.close()
        server.wait_figure('Held', 0)


@cases('event', 'worker')
def test_streams_share_one_place(mpm):
    with Server(mpm, http2=True) as server:
        client = clients.H2Client(server.port)
        client.acknowledge()
        server.hold()
        streams = [client.ask('/wait') for _ in range(4)]
        server.wait_figure('HeldHandler', 1)
        check(server.figure('Held') == 1, server.figures())
        server.let_go()
        check(client.wait_finished(*streams), client.frames())
        check(server.figure('Offers') <= 6, server.figures())
        client.close()
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_backend_connections_take_no_place(mpm):
    back = free_port()
    with Robots('echo', listen=back, seconds=60), \
            Server(mpm, modules=PROXY,
                   lines=[f'ProxyPass /back/ http://127.0.0.1:{back}/']) as server:
        poll(lambda: clients.ask(server.port, '/back/').status, lambda code: code == 200)
        before = server.figure('Offers')
        askers = [clients.Client(server.port) for _ in range(3)]
        for asker in askers:
            asker.send(clients.request('/back/?sleep=4000'))
        poll(server.figures, lambda f: f['HeldHandler'] == f['Held'] == 3)
        check(all(asker.reply().status == 200 for asker in askers))
        for asker in askers:
            asker.close()
        server.wait_figure('Held', 0)
        figures = server.figures()
        check(3 <= figures['Offers'] - before <= 6, before, figures)
        check(figures['Evictions'] == figures['Refusals'] == 0, figures)


def wait_answer(server):
    """Until the exempt are answered: after restarts that may take a while."""
    poll(lambda: clients.ask(server.port, '/index.html', source=FRIEND).status,
         lambda code: code == 200, 30, 'an answer')


@cases(*MPMS)
def test_own_wake_up_connections_take_no_place(mpm):
    """httpd wakes its children by connecting to itself, at a graceful restart and
    when there are too many of them."""
    how = {'server_limit': 30} if mpm == 'prefork' else {'server_limit': 6}
    with Server(mpm, workers=10, lines=['SevenServerLimit 1', 'SevenReserve 0',
                                        LONG_ROUND], **how) as server:
        holder = clients.half_head(server.port)
        server.wait_figure('Held', 1)
        before = server.figures()
        for _ in range(3):
            server.graceful()
            wait_answer(server)
        time.sleep(0.2)
        after = server.figures()
        check(before['Replaced'] == after['Replaced'] and
              before['Refusals'] == after['Refusals'], before, after)
        check(holder.is_open(), 'the only client was evicted for the server itself')
        holder.close()
        server.wait_figure('Held', 0)


# ---- servers that are slow themselves ----------------------------------------------

@contextlib.contextmanager
def slow_server(mpm, what, lines):
    """A server that waits, with SLOW_START or SLOW_ACCEPT, until the file is gone that
    is given with it."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o777)
        path = os.path.join(scratch, 'slow')
        with open(path, 'w'):
            pass
        with Server(mpm, workers=8, threads=4, env={what: path},
                    lines=[SLOW, 'SevenReserve 0', *lines]) as server:
            yield server, path + '.taken' * (what == 'SLOW_START')


def wait_queued(server, wanted):
    """Until so many wait in the accept queue; then the leader looks a few times more."""
    local = f'0100007F:{server.port:04X}'

    def queued():
        with open('/proc/net/tcp') as file:
            return sum(int(row[4].split(':')[1], 16) for row in map(str.split, file)
                       if row[1] == local and row[3] == '0A')
    poll(queued, lambda n: n >= wanted, say='an accept queue')
    time.sleep(0.5)


@cases('event', 'worker')
def test_a_child_that_is_slow_to_start_costs_nobody_a_place(mpm):
    """One child is full and connections wait, until the other has started: there are
    workers enough, so nobody need make room."""
    with slow_server(mpm, 'SLOW_START', ['SevenServerLimit 7']) as (server, path):
        slow = [clients.half_head(server.port) for _ in range(6)]
        wait_queued(server, 2)
        os.remove(path)
        server.wait_figure('Held', 6)
        figures = server.figures()
        check(figures['Relieved'] == figures['Evictions'] == 0, figures)
        check(all(client.is_open() for client in slow), 'somebody was closed')
        for client in slow:
            client.close()


@cases(*(f'{mpm}-{how}' for mpm in ('event', 'worker') for how in ('as it was', 'changed', 'off')))
def test_a_configuration_that_is_slow_to_read_costs_nobody_a_place(case):
    """All that there are belong to children of before, and nobody could be served in their
    place; later they must make room for new children, of which there can be no others."""
    mpm, how = case.split('-')
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        path = os.path.join(scratch, 'slow')
        # Holders in both children, and workers left to ask for the figures.
        with Server(mpm, workers=8, threads=4, server_limit=2, env={'SLOW_CONFIG': path},
                    lines=[SLOW, 'SevenServerLimit 8', 'SevenReserve 0']) as server:
            holders = [clients.half_head(server.port) for _ in range(6)]
            server.wait_figure('Held', 6)
            with open(path, 'w'):
                pass
            if how != 'as it was':
                server.change([SLOW, 'SevenServerLimit 7' if how == 'changed'
                               else 'SevenEngine Off'])
            server.process.send_signal(signal.SIGUSR1)
            poll(server.error_log, lambda text: 'SIGUSR1 received' in text)
            time.sleep(0.7)
            check(all(client.is_open() for client in holders), 'somebody was closed')
            os.remove(path)
            poll(lambda: clients.ask(server.port, timeout=3).status, lambda code: code == 200,
                 say='an answer')
            for client in holders:
                client.close()


@cases(*MPMS)
def test_workers_slow_to_accept_cost_nobody_a_place(mpm):
    """They are about to ask for their clients, and places are free."""
    with slow_server(mpm, 'SLOW_ACCEPT', ['SevenServerLimit 8',
                                          'SevenServiceTime 60s']) as (server, path):
        holders = [clients.half_head(server.port) for _ in range(4)]
        server.wait_figure('Held', 4)
        others = [clients.half_head(server.port, source=source)
                  for source in 4 * ['127.0.0.9'] + 2 * [FRIEND]]
        wait_queued(server, 2)
        for client in others:
            client.close()
        os.remove(path)
        figures = server.figures()
        check(figures['Relieved'] == 0, figures)
        check(all(client.is_open() for client in holders), 'somebody was closed')
        for client in holders:
            client.close()


@cases('event', 'worker')
def test_workers_that_httpd_takes_for_idle(mpm):
    """By their entries in the scoreboard there are none, and the MPM could start more: it
    does not, and all that there are are held."""
    with Server(mpm, workers=8, threads=4, server_limit=6,
                lines=[SLOW, 'SevenServerLimit 8', 'SevenReserve 0']) as server:
        holders = [clients.half_head(server.port, source='127.0.0.8') for _ in range(8)]
        reply = clients.ask(server.port, timeout=30)
        check(reply.status == 200, reply)
        for client in holders:
            client.close()


def child_of(server, client):
    """The child process that a connection's other end belongs to."""
    ours = client.sock.getsockname()[1]
    with open('/proc/net/tcp') as file:
        rows = [line.split() for line in file.readlines()[1:]]
    socket_of = {(int(row[1][9:], 16), int(row[2][9:], 16)): row[9] for row in rows}
    wanted = f'socket:[{socket_of[server.port, ours]}]'
    return next(child for child in server.children()
                if any(os.path.islink(f'/proc/{child}/fd/{fd}') and
                       os.readlink(f'/proc/{child}/fd/{fd}') == wanted
                       for fd in os.listdir(f'/proc/{child}/fd')))


def test_old_children_that_are_slow_to_end_cost_nobody_a_place():
    """prefork marks all of its old children alike, those that a client keeps and
    those that are about to end: these are no reason to evict the client."""
    with Server('prefork', workers=6, server_limit=12,
                lines=['SevenServerLimit 3', 'SevenReserve 0']) as server:
        holder = clients.half_head(server.port)
        server.wait_figure('Held', 1)
        idle = [child for child in server.children() if child != child_of(server, holder)]
        check(len(idle) == 5, idle)
        try:
            for child in idle:
                os.kill(child, signal.SIGSTOP)
            server.graceful()
            time.sleep(1.5)      # the lease of a leader that stands still is 0.5 s
            check(holder.is_open(), 'evicted for children that are about to end')
        finally:
            for child in idle:
                os.kill(child, signal.SIGCONT)
        poll(lambda: clients.ask(server.port, source=FRIEND).status,
             lambda status: status == 200)
        check(server.figure('Relieved') == 0, server.figures())
        holder.close()
        server.wait_figure('Held', 0)


def test_old_children_without_our_memory_are_no_promise():
    """Another limit, so another memory: the clients of old children are not known,
    and no reason to wait."""
    with Server('prefork', workers=10, server_limit=10,
                lines=['SevenServerLimit 8', 'SevenReserve 0',
                       'SevenServiceTime 60s']) as server:
        old = [clients.half_head(server.port) for _ in range(7)]
        server.wait_figure('Held', 7)
        server.change(['SevenServerLimit 7', 'SevenReserve 0'])
        server.graceful()
        new = [clients.half_head(server.port) for _ in range(3)]
        check_served(honest(server, 5), 5)
        check(all(client.is_open() for client in old), 'an old one was closed')
        for client in old + new:
            client.close()


@cases(*MPMS)
def test_exempt_are_never_victims(mpm):
    with Server(mpm) as server:
        friends = [clients.half_head(server.port, source=FRIEND) for _ in range(3)]
        friends.append(clients.slow_body(server.port, source=FRIEND))
        server.wait_figure('Exempt', 5)      # and the one that asks
        check(server.figure('Held') == 0, server.figures())
        with crowd(server, 'head', rate=30, most=8):
            server.wait_figure('Evictions', lambda n: n >= 15)
            check(all(friend.is_open() for friend in friends), 'an exempt was evicted')
        for friend in friends:
            friend.close()
        server.wait_figure('Exempt', 1)


def test_exempt_by_subnet():
    with Server(exempt=False, lines=['SevenExempt 127.0.0.0/30 2001:db8::/32']) as server:
        clients.ask(server.port, '/server-status', source='127.0.0.3')
        clients.ask(server.port, '/server-status', source='127.0.0.4')
        log = poll(server.access_log, lambda lines: len([
            line for line in lines if '127.0.0.3' in line or '127.0.0.4' in line]) >= 2)
        check('exempt 127.0.0.3 200 /server-status' in log, log)
        check('admitted 127.0.0.4 200 /server-status' in log, log)


# ---- tunnels ----------------------------------------------------------------------

def tunnels(server, **how):
    return Robots('idle', port=server.port, **how)


def proxied(mpm, back, **how):
    lines = how.pop('lines', [])
    return Server(mpm, modules=PROXY, lines=[
        f'ProxyPass /ws http://127.0.0.1:{back}/ws upgrade=ANY', 'ProxyTimeout 60',
        *lines], **how)


@cases(*MPMS)
def test_a_tunnel_in_use_is_no_victim(mpm):
    back = free_port()
    with Robots('echo', listen=back, seconds=60), proxied(mpm, back) as server:
        with tunnels(server, count=2, seconds=8, speed=30000) as used:
            server.wait_figure('HeldTunnel', 2)
            with crowd(server, 'head', rate=5):
                server.wait_figure('Evictions', lambda n: n >= 5)
                check_served(honest(server, 10))
                figures = used.figures()
        check(figures['alive'] == 2, figures)
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_an_idle_tunnel_may_make_room(mpm):
    back = free_port()
    with Robots('echo', listen=back, seconds=60), proxied(mpm, back) as server:
        with tunnels(server, count=10, seconds=5) as idle:
            poll(lambda: server.figures(), lambda f: f['HeldTunnel'] >= 6)
            with crowd(server, 'head', rate=20):
                server.wait_figure('Evictions', lambda n: n >= 20)
                check_served(honest(server, 10))
            figures = idle.figures()
        check(figures['alive'] <= 4, figures)
        server.wait_figure('Held', 0)


@cases(*MPMS)
def test_an_idle_tunnel_is_left_alone_without_attack(mpm):
    back = free_port()
    with Robots('echo', listen=back, seconds=60), proxied(mpm, back) as server:
        with tunnels(server, count=6, seconds=4) as idle:
            server.wait_figure('HeldTunnel', 6)
            check_served(honest(server, 10), 10)
            figures = idle.figures()
        check(figures['alive'] == 6, figures)
        check(server.figure('Evictions') == 0, server.figures())
        server.wait_figure('Held', 0)


# ---- places come back -----------------------------------------------------------------

@cases('clean', 'reset')
def test_places_come_back_from_those_who_leave(how):
    with Server(lines=['SevenReserve 0']) as server:
        for kind in ('head', 'body'):
            holders = [clients.KINDS[kind](server.port) for _ in range(8)]
            server.wait_figure('Held', 8)
            for holder in holders:
                holder.close(reset=how == 'reset')
            server.wait_figure('Held', 0)


@cases(*MPMS)
def test_a_killed_child_gives_its_places_back(mpm):
    with Server(mpm, lines=['SevenReserve 0']) as server:
        holders = [clients.half_head(server.port) for _ in range(10)]
        server.wait_figure('Held', 10)
        for pid in server.children()[:1 if mpm != 'prefork' else 6]:
            os.kill(pid, signal.SIGKILL)
        left = poll(lambda: sum(holder.is_open() for holder in holders),
                    lambda n: n < 10)
        server.wait_figure('Held', lambda n: n == sum(holder.is_open()
                                                      for holder in holders), 20)
        check(left < 10)
        check_served(honest(server, 10), 9)
        for holder in holders:
            holder.close()
        server.wait_figure('Held', 0)


@cases(*MPMS)
@limit(120)
def test_children_killed_under_attack(mpm):
    rng = random.Random(7)
    with Server(mpm, http2=mpm != 'prefork') as server:
        with crowd(server, 'head', rate=30), crowd(server, 'body', rate=10):
            for _ in range(12):
                alive = server.children()
                if alive:
                    os.kill(rng.choice(alive), signal.SIGKILL)
                clients.ask(server.port, timeout=3)
                time.sleep(0.2)
            replies = honest(server, 10)
        check(served(replies) >= 6, replies)
        server.wait_figure('Held', 0, 25)      # an orphan's takes 10 s
        server.wait_figure('Exempt', 1)
        check_served(honest(server, 10))


@cases(*MPMS)
@limit(120)
def test_children_recycled_under_attack(mpm):
    with Server(mpm, lines=[f'MaxConnectionsPerChild {5 if mpm == "prefork" else 60}'],
                server_limit=24 if mpm == 'prefork' else 8) as server:
        first = set(server.children())
        # Not more than the MPM can make up for with a new child each second.
        with crowd(server, 'head', rate=15, most=20):
            replies = []
            while first <= set(server.children()) or len(replies) < 100:
                check(len(replies) < 1000, 'no child was recycled')
                replies += honest(server, 10, every=0.01)
        check(served(replies) >= 0.9 * len(replies), served(replies))
        server.wait_figure('Held', 0)
        check('does not protect' not in server.error_log())


@cases('event', 'worker')
def test_all_children_at_the_end_of_their_lives(mpm):
    """Each has had its connections and waits for a slow client, and the MPM may have no
    other: the slow ones must go."""
    with Server(mpm, workers=4, threads=2, server_limit=2,
                lines=['MaxConnectionsPerChild 20', 'SevenServerLimit 3',
                       'SevenReserve 0']) as server:
        first = set(server.children())
        with crowd(server, 'head', rate=5, most=3):
            replies = []
            while first & set(server.children()):
                check(len(replies) < 400, 'the children were not replaced')
                replies += honest(server, 5, every=0.01, timeout=25)
        check(served(replies) >= 0.8 * len(replies), served(replies), 'of', len(replies))
        server.wait_figure('Held', 0)


@limit(90)
def test_children_that_serve_once():
    """A new child for each connection: none goes unprotected."""
    with Server('prefork', lines=['MaxConnectionsPerChild 1']) as server:
        check_served(honest(server, 24, every=0), 23)
        with crowd(server, 'head', rate=4, most=8):
            check_served(honest(server, 5, every=0.2), 4)
        server.wait_figure('Held', 0, 20)
        check('does not protect' not in server.error_log(), 'a child is not protected')


@cases(*MPMS)
def test_restarts_in_quick_succession(mpm):
    """Faster than old children can go: all are protected, then and later."""
    with Server(mpm, workers=10, server_limit=20 if mpm == 'prefork' else 4) as server:
        with crowd(server, 'head', rate=20, most=12):
            for _ in range(40):
                server.graceful()
        wait_answer(server)
        with crowd(server, 'head', rate=20, most=30):
            check_served(honest(server, 10, every=0.2, timeout=10), 8)
        server.wait_figure('Held', 0, 20)
        check('does not protect' not in server.error_log(), 'a child is not protected')


@cases(*MPMS)
def test_restart_while_full_to_the_last_worker(mpm):
    """The old generation has every worker, and has closed its listeners."""
    with Server(mpm, workers=4, timeout=300, server_limit=4,
                lines=['SevenServerLimit 4', 'SevenReserve 0']) as server:
        holders = [clients.half_head(server.port) for _ in range(4)]
        time.sleep(0.3)      # to ask whether they have their places would cost one
        server.graceful()
        poll(lambda: clients.ask(server.port, timeout=3).status, lambda code: code == 200,
             say='an answer')
        check_served(honest(server, 5, timeout=5), 4)
        for holder in holders:
            holder.close()
        server.wait_figure('Held', 0)


def memory(pid):
    """Kilobytes of a process of its own and shared, and its shared mappings."""
    with open(f'/proc/{pid}/status') as file:
        sizes = dict(line.split(':', 1) for line in file.read().splitlines())
    with open(f'/proc/{pid}/maps') as file:
        shared = [line for line in file if ' rw-s ' in line]
    return (int(sizes['VmRSS'].split()[0]), len(shared),
            sum(int(end, 16) - int(start, 16) for start, end in
                (line.split()[0].split('-') for line in shared)))


def ask_all_the_time(server, stop, replies):
    while not stop.wait(0.02):
        replies.append(clients.ask(server.port, timeout=15))


@cases('event 100', 'worker 20', 'prefork 30')
@limit(200)
def test_graceful_restarts_under_load(case):
    mpm, times = case.split()
    spare = {'event': 12, 'worker': 12, 'prefork': 60}[mpm]
    with Server(mpm, workers=10, tls=True, server_limit=spare,
                lines=['GracefulShutdownTimeout 5']) as server:
        stop, replies, readings = threading.Event(), [], []
        asker = threading.Thread(target=ask_all_the_time, args=(server, stop, replies))
        asker.start()
        try:
            with crowd(server, 'head', rate=15, most=8), crowd(server, 'read', 5, 4):
                for n in range(int(times)):
                    server.graceful()
                    server.get('/index.html', timeout=15)
                    if n % 10 == 9:
                        readings.append(memory(server.pid))
        finally:
            stop.set()
            asker.join(20)
        print(readings, served(replies), 'of', len(replies), server.figures())
        server.wait_figure('Held', 0, 20)
        poll(lambda: len(server.children()), lambda n: n <= (10 if mpm == 'prefork' else 3),
             say='that the old generations ended')
        # A newcomer among several in a round may be refused by law.
        check(served(replies) >= 0.95 * len(replies) - 2 and len(replies) > 5,
              served(replies), 'of', len(replies),
              [reply for reply in replies if reply.status != 200][:5])
        middle, last = readings[len(readings) // 2], readings[-1]
        check(last[0] <= middle[0] + 1500, 'memory grows:', readings)
        check(last[1:] == readings[0][1:], 'shared memory piles up:', readings)
        check_served(honest(server, 10))
        check('does not protect' not in server.error_log())
        crashes = [line for line in server.error_log().splitlines()
                   if 'exit signal' in line]
        check(not crashes, crashes)


@cases('event', 'prefork')
def test_limit_changed_by_a_restart(mpm):
    with Server(mpm, workers=10, server_limit=40 if mpm == 'prefork' else 8,
                lines=['SevenServerLimit 8', 'SevenServiceTime 60s']) as server:
        old = clients.half_head(server.port)    # never overdue: nobody may touch it
        server.wait_figure('Held', 1)
        shared = memory(server.pid)[1]
        for places in (4, 10, 1, 6, 3, 8):
            # The last with a reserve, so that no draw decides how many are served below.
            server.change([f'SevenServerLimit {places}',
                           *(['SevenReserve 0'] if places != 8 else [])])
            server.graceful()
            server.wait_figure('Places', places)
            server.wait_figure('Held', 0)
            check_served(honest(server, 3, every=0), 3)
        check(memory(server.pid)[1] <= shared + 1, 'shared memory piles up')
        check(old.is_open(), 'the old generation lost its client')
        old.send(b'\r\n')
        reply = old.reply()
        check(reply.status == 200 and reply.complete, reply)
        old.close()
        with crowd(server, 'head', rate=20):
            server.wait_figure('Evictions', lambda n: n >= 5)
            check_served(honest(server, 10), 7)
        server.wait_figure('Held', 0)


@cases('worker', 'prefork')       # event itself takes ten seconds
def test_stops_promptly_while_full(mpm):
    with Server(mpm) as server:
        holders = [clients.half_head(server.port) for _ in range(8)]
        server.wait_figure('Held', 8)
        began = time.monotonic()
        server.process.terminate()
        server.process.wait(20)
        check(time.monotonic() - began < 15, 'stopping took too long')
        for holder in holders:
            holder.close()


@cases(*MPMS)
def test_full_and_empty_again_and_again(mpm):
    """Full house, all leave at once: the count is right each time."""
    with Server(mpm, lines=['SevenServerLimit 1', 'SevenReserve 0', LONG_ROUND,
                            'SevenServiceTime 60s']) as server:
        for pmod in (100, 200, 300):
            holders = full_house(server, 1, pmod)
            check(server.figure('Held') == 1, server.figures())
            for holder in holders:
                holder.close()
            server.wait_figure('Held', 0)
            server.wait_figure('Leashed', 0)

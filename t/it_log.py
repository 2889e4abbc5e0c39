"""What the module says: error log, access log, status pages."""

import html.parser
import json
import re

from t import clients
from t.httpd import free_port
from t.it_common import (FRIEND, LONG_ROUND, MPMS, Robots, Server, cases, check, crowd,
                         full_house, limit, poll)


@limit(90)
def test_one_warning_and_one_notice_an_overload():
    with Server(log_level='notice') as server:
        for overload in (1, 2):
            before = server.figure('Evictions')
            with crowd(server, 'head', rate=25):
                server.wait_figure('Evictions', lambda n, b=before: n >= b + 30)
            poll(server.seven_log, lambda lines, o=overload: sum(
                'overload is over' in line for line in lines) == o, 30,
                'the end of the overload')
            lines = server.seven_log()[1:]
            check(len(lines) == 2 * overload, lines)
            warning, notice = lines[-2:]
            check(':warn]' in warning and ':notice]' in notice, lines)
            for line in (warning, notice):
                check(re.search(r'\d+ of 10 places', line) and 'refused: ' in line, line)


def test_decisions_are_told_with_their_address():
    with Server(log_level='warn seven:debug',
                lines=['SevenServerLimit 2', 'SevenReserve 0', LONG_ROUND,
                       'SevenServiceTime 60s']) as server:
        holders = full_house(server, 2, pmod=100)
        log = poll(server.error_log, lambda text: 'is refused' in text and
                   'is let in' in text and 'evicted 127.0.0.1' in text)
        for line in log.splitlines():
            if 'evicted 127.0.0.1' in line or 'places are taken' in line:
                check(':info]' in line or ':debug]' in line, line)
        for holder in holders:
            holder.close()


@cases('head', 'body', 'response', 'tunnel')
def test_victims_state_in_the_log(state):
    back = free_port()
    with Robots('echo', listen=back, seconds=30), \
            Server(modules=['proxy', 'proxy_http'],
                   lines=['SevenServerLimit 1', 'SevenReserve 0', LONG_ROUND,
                          f'ProxyPass /ws http://127.0.0.1:{back}/ws upgrade=ANY']
                   ) as server:
        server.patience = 1
        upgrade = 'Upgrade: websocket\r\nConnection: Upgrade\r\n'
        victim = {'head': lambda: clients.half_head(server.port),
                  'body': lambda: clients.slow_body(server.port),
                  'response': lambda: clients.slow_reader(server.port, '/echo-size?30000'),
                  'tunnel': lambda: clients.slow_reader(
                      server.port, '/ws', headers=upgrade)}[state]()
        server.wait_figure(f'Held{state.capitalize()}', 1)
        check(clients.ask(server.port).status == 200)
        log = poll(server.error_log, lambda text: 'evicted 127.0.0.1' in text)
        line = [line for line in log.splitlines() if 'evicted 127.0.0.1' in line][0]
        check(line.endswith(f'in its {"handshake or " * (state == "head")}{state}'), line)
        victim.close()


@cases(*MPMS)
def test_access_log(mpm):
    """%{seven}n: admitted, replaced, refused, exempt, evicted."""
    with Server(mpm, lines=['SevenServerLimit 1', 'SevenReserve 0', LONG_ROUND,
                            'SevenServiceTime 60s']) as server:
        check(clients.ask(server.port, '/index.html').status == 200)
        server.wait_figure('Held', 0)
        victim = clients.slow_body(server.port)
        server.wait_figure('HeldBody', 1)
        check(clients.ask(server.port, '/big.bin').status == 200)
        victim.wait_closed()
        server.wait_figure('Held', 0)    # or the next might be refused
        holders = full_house(server, 1)
        while clients.ask(server.port, '/index.html?refused').status != 503:
            server.wait_figure('Held', 0)    # it got in, and left a place free
            holders.append(clients.half_head(server.port))
            server.wait_figure('Held', 1)
        wanted = {'admitted 127.0.0.1 200 /index.html', 'replaced 127.0.0.1 200 /big.bin',
                  'refused 127.0.0.1 503 /index.html', f'exempt {FRIEND} 200 /seven-status'}
        poll(server.access_log, lambda lines: wanted <= set(lines) and any(
            re.match(r'evicted 127\.0\.0\.1 \d+ /upload', line) for line in lines))
        for holder in holders:
            holder.close()


class Balance(html.parser.HTMLParser):
    """Whether the tags of a page match."""

    VOID = {'hr', 'br', 'meta', 'link', 'img', 'input'}

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.wrong.append(tag)


NUMBERS = '''Places Workers Reserve Held Overdue HeldHead HeldBody HeldHandler
    HeldResponse HeldTunnel Exempt Leashed PMod ServiceTimeUs Offers Admitted Replaced
    Refusals Relieved Evictions ParkedClosed EvictToFreeP50us EvictToFreeP99us
    Tournament RoundUs MinRate'''.split()


def test_status_for_machines():
    with Server(lines=['SevenStrategy tournament 3', 'SevenRound 250ms', 'SevenMinRate 9000',
                       'SevenDropFactor wait=9 alpha=2']) as server:
        reply = clients.ask(server.port, '/seven-status?auto')
        check(reply.headers['content-type'].startswith('text/plain'), reply)
        for line in reply.body.decode().splitlines():
            check(re.fullmatch(r'[A-Za-z0-9]+: \S.*', line), 'not a key and a value:', line)
        status = server.seven_status()
        for name in NUMBERS:
            check(status.get(name, '').isdigit(), name, status.get(name))
        expected = {'Engine': 'On', 'Strategy': 'tournament', 'Tournament': '3',
                    'RoundUs': '250000', 'MinRate': '9000', 'ServiceTime': 'auto',
                    'DropFactor': 'wait=9 in=2 alpha=2 scale=0.453', 'Places': '10',
                    'Workers': '12'}
        wrong = {name: status.get(name) for name in expected
                 if status.get(name) != expected[name]}
        check(not wrong, wrong)


def test_status_as_json():
    with Server() as server:
        reply = clients.ask(server.port, '/seven-status?json')
        check(reply.headers['content-type'] == 'application/json', reply)
        status = json.loads(reply.body)
        text = server.seven_status()
        check(set(status) == set(text), set(status) ^ set(text))
        check(all(isinstance(status[name], int) for name in NUMBERS), status)
        check(status['Engine'] == 'On' and status['Places'] == 10, status)


def test_status_for_prometheus():
    with Server() as server:
        holder = clients.half_head(server.port)
        server.wait_figure('Held', 1)
        reply = clients.ask(server.port, '/seven-status?metrics')
        holder.close()
        check(reply.headers['content-type'].startswith('text/plain; version=0.0.4'), reply)
        lines = reply.body.decode().splitlines()
        values = dict(line.split(' ') for line in lines[1::2])
        for kind, line in zip(lines[::2], lines[1::2]):
            name = line.split(' ')[0]
            check(re.fullmatch(f'# TYPE {name} (gauge|counter)', kind), kind, line)
            check(name.endswith('_total') == kind.endswith('counter'), kind)
            check(re.fullmatch(r'seven(_[a-z0-9]+)+', name), name)
            float(values[name])
        check(len(values) == len(lines) / 2 == len(NUMBERS), len(values), len(lines))
        check(values['seven_places'] == '10' and values['seven_held'] == '2', values)
        check(int(values['seven_admitted_total']) >= 2, values)
        check(values['seven_round_seconds'] == '0.100000', values)


def test_status_for_people():
    with Server() as server:
        reply = clients.ask(server.port, '/seven-status')
        page = reply.body.decode()
        check(reply.headers['content-type'].startswith('text/html'), reply)
        check(reply.headers.get('cache-control') == 'no-store', reply)
        parsed = Balance(page)
        check(not parsed.open and not parsed.wrong, parsed.open, parsed.wrong)
        check(page.startswith('<!DOCTYPE html>') and 'Evictions' in page, page)
        reply = clients.ask(server.port, '/seven-status', method='POST', body=b'x')
        check(reply.status == 405, reply)
        reply = clients.ask(server.port, '/seven-status', method='HEAD',
                            headers='Connection: close\r\n', timeout=3)
        check(reply.status == 200, reply)


def test_section_in_mod_status():
    with Server() as server:
        page = server.get('/server-status')
        check('<h2>mod_seven' in page, page[-2000:])
        section = page[page.index('<h2>mod_seven'):]
        check('Evictions' in section, section)
        status = server.server_status()
        for name in ('SevenHeld', 'SevenPlaces', 'SevenEvictions'):
            check(status.get(name, '').isdigit(), name, status.get(name))
        check('Scoreboard' in status, 'mod_status lost its own figures', status)


def test_figures_by_phase():
    with Server(lines=['SevenReserve 0']) as server:
        server.hold()
        holders = [clients.half_head(server.port), clients.half_head(server.port),
                   clients.slow_body(server.port),
                   clients.slow_reader(server.port, '/echo-size?30000'),
                   clients.slow_reader(server.port, '/wait')]
        wanted = {'HeldHead': 2, 'HeldBody': 1, 'HeldResponse': 1, 'HeldHandler': 1,
                  'Held': 5}
        poll(server.figures, lambda figures: all(
            figures[name] == value for name, value in wanted.items()))
        server.let_go()
        for holder in holders:
            holder.close()


def test_start_up_is_told_in_one_notice():
    with Server() as server:
        lines = server.seven_log()
        check(len(lines) == 1 and ':notice]' in lines[0] and '10 places' in lines[0] and
              '12 workers' in lines[0], lines)

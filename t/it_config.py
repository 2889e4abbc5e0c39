"""Directives: what is wrong is an English sentence at configtest that names the
directive and its line; what is right passes."""

import os
import re

from t import clients
from t.httpd import TOP
from t.it_common import MPMS, Server, cases, check

# 12 workers, of 12 at most: ServerLimit 2, ThreadLimit 6.
BAD = {
    'SevenEngine': ['', 'Maybe', '1', 'On Off'],
    'SevenServerLimit': ['', '0', '-1', 'many', '1.5', '10x', '13', '1000000',
                         '99999999999999999999', '0%', '101%', '-5%', '%', '50 %', '0x10'],
    'SevenStrategy': ['', 'fastest', 'tournament 0', 'tournament -1', 'tournament many',
                      'tournament 11', 'tournament 99999999999', 'tournament 2 3',
                      'uniform 2', 'roulette 2', 'tournament 50%'],
    'SevenRound': ['', '0', '0ms', '-100ms', 'soon', '100', '100 ms', '1.5s', '100parsecs',
                   '2000h', '999us', '99999999999999999999s'],
    'SevenServiceTime': ['', '0', '0s', '-1s', 'automatic', '200', '5days', '25h'],
    'SevenReserve': ['', '-1', 'some', '11', '101%', '1.5', '%', '5 %',
                     '99999999999999999999'],
    'SevenDropFactor': ['', 'wait', 'wait=', 'wait=x', 'wait=0', 'wait=-1', 'in=0',
                        'in=-2', 'in=2x', 'alpha=0', 'alpha=-1', 'alpha=21', 'alpha=1e9',
                        'scale=0', 'scale=-1', 'scale=nan', 'scale=inf', 'speed=3',
                        'wait=8 in=900000', 'wait=8 oops'],
    'SevenMinRate': ['', '0', '-8000', 'fast', '8k', '1.5', '99999999999999999999'],
    'SevenExempt': ['', 'localhost', '300.1.2.3', '192.0.2', '192.0.2.1/33',
                    '192.0.2.1/-1', '0.0.0.0/0',
                    '192.0.2.1/', '192.0.2.1/x', '2001:db8::/129', '::/abc', ':::',
                    '192.0.2.1 nonsense', '/8'],
    'SevenRetryAfter': ['', '0', '-1', 'later', '1s', '86401', '99999999999999999999'],
}
GOOD = {
    'SevenEngine': ['On', 'off', 'DetectOnly', 'detectonly'],
    'SevenServerLimit': ['1', '8', '10', '12', '1%', '90%', '100%'],
    'SevenStrategy': ['uniform', 'roulette', 'tournament', 'Tournament 1', 'tournament 10'],
    'SevenRound': ['1ms', '100ms', '1s', '2min', '1h', '24h'],
    'SevenServiceTime': ['auto', 'Auto', '10ms', '200ms', '5s', '1min'],
    'SevenReserve': ['0', '1', '10', '0%', '5%', '100%'],
    'SevenDropFactor': ['wait=8 in=2 alpha=1.89 scale=0.453', 'wait=9', 'in=0.5 alpha=20'],
    'SevenMinRate': ['1', '8000', '1000000'],
    'SevenExempt': ['192.0.2.7', '192.0.2.0/24', '2001:db8::/32', '::1',
                    '192.0.2.7 192.0.2.8 ::1'],
    'SevenRetryAfter': ['1', '120', '86400'],
}


def check_complaint(server, lines, directive, wrong):
    """configtest of these lines fails, names the directive and where it stands."""
    number = server.config_text(lines).splitlines().index(wrong) + 1
    status, said = server.configtest(lines)
    check(status != 0, f'"{wrong}" passes:', said)
    check(directive in said, f'"{wrong}":', said, '- it does not name the directive')
    check(f'line {number} of {server.path("check.conf")}' in said,
          f'"{wrong}":', said, '- it does not say where')
    # Some words, not only a code.
    check(len(re.findall(r'[a-z]{2,}', said)) >= 6, f'"{wrong}":', said)
    check('Segmentation' not in said and status > 0, said)


@cases(*BAD)
def test_bad_values(directive):
    found = []
    with Server(start=False) as server:
        for value in BAD[directive]:
            wrong = f'{directive} {value}'.strip()
            try:
                check_complaint(server, [wrong], directive, wrong)
            except AssertionError as error:
                found.append(str(error))
    check(not found, '\n'.join(found))


@cases(*GOOD)
def test_good_values(directive):
    found = []
    with Server(start=False) as server:
        for value in GOOD[directive]:
            status, said = server.configtest([f'{directive} {value}'])
            if status != 0 or 'Syntax OK' not in said:
                found.append(f'{directive} {value}: {said}')
    check(not found, '\n'.join(found))


@cases(*MPMS)
def test_more_places_than_workers_there_could_be(mpm):
    with Server(mpm, start=False) as server:
        check_complaint(server, ['SevenServerLimit 13'], 'SevenServerLimit',
                        'SevenServerLimit 13')
        check(server.configtest(['SevenServerLimit 12'])[0] == 0)


def test_wrong_together():
    """Each alone is right."""
    with Server(start=False) as server:
        check_complaint(server, ['SevenServerLimit 4', 'SevenReserve 5'], 'SevenReserve',
                        'SevenReserve 5')
        check_complaint(server, ['SevenServerLimit 4', 'SevenStrategy tournament 5'],
                        'SevenStrategy', 'SevenStrategy tournament 5')
        check_complaint(server, ['SevenDropFactor in=20', 'SevenDropFactor wait=1'],
                        'SevenDropFactor', 'SevenDropFactor wait=1')


@cases(*GOOD)
def test_not_inside_a_virtual_host(directive):
    wrong = f'{directive} {GOOD[directive][0]}'
    with Server(start=False) as server:
        for opening, closing in (('<VirtualHost 127.0.0.1:80>', '</VirtualHost>'),
                                 ('<Directory />', '</Directory>'),
                                 ('<Location /x>', '</Location>')):
            check_complaint(server, [opening, wrong, closing], directive, wrong)


def test_not_in_htaccess():
    with Server() as server:
        server.change([f'<Directory {server.path("htdocs")}>', 'AllowOverride All',
                       '</Directory>'])
        server.graceful()
        for directive, values in GOOD.items():
            server._write('htdocs/sub/.htaccess', f'{directive} {values[0]}\n')
            server._write('htdocs/sub/x.html', 'x\n')
            reply = clients.ask(server.port, '/sub/x.html')
            check(reply.status == 500, directive, reply)
            check(any(directive in line and '.htaccess' in line
                      for line in server.error_log().splitlines()), server.error_log())


def test_mistakes_keep_a_running_server_running():
    """A graceful restart onto a bad value is httpd's own affair; configtest says so
    before, and does not disturb what runs."""
    with Server() as server:
        for _ in range(3):
            check(server.configtest(['SevenServerLimit 0'])[0] != 0)
            check(server.configtest(['SevenServerLimit 5'])[0] == 0)
        check(server.figure('Places') == 10)
        check(clients.ask(server.port).status == 200)


def shipped():
    with open(os.path.join(TOP, 'conf', 'seven.conf')) as file:
        return file.read()


def settings(server):
    return {name: value for name, value in server.seven_status().items()
            if name in ('Engine', 'Strategy', 'Tournament', 'RoundUs', 'ServiceTime',
                        'DropFactor', 'MinRate', 'Places', 'Reserve')}


def test_shipped_configuration():
    """As it is, and with all that is commented out put in: the same settings."""
    found = []
    for text in ('', shipped(), re.sub(r'(?m)^#(Seven)', r'\1', shipped())):
        with Server(workers=200, threads=25, lines=text.splitlines()) as server:
            check(server.configtest(server.lines)[0] == 0)
            found.append(settings(server))
    check(found[0] == found[1] == found[2], 'what is commented out is not the default:',
          *found)
    named = set(re.findall(r'(?m)^#(Seven\w+)', shipped()))
    check(named == set(GOOD), 'conf/seven.conf does not show', set(GOOD) ^ named)


def test_shipped_load_line():
    with open(os.path.join(TOP, 'conf', 'seven.load')) as file:
        check(re.fullmatch(r'LoadModule seven_module \S+/mod_seven\.so\n', file.read()))


@cases('12 10 2', '10 8 2', '4 2 1', '3 1 1', '2 1 1', '1 1 1')
def test_default_limit(case):
    """90 % of the workers, but at least 2 below them where that leaves 1."""
    workers, places, _ = map(int, case.split())
    with Server('prefork', workers=workers) as server:
        figures = server.figures()
        check(figures['Places'] == places and figures['Workers'] == workers, figures)
        check(figures['Reserve'] <= places, figures)


def test_readme_names_every_directive():
    with open(os.path.join(TOP, 'README.md')) as file:
        readme = file.read()
    missing = [directive for directive in GOOD if f'`{directive} ' not in readme]
    check(not missing, missing)

"""The program's life: restarts and crashes with calls up, a new configuration, an
orderly end, and what it says of itself."""

import json
import os
import signal
import urllib.request

from t.httpd import free_port
from t.it_common import cases, check, limit, poll
from t.sip import SevenSip, SipError
from t.sip_common import Setup
from t.sipwire import answered, parameter, uri_of


def stored(calls=3, **keys):
    """A Setup that keeps its calls in a file of the proxy's own directory."""
    s = Setup(calls, start=False, **keys)
    s.proxy.configure(store=s.proxy.path('calls'))
    s.proxy.start()
    return s


def over_again(s, how):
    """The proxy ends as asked and starts again at the same address."""
    if how == 'crash':
        s.proxy.kill()
    else:
        s.proxy.leave()
        check(s.proxy.process.poll() == 0, 'exit status', s.proxy.process.poll())
        s.proxy.end(0.1)
    s.proxy.start()


# ---- restart and crash ---------------------------------------------------------------

@cases('crash', 'restart')
def test_calls_survive(case):
    """They are known and counted, go on, and end with a BYE of either side."""
    with stored() as s:
        one, _ = s.up()
        two, callee = s.up()
        s.wait_up(0, 2)
        over_again(s, case)
        s.wait_up(0, 2)
        check(s.figure('restored') == 2, s.proxy.status())
        one.send(one.request('INFO'))
        s.server.reply(s.server.expect('INFO'), 200)
        one.expect((200, 'INFO'))
        s.hang_up(one)
        s.wait_up(0, 1)
        callee.hop = s.proxy.address
        callee.bye()
        s.caller.reply(two.expect('BYE'), 200)
        callee.expect((200, 'BYE'))
        s.wait_up(0, 0)


@cases('crash', 'restart')
def test_calls_are_droppable_after(case):
    """With the right CSeq, also after requests in the dialog."""
    with stored(1) as s:
        call, _ = s.up()
        call.cseq = 500
        call.send(call.request('INFO'))
        s.server.reply(s.server.expect('INFO'), 200)
        call.expect((200, 'INFO'))
        s.wait_up(0, 1)
        over_again(s, case)
        s.wait_up(0, 1)
        s.waiting()
        mine = call.expect('BYE')
        check(mine.tag('to') == parameter(call.local, 'tag'), mine.headers)
        theirs = s.server.expect('BYE')
        check(theirs.cseq > 501, 'CSeq', theirs.cseq)
        check(theirs.tag('to') == parameter(call.remote, 'tag'), theirs.headers)
        check(theirs.uri == uri_of(s.server.contact()), theirs.uri)
        s.caller.reply(mine, 200)
        s.server.reply(theirs, 200)
        s.wait_figure('ending', 0)


def test_age_survives():
    """The oldest is still the oldest: it is the victim after a crash, too."""
    with stored(2, t_m='1s', strategy='tournament 2') as s:
        old, _ = s.up()
        poll(lambda: s.figure('overdue'), lambda n: n == 1, say='overdue 1')
        young, _ = s.up()
        s.proxy.kill()
        s.proxy.start()
        s.wait_up(0, 2)
        s.waiting()
        s.end_victim(old)
        check(young.count('BYE') == 0, 'the young one was cut')


@cases('forked', 'alone')
def test_call_answered_at_a_crash(case):
    """Whoever has been told that it is up finds it known, ACKed or not."""
    with stored(2) as s:
        call, at_server, tag = s.waiting()
        answered(s.server, at_server, tag)
        s.server.reply(at_server, 200, tag=tag, contact=True)
        answer = call.expect((200, 'INVITE'))
        if case == 'forked':
            s.server.reply(at_server, 200, tag='other', contact=True)
            call.expect(lambda m: m.status == 200 and m.tag('to') == 'other')
        s.proxy.kill()
        s.proxy.start()
        s.wait_up(0, 1)
        call.again()
        call.ack(answer)
        s.server.expect('ACK', call_id=call.call_id)
        check(s.server.count('INVITE', call_id=call.call_id) == 1, 'it was taken for a new call')
        s.wait_up(0, 1)
        s.hang_up(call)
        if case == 'alone':
            s.wait_up(0, 0)


def test_call_being_set_up_at_a_crash():
    """A call that only rang is not kept: its caller tries again, and gets in."""
    with stored(1) as s:
        call, at_server, tag = s.waiting()
        s.proxy.kill()
        s.proxy.start()
        call.again()
        again = s.server.expect('INVITE')
        s.server.reply(again, 180, tag='n')
        s.wait_figure('waiting', 1)
        check(at_server.call_id == again.call_id and tag)


def test_many_survive():
    with stored(400) as s:
        calls = [s.up()[0] for _ in range(200)]
        s.wait_up(0, 200)
        s.proxy.kill()
        s.proxy.start()
        s.wait_up(0, 200)
        for call in calls[:20]:
            s.hang_up(call)
        s.wait_up(0, 180)


def test_store_that_cannot_be_used():
    """A sentence with file and line, status 2."""
    proxy = SevenSip(('127.0.0.1', 5), asan=True, start=False, store='/proc/no/such')
    try:
        try:
            proxy.start()
            raise AssertionError('it started')
        except SipError as error:
            text = str(error)
        check('status 2' in text and 'sip.conf:' in text, text)
    finally:
        proxy.stop()


# ---- signals -------------------------------------------------------------------------------

def test_sighup_keeps_calls():
    """And the new configuration holds for the next."""
    with Setup(2) as s:
        call, _ = s.up()
        s.proxy.calls = 5
        s.proxy.configure(retry_after=9, refuse=480)
        s.proxy.reload()
        s.wait_figure('places', 5)
        s.wait_up(0, 1)
        s.hang_up(call)
        s.wait_up(0, 0)


def test_sighup_with_fewer_places():
    """Nobody is ended: those without a place go on."""
    with Setup(3, t_m='1s') as s:
        calls = [s.up()[0] for _ in range(3)]
        s.proxy.calls = 1
        s.proxy.configure()
        s.proxy.reload()
        s.wait_figure('places', 1)
        s.wait_up(0, 1)
        s.wait_figure('unplaced', 2)
        for call in calls:
            s.hang_up(call)
        s.wait_up(0, 0)
        check(all(call.count('BYE') == 0 for call in calls))


def test_sighup_with_a_wrong_file():
    """The configuration stays as it was, and the log says what is wrong."""
    with Setup(2) as s:
        call, _ = s.up()
        s.proxy.calls = 'many'
        s.proxy.configure()
        s.proxy.reload()
        poll(s.proxy.output, lambda text: 'sip.conf:' in text, say='a line of the log')
        check(s.figure('places') == 2)
        s.wait_up(0, 1)
        s.hang_up(call)


def test_sigterm_lets_calls_go_on():
    """New ones are told 503; when the last is over the program ends."""
    with Setup(3) as s:
        call, _ = s.up()
        os.kill(s.proxy.pid, signal.SIGTERM)
        s.wait_figure('stopping', True)
        late = s.call()
        late.invite()
        answer = late.expect(lambda m: m.status and m.status != 100)
        check(answer.status == 503 and answer.get('retry-after'), answer.headers)
        late.ack(answer)
        call.send(call.request('INFO'))
        s.server.reply(s.server.expect('INFO'), 200)
        call.expect((200, 'INFO'))
        s.hang_up(call)
        poll(s.proxy.process.poll, lambda status: status is not None, say='its end')
        check(s.proxy.process.poll() == 0, 'status', s.proxy.process.poll())


def test_sigterm_twice():
    with Setup(3) as s:
        s.up()
        os.kill(s.proxy.pid, signal.SIGTERM)
        s.wait_figure('stopping', True)
        os.kill(s.proxy.pid, signal.SIGTERM)
        poll(s.proxy.process.poll, lambda status: status is not None, say='its end')
        check(s.proxy.process.poll() == 0, 'status', s.proxy.process.poll())


# ---- what it says of itself --------------------------------------------------------------

def test_control_socket():
    """Text and JSON agree; a call is listed; nonsense is answered, not obeyed."""
    with Setup(3) as s:
        call, _ = s.up()
        s.waiting()
        status = s.proxy.status()
        check(status['incall'] == 1 and status['waiting'] == 1, status)
        text = dict(line.split(': ', 1) for line in
                    s.proxy.control('status').splitlines() if ': ' in line)
        check(text['incall'] == '1' and text['places'] == '3', text)
        check(call.call_id in s.proxy.control('calls'), s.proxy.control('calls'))
        check('help' in s.proxy.control('frobnicate'))
        json.loads(s.proxy.control('status json'))


def test_control_escapes_what_callers_write():
    with Setup(3) as s:
        call = s.call(call_id='"\x1b[2J\x01evil\'@x')
        call.local = call.local.replace('"A caller"', '"\x1b]0;evil\x07"')
        call.invite()
        s.server.expect('INVITE')
        listed = s.proxy.control('calls')
        check('evil' in listed, listed)
        check(all(char == '\n' or 32 <= ord(char) < 127 for char in listed), repr(listed))


def test_metrics():
    """Prometheus text, on loopback; other paths are not found."""
    port = free_port()
    with Setup(3, metrics=f'127.0.0.1:{port}') as s:
        s.up()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f'http://127.0.0.1:{port}/metrics', timeout=5) as reply:
            check(reply.headers['Content-Type'].startswith('text/plain'), reply.headers)
            text = reply.read().decode()
        check('seven_sip_calls{state="incall"} 1\n' in text, text)
        check('seven_sip_calls_started_total 1\n' in text, text)
        types = [line.split()[2] for line in text.splitlines() if line.startswith('# TYPE')]
        check(len(types) == len(set(types)), 'a metric is declared twice:', types)
        for line in text.splitlines():
            check(line.startswith('#') or len(line.rsplit(' ', 1)) == 2 and
                  float(line.rsplit(' ', 1)[1]) >= 0, line)


@limit(90)
def test_t_m_is_learned():
    """With t_m = auto it follows how long finished calls took; cut ones teach
    nothing."""
    with Setup(50, t_m='auto') as s:
        before = s.figure('t_m_us')
        check(s.figure('t_m_learned') is True, s.proxy.status())
        for _ in range(60):
            call, _ = s.up()
            s.hang_up(call)
        after = s.figure('t_m_us')
        check(after > 0 and after <= before, 't_M', before, after)


def test_runs_as_an_ordinary_user():
    """No privilege is needed for a high port."""
    with Setup(2, start=False) as s:
        os.chmod(s.proxy.dir, 0o777)
        s.proxy.user = 'nobody'
        s.proxy.start()
        with open(f'/proc/{s.proxy.pid}/status') as file:
            uid = next(line for line in file if line.startswith('Uid:')).split()[1]
        check(uid != '0' or os.geteuid() != 0, 'it runs as root')
        call, callee = s.up()
        s.hang_up(call)


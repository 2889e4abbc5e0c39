"""Who is refused, what it is told, and who is never refused or cut."""

import time

from t.it_common import cases, check, limit, poll
from t.sip_common import LONG_ROUND, OVER, Setup
from t.sipwire import Call, parameter, unique



def full(s):
    """One call up and PMod so high that hardly anybody gets in: returns a refused
    newcomer and its answer."""
    s.up()
    return s.refused()


# ---- the answer ----------------------------------------------------------------

@cases('503-udp', '503-tcp', '480-udp', '486-udp', '600-tcp')
def test_refused(case):
    """The code that is configured, Retry-After, and no word to the server."""
    code, over = case.split('-')
    with Setup(1, over, over, round=LONG_ROUND, refuse=code, retry_after=7) as s:
        call, answer = full(s)
        check(answer.status == int(code), answer)
        check(answer.get('retry-after') == '7', answer.headers)
        check(answer.tag('to'), 'no To-tag')
        check(answer.tag('from') == parameter(call.local, 'tag'))
        call.ack(answer)
        # Sent again, it is answered the same, and decided once.
        refused = s.figure('refused')
        if over == 'udp':
            call.again()
            poll(lambda: call.count(int(code)), lambda n: n >= 2, say='the answer again')
            answers = {m.raw for m in s.caller.seen
                       if m.call_id == call.call_id and m.is_a(int(code))}
            check(len(answers) == 1, 'answers differ:', answers)
            call.ack(answer)
        check(s.figure('refused') == refused, 'refused', s.figure('refused'))
        check(s.server.count('INVITE', call.call_id) == 0, 'the server saw it')
        s.server.none(lambda m: m.method == 'ACK' and m.call_id == call.call_id, 0.2)


def test_refused_again_after_a_while():
    """The same bytes ten times over a second: one decision, one answer each."""
    with Setup(1, round=LONG_ROUND) as s:
        call, answer = full(s)
        refused, pmod = s.figure('refused'), s.figure('pmod')
        for at in range(10):
            call.again()
            poll(lambda: call.count(503), lambda n: n >= at + 2, say='503 again')
        check(s.figure('refused') == refused and s.figure('pmod') == pmod)
        check(s.server.count('INVITE', call.call_id) == 0)
        call.ack(answer)


def test_refused_by_round():
    """With forward = round, those held hear 100 and then go on or are refused."""
    with Setup(1, forward='round', round='300ms') as s:
        call = s.call()
        call.invite()
        s.server.expect('INVITE')
        s.server.reply(s.server.seen[-1], 180, tag='a')
        crowd = []
        for _ in range(30):
            newcomer = s.call()
            newcomer.invite()
            crowd.append(newcomer)
        for newcomer in crowd:
            newcomer.expect(lambda m: m.status is not None)
        poll(lambda: s.figure('held'), lambda n: n == 0, say='held 0')
        poll(lambda: (s.caller.pump(0.01), sum(c.count(503) > 0 for c in crowd))[1],
             lambda n: n >= 20, say='refused newcomers')
        # One survives the round: there is one place.
        survivor = s.server.expect('INVITE')
        check(survivor.call_id in {c.call_id for c in crowd}, survivor)
        s.server.expect('CANCEL')


def test_held_newcomer_gives_up():
    """CANCEL before the round's end: it never reaches the server."""
    with Setup(1, forward='round', round=LONG_ROUND) as s:
        call = s.call()
        call.invite()
        call.expect(100)
        call.cancel()
        call.expect((200, 'CANCEL'))
        call.ack(call.expect(487))
        s.wait_up(0, 0)
        s.server.none('INVITE', 0.1)
        check(s.figure('ended.cancelled') == 1, s.figure('ended'))


@cases('now', 'round')
def test_not_full(case):
    """While places are free everybody gets in."""
    with Setup(50, forward=case, round='100ms') as s:
        crowd = []
        for _ in range(50):
            call = s.call()
            call.invite()
            crowd.append(call)
        for call in crowd:
            at_server = s.server.expect('INVITE', call_id=call.call_id)
            s.server.reply(at_server, 180, tag='a')
            call.expect(180)
        s.wait_up(50, 0)
        check(s.figure('started') == 50 and s.figure('refused') == 0, s.proxy.status())


def test_first_of_a_round_gets_in():
    """P1 is 1 at PMod 0, however full."""
    with Setup(1, round='100ms') as s:
        for _ in range(12):
            poll(lambda: s.figure('pmod'), lambda n: n == 0, say='a new round')
            s.waiting()
        check(s.figure('refused') == 0, s.figure('refused'))
        check(s.figure('replaced') == 11, s.figure('replaced'))


# ---- what always passes ----------------------------------------------------------

@cases(*OVER)
def test_other_requests_pass_when_full(case):
    """REGISTER, OPTIONS, SUBSCRIBE, MESSAGE, PUBLISH and a method nobody knows."""
    with Setup(1, case, case, round=LONG_ROUND) as s:
        full(s)
        for method in ('REGISTER', 'OPTIONS', 'SUBSCRIBE', 'MESSAGE', 'PUBLISH', 'FROBNICATE'):
            call = s.call()
            call.send(call.request(method, ('Event', 'x')))
            got = s.server.expect(method)
            check(got.call_id == call.call_id)
            s.server.reply(got, 200, ('X-Back', 'yes'), tag='t')
            back = call.endpoint.expect((200, method))
            check(back.get('x-back') == 'yes', back.headers)
        check(s.figure('waiting') + s.figure('incall') == 1)


def test_in_dialog_passes_when_full():
    with Setup(2, round=LONG_ROUND, strategy='tournament 2', t_m='600s') as s:
        call, _ = s.up()
        for method in ('INFO', 'UPDATE', 'MESSAGE', 'REFER', 'NOTIFY'):
            call.send(call.request(method))
            s.server.reply(s.server.expect(method), 200)
            call.endpoint.expect((200, method))
        s.hang_up(call)


# ---- what can never be ended is not let in ----------------------------------------

@cases('2147483647', '2147483646', '4294967295', '99999999999')
def test_cseq_that_no_bye_can_follow(case):
    with Setup(2) as s:
        call = s.call(cseq=int(case))
        call.invite()
        answer = call.expect(lambda m: m.status and m.status != 100)
        check(answer.status == 400, answer)
        if answer.get('cseq'):          # it may be too wrong to be repeated
            call.ack(answer)
        s.server.none('INVITE', 0.2)
        s.wait_up(0, 0)


def test_high_cseq_is_let_in():
    with Setup(1) as s:
        call, _ = s.up(cseq=2000000000)
        s.waiting()
        mine, theirs = s.end_victim(call)
        check(2000000000 < theirs.cseq < 2**31, theirs.cseq)
        check(mine.cseq < 2**31)


@cases('INFO', 'UPDATE', 'INVITE')
def test_cseq_made_high_in_the_dialog(case):
    """The same trick within a call: either the request is refused, or a BYE can still
    follow it."""
    with Setup(1) as s:
        call, _ = s.up()
        call.send(call.request(case, cseq=2**31 - 1))
        found = poll(lambda: (s.caller.pump(0.02), s.server.pump(0.02),
                              s.server.take(case) or
                              s.caller.take(lambda m: m.status and m.status >= 300))[2],
                     bool, say=f'{case} or its refusal')
        if found.status:
            check(found.status in (400, 500), found)
            seen = call.cseq
        else:
            seen = found.cseq
            s.server.reply(found, 200)
        s.waiting()
        bye = s.server.expect('BYE', call_id=call.call_id)
        check(bye.cseq > seen or seen < 2**31 - 1 and bye.cseq < 2**31, bye.cseq, seen)


# ---- the exempt --------------------------------------------------------------------

@cases('address', 'network', 'aor', 'number', 'urn', 'always')
def test_exempt(case):
    """Never refused though nobody gets in, and in a place of their own."""
    entry = {'address': '127.0.0.2', 'network': '127.0.0.2/31',
             'aor': 'sip:chief@example.org', 'number': '112',
             'urn': 'urn:service:counseling', 'always': 'none'}[case]
    with Setup(1, round=LONG_ROUND, exempt=entry, exempt_calls=2) as s:
        full(s)
        up = s.figure('waiting') + s.figure('incall')
        pmod = s.figure('pmod')
        friend = s.another(host='127.0.0.2')
        for _ in range(2):
            if case in ('address', 'network'):
                call = s.call(friend)
            elif case == 'aor':
                call = s.call(caller='chief')
            else:
                call = s.call()
                call.target = {'number': 'sip:112@example.org',
                               'urn': 'urn:service:counseling',
                               'always': 'urn:service:sos.fire'}[case]
            call.invite()
            at_server = s.server.expect('INVITE', call_id=call.call_id)
            check(at_server.uri == call.target, at_server.uri)
            s.server.reply(at_server, 180, tag='x')
            call.expect(180)
        check(s.figure('exempt') == 2, s.proxy.status())
        check(s.figure('waiting') + s.figure('incall') == up, s.proxy.status())
        check(s.figure('pmod') == pmod, 'PMod', s.figure('pmod'))


def test_exempt_is_no_victim():
    with Setup(1, exempt='127.0.0.2', exempt_calls=1) as s:
        friend = s.another(host='127.0.0.2')
        call, _ = s.up(endpoint=friend)
        check(s.figure('exempt') == 1, s.proxy.status())
        for _ in range(20):
            newcomer = s.call()
            newcomer.invite()
            newcomer.expect(lambda m: m.status is not None)
        check(s.figure('replaced') > 0, s.proxy.status())
        check(call.count('BYE') == 0)
        s.hang_up(call)
        s.wait_figure('exempt', 0)


def test_exempt_places_run_out():
    """Then an exempt call is as any other: the exemption cannot fill the server."""
    with Setup(1, exempt='112', exempt_calls=1, round=LONG_ROUND) as s:
        full(s)
        first = s.call()
        first.target = 'sip:112@example.org'
        first.invite()
        s.server.expect('INVITE', call_id=first.call_id)
        refused = s.figure('refused')
        for _ in range(30):
            more = s.call()
            more.target = 'sip:112@example.org'
            more.invite()
            more.expect(lambda m: m.status is not None)
        poll(lambda: s.figure('refused'), lambda n: n > refused, say='refused')
        check(s.figure('exempt') == 1, s.proxy.status())
        check(s.figure('waiting') + s.figure('incall') == 1, s.proxy.status())


@cases('friend', 'stranger')
def test_resource_priority(case):
    """RFC 4412's header counts only from an address of the list."""
    with Setup(1, exempt=['127.0.0.2'], exempt_calls=1, round=LONG_ROUND) as s:
        full(s)
        endpoint = s.another(host='127.0.0.2' if case == 'friend' else '127.0.0.3')
        for at in range(20):
            call = s.call(endpoint)
            call.invite(('Resource-Priority', 'esnet.0'))
            call.expect(lambda m: m.status is not None)
            if case == 'friend':
                s.server.expect('INVITE', call_id=call.call_id)
                break
        check(s.figure('exempt') == (case == 'friend'), s.proxy.status())


# ---- nobody is touched ---------------------------------------------------------------

def test_detect_only():
    """It decides and counts; all calls pass and none is ended."""
    with Setup(1, detect_only='yes', round=LONG_ROUND) as s:
        calls = [s.up()[0] for _ in range(6)]
        status = s.proxy.status()
        check(status['would_refuse'] + status['would_cut'] == 5, status)
        check(status['refused'] == 0 and status['ended']['cut_incall'] == 0, status)
        for call in calls:
            s.hang_up(call)
        check(sum(call.count('BYE') for call in calls) == 0)


@limit(90)
def test_never_more_than_the_places():
    """A crowd at a small server: never more calls up than k, and who is in is in by
    the law."""
    with Setup(3, round='100ms', t_m='1s') as s:
        end = time.monotonic() + 3
        highest = 0
        while time.monotonic() < end:
            for _ in range(10):
                call = s.call()
                call.invite()
            for _ in range(40):
                if not s.server.pump(0.002):
                    break
            while True:
                message = s.server.take(lambda m: m.status is None)
                if message is None:
                    break
                if message.method == 'INVITE':
                    s.server.reply(message, 200, tag=unique('t'))
                elif message.method != 'ACK':
                    s.server.reply(message, 200)
            s.caller.pump(0)
            while True:
                message = s.caller.take(lambda m: True)
                if message is None:
                    break
                if message.is_a('BYE'):
                    s.caller.reply(message, 200)
                elif message.is_a((200, 'INVITE')):
                    acker = Call(s.caller, s.proxy.address, call_id=message.call_id)
                    acker.local = message.get('from')
                    acker.learn(message)
                    acker.ack(message)
            status = s.proxy.status()
            highest = max(highest, status['waiting'] + status['incall'])
        check(highest == 3, 'calls up at once', highest)
        status = s.proxy.status()
        check(status['refused'] > 0 and status['replaced'] > 0, status)

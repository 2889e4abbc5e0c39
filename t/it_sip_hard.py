"""What an attacker who has read the source would try, a kind of fault a test: calls up
at the server without a place, places without a call, what is sent to strangers, and
what memory it costs."""

import os
import time

from t.it_common import cases, check, limit, poll
from t.sip import Kamailio, SevenSip, register
from t.sip_common import LONG_ROUND, Setup, clean
from t.sipwire import SDP, Call, Endpoint, answered, build, unique


def reached(s, call):
    """The INVITE at the server, or the refusal."""
    return poll(lambda: (s.server.pump(0.02), call.endpoint.pump(0.02),
                         s.server.take('INVITE', call.call_id) or
                         call.endpoint.take(lambda m: m.status and m.status >= 300,
                                            call.call_id))[2],
                bool, say='INVITE at the server, or a refusal')


# ---- fewer places than calls -----------------------------------------------------------

def fewer(s, how, calls, **keys):
    """Go on with so many places."""
    s.proxy.calls = calls
    s.proxy.configure(**keys)
    if how == 'reload':
        s.proxy.reload()
    else:
        s.proxy.kill()
        s.proxy.start()
    s.wait_figure('places', calls)


def stored(calls, **keys):
    s = Setup(calls, start=False, **keys)
    s.proxy.configure(store=s.proxy.path('calls'))
    s.proxy.start()
    return s


@cases('reload', 'restart')
def test_fewer_places_cut_nobody(case):
    """The surplus goes on; places that become free are theirs before they are a
    newcomer's; and once it is gone newcomers find places again."""
    with stored(4, round=LONG_ROUND) as s:
        calls = [s.up()[0] for _ in range(4)]
        s.wait_up(0, 4)
        fewer(s, case, 2)
        s.wait_figure('unplaced', 2)
        s.wait_up(0, 2)
        for call in calls[:2]:                   # two places are handed on
            s.hang_up(call)
            s.wait_up(0, 2)
        s.wait_figure('unplaced', 0)
        check(all(call.count('BYE') == 0 for call in calls), 'a call was cut')
        s.hang_up(calls[2])
        s.wait_up(0, 1)
        call = s.call()
        call.invite()
        s.server.expect('INVITE', call_id=call.call_id)
        check(s.figure('replaced') == 0 and s.figure('refused') == 0)


def test_surplus_makes_newcomers_meet_full_places():
    """While more are up than there are places, a newcomer is decided about, and lets
    in means that another goes."""
    with Setup(3, t_m='1s', strategy='tournament 1', round=LONG_ROUND) as s:
        calls = [s.up()[0] for _ in range(3)]
        fewer(s, 'reload', 1)
        s.wait_figure('unplaced', 2)
        s.hang_up(calls[1])                       # without a place: none becomes free
        s.wait_figure('unplaced', 1)
        s.wait_up(0, 1)
        s.waiting()                              # the first of a round always gets in
        s.end_victim(calls[0])
        s.wait_up(1, 0)
        s.wait_figure('unplaced', 1)
        check(calls[2].count('BYE') == 0, 'more were cut')


def test_more_places_again():
    """The surplus has them."""
    with Setup(3) as s:
        calls = [s.up()[0] for _ in range(3)]
        for places, lacking in ((1, 2), (2, 1), (2, 1), (5, 0), (1, 2), (3, 0)):
            fewer(s, 'reload', places, retry_after=places + lacking)
            s.wait_figure('unplaced', lacking)
            s.wait_up(0, 3 - lacking)
        for call in calls:
            s.hang_up(call)
        s.wait_up(0, 0)


@cases('reload', 'restart')
def test_fewer_exempt_places(case):
    """Exempt calls stay exempt: they are not ended and nobody's victim, also when
    the places of their own are fewer than they are."""
    with stored(1, exempt='112', exempt_calls=2, t_m='1s', round=LONG_ROUND) as s:
        calls = [s.up(callee='112')[0] for _ in range(2)]
        s.wait_figure('exempt', 2)
        fewer(s, case, 1, exempt_calls=0, t_m='2s')
        s.wait_figure('unplaced', 2)
        s.wait_up(0, 0)
        plain = s.up()[0]
        s.waiting()
        s.end_victim(plain)
        check(all(call.count('BYE') == 0 for call in calls))
        s.hang_up(calls[0])
        s.wait_figure('unplaced', 1)


def test_detect_only_loses_nobody():
    """Its losers are up without a place and not in line for one; once it decides in
    earnest they are counted among those that are up."""
    with Setup(1, detect_only='yes', round=LONG_ROUND) as s:
        calls = [s.up()[0] for _ in range(4)]
        s.wait_figure('unplaced', 3)
        loser = calls[0]
        s.hang_up(loser)
        s.wait_figure('unplaced', 2)
        s.proxy.configure(detect_only='no')
        s.proxy.reload()
        s.wait_figure('detect_only', False)
        s.wait_figure('unplaced', 2)
        s.wait_up(0, 1)
        for call in calls[1:]:
            s.hang_up(call)
        s.wait_up(0, 0)
        s.wait_figure('unplaced', 0)


@cases('reload', 'restart')
def test_t_m_is_remembered(case):
    """What was learned of t_M is not forgotten with the pool."""
    with stored(4, t_m='auto') as s:
        low = s.figure('t_m_us')
        for _ in range(8):
            calls = [s.up()[0] for _ in range(4)]
            time.sleep(1.2)
            for call in calls:
                s.hang_up(call)
        learned = s.figure('t_m_us')
        check(learned > low, learned, low)
        if case == 'restart':
            s.proxy.leave()
            s.proxy.start()
        else:
            s.proxy.calls = 7
            s.proxy.configure(strategy='roulette')
            s.proxy.reload()
            s.wait_figure('places', 7)
        check(s.figure('t_m_us') == learned, s.figure('t_m_us'), learned)


# ---- a call without a place -------------------------------------------------------------

def counted(s):
    return s.figure('waiting') + s.figure('incall') + s.figure('ending')


@cases('while waiting', 'after its end', 'after its end, by the callee')
def test_invite_with_a_tag_of_ones_own(case):
    """An INVITE that pretends to be within a dialog, with all that the proxy wrote into
    an earlier one of that Call-ID: if it gets to the server it holds a place."""
    with Setup(5) as s:
        call = s.call()
        call.invite()
        first = s.server.expect('INVITE')
        # On it goes, as a proxy sends it; the callee is another phone.
        phone = s.another()
        onward = first.raw.replace(b'INVITE sip:bob@example.org',
                                   f'INVITE sip:bob@{phone.at}'.encode(), 1)
        onward = onward.replace(b'\r\n', f'\r\nVia: {s.server.via()}\r\nRecord-Route: '
                                f'<sip:{s.server.at};lr>\r\n'.encode(), 1)
        s.server.send(onward, s.proxy.address)
        at_callee = phone.expect('INVITE')
        tokens = at_callee.listed('record-route')
        check(len(tokens) == 3, tokens)
        if case != 'while waiting':
            s.server.reply(first, 486, tag='x')
            call.ack(call.expect(486))
            s.wait_up(0, 0)
        by = phone if 'callee' in case else s.caller
        more = Call(by, s.proxy.address, call_id=call.call_id, cseq=7)
        more.local, more.remote = call.local, call.remote + f';tag={unique("t")}'
        if 'callee' in case:
            more.local, more.remote = more.remote, more.local
        own = [one for one in tokens if str(s.proxy.port) in one]
        for routes in ([], own[:1], own[1:], own[:1] * 2, [own[1], f'<sip:{s.server.at};lr>']):
            before = counted(s)
            more.cseq += 1
            more.sent = None
            more.invite(routes=routes)
            got = reached(s, more)
            check(got.status or counted(s) == before + 1, routes, 'got through uncounted')


def test_forged_first_answer():
    """Who has seen the proxy's branch answers the INVITE before the server does."""
    with Setup(2) as s:
        call = s.call()
        call.invite()
        invite = s.server.expect('INVITE')
        liar = s.another()
        for status in (180, 486, 503, 200):
            liar.reply(invite, status, tag='liar', to=s.proxy.address)
        call.none(lambda m: m.status and m.status > 100, 0.3)
        s.wait_up(1, 0)
        s.server.reply(invite, 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.wait_up(0, 1)


def elsewhere(s, call):
    """A call with a back-to-back server that gives another of its addresses as its
    contact: the callee's side."""
    other = s.another(host='127.0.0.9')
    call.invite()
    invite = s.server.expect('INVITE', call_id=call.call_id)
    callee = answered(s.server, invite, 't')
    s.server.reply(invite, 200, ('Contact', f'<sip:pbx@{other.at}>'), tag='t', contact=False)
    call.ack(call.expect((200, 'INVITE')))
    s.wait_figure('incall', lambda n: n >= 1)
    return other, callee


@cases('BYE', 'INVITE')
def test_callee_played_by_the_caller(case):
    """The caller writes as the callee would, to an accomplice who says yes: neither has
    that ended the call, nor will its BYE go elsewhere."""
    with Setup(1) as s:
        call = s.call()
        other, _ = elsewhere(s, call)
        accomplice = s.another()
        false = Call(s.caller, s.proxy.address, call_id=call.call_id)
        false.local, false.remote, false.cseq = call.remote, call.local, 50
        false.routes, false.target = call.routes[-1:], f'sip:x@{accomplice.at}'
        false.send(false.request(case, *([('Contact', f'<sip:x@{accomplice.at}>')]
                                         if case == 'BYE' else [])))
        got = poll(lambda: (accomplice.pump(0.02), s.server.pump(0.02), other.pump(0.02),
                            accomplice.take(case) or s.server.take(case) or
                            other.take(case))[3], bool, say=case)
        accomplice.reply(got, 200, to=s.proxy.address)
        s.server.pump(0.1)
        s.wait_up(0, 1)
        newcomer = s.call()
        newcomer.invite()
        bye = s.server.expect('BYE', call_id=call.call_id)
        check(bye.uri == f'sip:pbx@{other.at}', bye.first)
        s.server.reply(bye, 200)


def test_contact_elsewhere_hangs_up():
    """And an honest caller's BYE to such a server frees its place."""
    with Setup(1) as s:
        call = s.call()
        other, _ = elsewhere(s, call)
        call.bye()
        bye = other.expect('BYE')
        s.server.reply(bye, 200, to=s.proxy.address)
        call.expect((200, 'BYE'))
        s.wait_up(0, 0)


def kamailio_up(proxy, caller, phone):
    call = Call(caller, proxy.address)
    call.invite()
    invite = phone.expect('INVITE', call_id=call.call_id)
    callee = answered(phone, invite)
    phone.reply(invite, 200, tag=callee.tag, body=SDP)
    call.ack(call.expect((200, 'INVITE')))
    phone.expect('ACK', call_id=call.call_id)
    return call, callee


@cases('caller', 'callee', 'honest', 'direct')
@limit(90)
def test_bye_that_the_server_does_not_know(case):
    """Kamailio finds a dialog by a parameter of its Record-Route. A BYE without goes to
    the other party, who answers it, and the call stays at the server."""
    caller, phone = Endpoint(), Endpoint()
    with Kamailio(limit=2) as server:
        proxy = SevenSip(server.address, 24, asan=True, t_m='60s', forward='now', t1='100ms')
        try:
            server.end()
            if case != 'direct':
                server.outbound = (*proxy.address, 'udp')
            server._start()
            server._wait_ready()
            register(phone, proxy.address, 'bob', f'sip:bob@{phone.at}')
            for _ in range(3):
                call, callee = kamailio_up(proxy, caller, phone)
                side, other = (callee, caller) if case == 'callee' else (call, phone)
                if case != 'honest':
                    side.routes = [route.split(';did=')[0] + '>' if ';did=' in route
                                   else route for route in side.routes]
                side.hop = proxy.address
                side.bye()
                other.reply(other.expect('BYE', call_id=call.call_id), 200)
                side.endpoint.expect((200, 'BYE'), call_id=call.call_id)
                for _ in range(40):
                    for end in (caller, phone):
                        end.pump(0.01)
                        bye = end.take('BYE', call.call_id)
                        if bye:
                            end.reply(bye, 481)
                poll(proxy.status, lambda s: s['incall'] == 0 and s['ending'] == 0)
            # The limit is two: had two stayed at the server, this would not get in.
            kamailio_up(proxy, caller, phone)
        finally:
            caller.close()
            phone.close()
            clean(proxy)


def test_route_of_a_namesake():
    """Two INVITEs of one Call-ID, tag and CSeq: what the server wrote into one is not
    taken for the other's, or its BYE would not be known there."""
    with Setup(2, round='50ms', strategy='uniform') as s:
        phone = s.another()
        calls, invites = [s.call()], []
        calls.append(Call(s.caller, s.proxy.address, call_id=calls[0].call_id))
        calls[1].local = calls[0].local
        for number, call in enumerate(calls):
            call.invite()
            invites.append(s.server.expect('INVITE'))
            onward = invites[-1].raw.replace(b'INVITE sip:bob@example.org',
                                             f'INVITE sip:bob@{phone.at}'.encode(), 1)
            onward = onward.replace(
                b'\r\n', f'\r\nVia: {s.server.via()}\r\nRecord-Route: '
                f'<sip:{s.server.at};lr;did={number}>\r\n'.encode(), 1)
            s.server.send(onward, s.proxy.address)
            phone.expect('INVITE')
        s.server.send(build('SIP/2.0 200 OK', [
            *(('Via', via) for via in invites[0].all('via')),
            ('Record-Route', f'<sip:{s.server.at};lr;did=1>'),
            *(('Record-Route', one) for one in invites[0].all('record-route')),
            ('From', invites[0].get('from')), ('To', invites[0].get('to') + ';tag=first'),
            ('Call-ID', invites[0].call_id), ('CSeq', invites[0].get('cseq')),
            ('Contact', phone.contact())]), s.proxy.address)
        calls[0].ack(calls[0].expect((200, 'INVITE')))
        s.wait_up(1, 1)
        bye = poll(lambda: (s.call().invite(), s.server.pump(0.05),
                            s.server.take('BYE', calls[0].call_id))[2],
                   bool, say='the first as a victim')
        check(bye.tag('to') == 'first' and 'did=0' in bye.get('route'), bye.headers)


# ---- a place for ever --------------------------------------------------------------------

@cases('refused', 'unanswered')
def test_bye_puts_off_nothing(case):
    """The 2xx is never ACKed. BYEs that end nothing do not keep the call from timer H,
    nor does one after another."""
    with Setup(1, t1='60ms') as s:
        call, invite, tag = s.waiting()
        s.server.reply(invite, 200, tag=tag)
        call.expect((200, 'INVITE'))
        end = time.monotonic() + 20
        ended = False
        while time.monotonic() < end and not ended:
            call.bye()
            s.server.pump(0.4)
            for bye in iter(lambda: s.server.take('BYE'), None):
                ended = ended or bye.get('reason') is not None
                if case == 'refused' or bye.get('reason'):
                    s.server.reply(bye, 200 if bye.get('reason') else 403)
        check(ended, 'timer H never came')
        s.wait_up(0, 0)


def test_many_byes_in_a_call():
    """None is answered: the call is over at the time of the first."""
    with Setup(1, t1='60ms') as s:
        call, _ = s.up()
        end = time.monotonic() + 20
        while time.monotonic() < end and s.figure('incall'):
            call.bye()
            s.server.pump(0.3)
        check(s.figure('incall') == 0, 'its end was put off')


def test_ack_after_bye():
    with Setup(1, t1='60ms') as s:
        call, invite, tag = s.waiting()
        s.server.reply(invite, 200, tag=tag)
        answer = call.expect((200, 'INVITE'))
        call.bye()
        s.server.expect('BYE')
        call.ack(answer)
        s.server.expect('ACK')
        s.wait_up(0, 0)


@cases('new', 'second')
def test_too_long_a_refresh(case):
    """It is refused, and the BYE still goes where the party is."""
    with Setup(1) as s:
        call, callee = s.up()
        text = call.request('INVITE' if case == 'new' else 'UPDATE').decode()
        call.send(text.replace('<sip:alice@', f'<sip:{"x" * 20000}@').encode())
        call.expect(513)
        newcomer = s.call()
        newcomer.invite()
        mine, _ = s.end_victim(call)
        check(mine.uri == f'sip:alice@{s.caller.at}', mine.first[:80])


def test_cseq_of_a_dialog_not_known():
    """The server may take the tags for the same; so there is a limit, and our last BYE is
    above it."""
    with Setup(1) as s:
        call, callee = s.up()
        false = Call(s.caller, s.proxy.address, call_id=call.call_id)
        false.local, false.remote = call.local.upper(), call.remote.upper()
        false.routes, false.target = call.routes, call.target
        false.send(false.request('OPTIONS', cseq=2147483647))
        false.expect(400)
        high = 2147483647 - 65536
        false.send(false.request('OPTIONS', cseq=high))
        s.server.expect('OPTIONS')
        s.waiting()
        for _ in range(3):
            bye = s.server.expect('BYE', call_id=call.call_id)
            s.server.reply(bye, 500 if bye.cseq <= high else 200)
        check(high < bye.cseq < 2**31, bye.cseq)
        s.wait_figure('cut_refused', 0)
        s.wait_figure('ending', lambda n: n <= 1)


def test_second_dialog_lives_on():
    """A forked call: the first dialog is hung up, the other goes on and on."""
    with Setup(2, t1='60ms') as s:
        call, invite, tag = s.waiting()
        s.server.reply(invite, 200, tag=tag)
        first = call.expect((200, 'INVITE'))
        call.ack(first)
        s.server.reply(invite, 200, tag='second')
        second = call.expect((200, 'INVITE'))
        call.ack(second)
        s.wait_up(0, 1)
        call.remote = first.get('to')
        s.hang_up(call)
        call.none('BYE', 5.5)                    # 64 * T1 and a second
        s.wait_up(0, 1)
        call.remote = second.get('to')
        s.hang_up(call)
        s.wait_up(0, 0)


def test_fork_beside_a_namesake():
    """A second 2xx is its call's, though somebody has begun another with the same
    Call-ID and tag."""
    with Setup(4) as s:
        call, invite, tag = s.waiting()
        s.server.reply(invite, 200, tag=tag)
        call.ack(call.expect((200, 'INVITE')))
        s.wait_up(0, 1)
        other = Call(s.another(), s.proxy.address, call_id=call.call_id)
        other.local = call.local
        other.invite()
        s.server.expect('INVITE')
        s.server.reply(invite, 200, tag='second')
        answer = call.expect((200, 'INVITE'))
        check(answer.tag('to') == 'second')


def test_namesake_of_the_other_side():
    """An INVITE with the callee's tag as the caller's does not get the callee's BYE."""
    with Setup(4) as s:
        call, callee = s.up()
        other = Call(s.another(), s.proxy.address, call_id=call.call_id)
        other.local = callee.local
        other.invite()
        s.server.expect('INVITE')
        s.wait_up(1, 1)
        callee.bye()
        s.caller.reply(s.caller.expect('BYE'), 200)
        callee.expect((200, 'BYE'))
        s.wait_up(1, 0)


def test_challenged_places_are_for_whoever_wants_them():
    """Who cannot authenticate keeps nobody out: a challenged call is not at the
    server."""
    with Setup(2, round=LONG_ROUND) as s:
        tried = []
        for _ in range(2):
            call = s.call()
            call.invite()
            s.server.reply(s.server.expect('INVITE', call_id=call.call_id), 407, tag='x')
            call.ack(call.expect(407))
            tried.append(call)
        check(s.figure('started') == 2, s.figure('started'))
        for _ in range(2):
            call = s.call()
            call.invite()
            s.server.reply(s.server.expect('INVITE', call_id=call.call_id), 200, tag='t')
            call.ack(call.expect((200, 'INVITE')))
        s.wait_up(0, 2)
        check(s.figure('refused') == 0 and s.figure('replaced') == 0 and
              s.figure('pmod') == 0, s.proxy.status())
        tried[0].invite()                        # and is a newcomer like any other
        reached(s, tried[0])


# ---- sections 16.3 and 18 ----------------------------------------------------------------

def test_proxy_require_lists_all():
    with Setup(1) as s:
        call = s.call()
        call.invite(('Proxy-Require', 'one, two'), ('Proxy-Require', 'three'))
        answer = call.expect(420)
        check(answer.listed('unsupported') == ['one', 'two', 'three'], answer.headers)
        call.ack(answer)


@cases('256', '4294967295')
def test_max_forwards_has_a_most(case):
    """Or a loop would go on for ever."""
    with Setup(1) as s:
        call = s.call()
        call.invite(forwards=case)
        check(int(s.server.expect('INVITE').get('max-forwards')) <= 70)


def test_unknown_scheme_from_the_server():
    with Setup(1) as s:
        out = Call(s.server, s.proxy.address)
        out.send(out.request('OPTIONS', uri='unknown:thing'))
        out.expect(416)


@cases('OPTIONS', 'INVITE', 'refused')
def test_maddr_is_no_way_to_strangers(case):
    """An answer goes back to where the request came from, whatever its Via says."""
    with Setup(1, round=LONG_ROUND) as s:
        stranger = s.another(host='127.0.0.7')
        if case == 'refused':
            s.up()
            s.waiting()
        call = s.call()
        text = call.request('OPTIONS' if case == 'OPTIONS' else 'INVITE', body=SDP).decode()
        port = stranger.at.rpartition(':')[2]
        own = s.caller.at.rpartition(':')[2]
        text = text.replace(f'Via: SIP/2.0/UDP {s.caller.at}',
                            f'Via: SIP/2.0/UDP 127.0.0.7:{port};maddr=127.0.0.7', 1)
        check('maddr' in text and own)
        call.sent = call.send(text.encode())
        if case != 'refused':
            got = s.server.expect('OPTIONS' if case == 'OPTIONS' else 'INVITE',
                                  call_id=call.call_id)
            s.server.reply(got, 404, tag='t')
        stranger.none(lambda m: True, 1)


def test_listeners_change_with_a_restart():
    """A call came in by an address that is listened on no more."""
    with Setup(2, hosts=('127.0.0.1', '127.0.0.3'), start=False) as s:
        s.proxy.configure(store=s.proxy.path('calls'))
        s.proxy.start()
        call = Call(s.caller, ('127.0.0.3', s.proxy.port))
        call.invite()
        s.server.reply(s.server.expect('INVITE'), 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.wait_up(0, 1)
        s.proxy.kill()
        s.proxy.hosts, s.proxy.calls = ('127.0.0.1',), 1
        s.proxy.configure()
        s.proxy.start()
        s.wait_up(0, 1)
        s.waiting()
        s.end_victim(call)


# ---- memory -------------------------------------------------------------------------------

def resident(pid):
    with open(f'/proc/{pid}/status') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('VmRSS'))


def quick(s, number):
    """Calls that are answered at once and over at once, as fast as it goes."""
    for _ in range(number // 20):
        calls = [s.call() for _ in range(20)]
        for call in calls:
            call.invite()
        for call in calls:
            s.server.reply(s.server.expect('INVITE', call_id=call.call_id), 200, tag='t')
            call.ack(call.expect((200, 'INVITE')))
            s.server.expect('ACK', call_id=call.call_id)
            s.hang_up(call)
        for end in (s.caller, s.server):
            end.seen.clear()
            end.waiting.clear()


@limit(120)
def test_quick_calls_leave_nothing():
    """Calls whose first response is the last leave no transaction for timer D: those of
    one second have room in what those of the seconds before left."""
    with Setup(1000) as s:
        s.proxy.stop()
        s.proxy = SevenSip(s.server.address, 1000, t_m='60s', forward='now')
        quick(s, 1000)
        time.sleep(2.5)
        before = resident(s.proxy.pid)
        for _ in range(4):
            quick(s, 1000)
            time.sleep(2.5)
        poll(lambda: resident(s.proxy.pid) - before, lambda kb: kb < 4000,
             say='less than 4000 kB more after 4000 calls more')


def test_message_that_never_ends():
    """Half messages over many connections: the others are served."""
    with Setup(2, 'tcp') as s:
        halves = [s.another('tcp') for _ in range(30)]
        for half in halves:
            half.send(b'INVITE sip:bob@example.org SIP/2.0\r\nVia: ', s.proxy.address)
        s.waiting()
        os.kill(s.proxy.pid, 0)

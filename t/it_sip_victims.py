"""A victim's call is ended on both sides, whatever state it is in, and by the book;
its place goes to the newcomer.

With one place, the first newcomer of a round always gets in (P1 is 1 at PMod 0) and
there is one holder to draw: so each of these tests knows who the victim is."""

import time

from t.it_common import cases, check, poll
from t.sip_common import OVER, Setup, answered
from t.sipwire import build, parameter, uri_of

QUICK = '60ms'
PAIRS = ('udp-udp', 'tcp-tcp', 'udp-tcp', 'tcp-udp')


def newcomer(s, **how):
    """Somebody whose INVITE gets in: (its side, INVITE at the server, To-tag)."""
    return s.waiting(**how)


# ---- WAITING -------------------------------------------------------------------

def check_cancel(cancel, at_server):
    """RFC 3261 section 9.1: what a CANCEL has in common with its INVITE."""
    for name in ('from', 'to', 'call-id'):
        check(cancel.get(name) == at_server.get(name), name, cancel.get(name))
    check(cancel.uri == at_server.uri, 'Request-URI', cancel.uri)
    check(cancel.get('cseq') == f'{at_server.cseq} CANCEL', cancel.get('cseq'))
    check(cancel.listed('via') == at_server.listed('via')[:1], cancel.all('via'))
    check(cancel.all('route') == at_server.all('route'), cancel.all('route'))


def check_within_1s(s, began):
    """One victim since then has ended within 1 s of its choice; or else the test was
    too slow to say."""
    s.wait_figure('ending', 0)
    seconds = time.monotonic() - began
    check(s.figure('cut_within_1s') == 1 or seconds > 1, seconds, s.proxy.status())


@cases(*PAIRS)
def test_waiting_victim(case):
    with Setup(1, *case.split('-')) as s:
        call, at_server, tag = s.waiting()
        began = time.monotonic()
        other, other_at_server, other_tag = newcomer(s)
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status == 503, answer)
        check(answer.get('retry-after') == '1', answer.headers)
        call.ack(answer)
        cancel = s.server.expect('CANCEL')
        check_cancel(cancel, at_server)
        s.server.reply(cancel, 200)
        s.server.reply(at_server, 487, tag=tag)
        check_within_1s(s, began)
        ack = s.server.expect('ACK')
        check(ack.listed('via')[0] == at_server.listed('via')[0], ack.all('via'))
        check(ack.tag('to') == tag and ack.cseq == at_server.cseq, ack.headers)
        # The newcomer goes on as if nothing had been.
        s.server.reply(other_at_server, 200, tag=other_tag)
        other.ack(other.expect((200, 'INVITE')))
        s.wait_up(0, 1)
        call.none(lambda m: m.status in (487, 200), 0.2)
        check(s.figure('ended.cut_waiting') == 1, s.figure('ended'))
        check(s.figure('replaced') == 1, s.proxy.status())


def test_487_again_is_acked_again():
    with Setup(1) as s:
        call, at_server, tag = s.waiting()
        newcomer(s)
        call.ack(call.expect(503))
        s.server.reply(s.server.expect('CANCEL'), 200)
        for _ in range(3):
            s.server.reply(at_server, 487, tag=tag)
            s.server.expect('ACK')
        call.none(487, 0.1)


@cases('486', '503', '600')
def test_waiting_victim_answered_otherwise(case):
    """The final error crosses the CANCEL: it ends the call as a 487 does."""
    with Setup(1) as s:
        call, at_server, tag = s.waiting()
        newcomer(s)
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status == 503, answer)
        call.ack(answer)
        cancel = s.server.expect('CANCEL')
        s.server.reply(at_server, int(case), tag=tag)
        s.server.reply(cancel, 200)
        s.server.expect('ACK')
        s.wait_figure('ending', 0)
        call.none(lambda m: m.status and m.method == 'INVITE' and
                  m.status not in (100, 503), 0.1)


@cases(*OVER)
def test_200_crosses_the_cancel(case):
    """Then the proxy ACKs it and ends the call with BYE; the caller heard 503."""
    with Setup(1, case, case) as s:
        call, at_server, tag = s.waiting()
        newcomer(s)
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status == 503, answer)
        call.ack(answer)
        cancel = s.server.expect('CANCEL')
        s.server.reply(at_server, 200, ('Record-Route', f'<sip:{s.server.at};lr>'), tag=tag)
        s.server.reply(cancel, 200)
        ack = s.server.expect('ACK', call_id=call.call_id)
        check(ack.cseq == at_server.cseq and ack.tag('to') == tag, ack.headers)
        check(ack.tag('from') == at_server.tag('from'), ack.headers)
        check(ack.uri == uri_of(s.server.contact()), ack.uri)
        bye = s.server.expect('BYE', call_id=call.call_id)
        check(bye.cseq > at_server.cseq and bye.tag('to') == tag, bye.headers)
        check(bye.uri == uri_of(s.server.contact()), bye.uri)
        s.server.reply(bye, 200)
        s.wait_figure('ending', 0)
        call.none(lambda m: m.status == 200 and m.method == 'INVITE', 0.2)


def test_200_again_is_acked_again():
    """The 2xx is sent again until its ACK comes (section 13.3.1.4)."""
    with Setup(1) as s:
        call, at_server, tag = s.waiting()
        newcomer(s)
        call.ack(call.expect(503))
        s.server.expect('CANCEL')
        for _ in range(3):
            s.server.reply(at_server, 200, tag=tag)
            s.server.expect('ACK', call_id=call.call_id)
        s.server.reply(s.server.expect('BYE', call_id=call.call_id), 200)
        s.wait_figure('ending', 0)


def test_cancel_waits_for_a_provisional_response():
    """RFC 3261 section 9.1: no CANCEL before the server has said anything."""
    with Setup(1) as s:
        call, at_server, tag = s.waiting(ring=False)
        newcomer(s)
        call.ack(call.expect(503))
        s.server.none('CANCEL', 0.3)
        s.server.reply(at_server, 180, tag=tag)
        cancel = s.server.expect('CANCEL')
        check_cancel(cancel, at_server)
        s.server.reply(cancel, 200)
        s.server.reply(at_server, 487, tag=tag)
        s.server.expect('ACK')
        s.wait_figure('ending', 0)
        call.none(lambda m: m.status and m.status != 503 and m.status != 100, 0.1)


def test_caller_cancels_as_it_becomes_a_victim():
    with Setup(1) as s:
        call, at_server, tag = s.waiting()
        call.cancel()
        newcomer(s)
        cancel = s.server.expect('CANCEL')
        s.server.reply(cancel, 200)
        s.server.reply(at_server, 487, tag=tag)
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status in (487, 503), answer)
        call.ack(answer)
        s.server.expect('ACK')
        s.wait_figure('ending', 0)
        s.wait_up(1, 0)


# ---- INCALL --------------------------------------------------------------------

def check_bye(bye, call_id, from_tag, to_tag, above, target):
    """A BYE that its receiver takes: tags, CSeq, target (RFC 3261 sections 12.2.2
    and 15.1.2), and the reason (RFC 3326)."""
    check(bye.call_id == call_id, bye)
    check(bye.tag('from') == from_tag, 'From-tag', bye.get('from'), 'not', from_tag)
    check(bye.tag('to') == to_tag, 'To-tag', bye.get('to'), 'not', to_tag)
    check(above < bye.cseq < 2**31, 'CSeq', bye.cseq, 'not above', above)
    check(bye.uri == target, 'Request-URI', bye.uri, 'not', target)
    check(bye.get('reason'), 'no Reason')
    check(0 < int(bye.get('max-forwards')) <= 70, bye.headers)


def check_both_byes(s, call, callee, above=None):
    """Both sides get a BYE, as if from the other, and answer it."""
    mine = call.expect('BYE')
    check_bye(mine, call.call_id, parameter(call.remote, 'tag'),
              parameter(call.local, 'tag'), callee.cseq,
              uri_of(call.endpoint.contact(call.user)))
    theirs = s.server.expect('BYE', call_id=call.call_id)
    check_bye(theirs, call.call_id, parameter(call.local, 'tag'),
              parameter(call.remote, 'tag'), above or call.cseq,
              uri_of(s.server.contact()))
    call.endpoint.reply(mine, 200)
    s.server.reply(theirs, 200)
    s.wait_figure('ending', 0)
    return mine, theirs


@cases(*PAIRS)
def test_incall_victim(case):
    with Setup(1, *case.split('-')) as s:
        call, callee = s.up()
        began = time.monotonic()
        other, at_server, tag = newcomer(s)
        check_both_byes(s, call, callee)
        check_within_1s(s, began)
        s.server.reply(at_server, 200, tag=tag)
        other.ack(other.expect((200, 'INVITE')))
        s.wait_up(0, 1)
        check(s.figure('ended.cut_incall') == 1, s.figure('ended'))


def test_incall_victim_ipv6():
    with Setup(1, host='::1') as s:
        call, callee = s.up()
        newcomer(s)
        check_both_byes(s, call, callee)


def test_byes_are_sent_again_until_answered():
    """And the call is being ended, not ended, until then."""
    with Setup(1, t1='100ms') as s:
        call, _ = s.up()
        newcomer(s)
        poll(lambda: call.count('BYE'), lambda n: n >= 3, say='BYE sent again')
        poll(lambda: s.server.count('BYE'), lambda n: n >= 3, say='BYE sent again')
        byes = [m for m in s.server.seen if m.is_a('BYE')]
        check(len({parameter(m.listed('via')[0], 'branch') for m in byes}) == 1)
        check(len({m.raw for m in byes}) == 1, 'not the same bytes')
        check(s.figure('ending') == 1, s.proxy.status())
        s.end_victim(call)
        s.wait_figure('ending', 0)
        check(s.figure('ended.cut_incall') == 1, s.figure('ended'))


def test_nobody_answers_the_byes():
    """Timer F ends the call then, and not before."""
    with Setup(1, t1=QUICK) as s:
        call, _ = s.up()
        _, at_server, tag = newcomer(s)
        s.server.reply(at_server, 180, tag=tag)
        s.wait_figure('ending', 1)
        s.wait_figure('ending', 0)
        check(call.count('BYE') >= 4, 'BYEs', call.count('BYE'))
        check(s.figure('ended.cut_incall') == 1, s.figure('ended'))


@cases('481', '408', '500', '405')
def test_bye_answered_with_an_error(case):
    with Setup(1) as s:
        call, _ = s.up()
        newcomer(s)

        def answer_all():
            for side in (s.caller, s.server):
                side.pump(0.01)
                bye = side.take('BYE')
                if bye:
                    side.reply(bye, int(case))
            return s.figure('ending')
        poll(answer_all, lambda n: n == 0, say='ending 0')
        check(call.count('BYE') < 10 and s.server.count('BYE') < 10)


def test_cseq_after_requests_in_dialog():
    """re-INVITE, UPDATE, PRACK and INFO of both sides: each BYE is above what its
    receiver saw last from the other."""
    with Setup(1) as s:
        call = s.call(cseq=7000)
        call.invite()
        at_server = s.server.expect('INVITE')
        callee = answered(s.server, at_server)
        callee.cseq = 40
        s.server.reply(at_server, 183, ('RSeq', '1'), ('Require', '100rel'), tag=callee.tag)
        call.expect(183)
        call.send(call.request('PRACK', ('RAck', '1 7000 INVITE')))
        s.server.reply(s.server.expect('PRACK'), 200)
        call.expect((200, 'PRACK'))
        s.server.reply(at_server, 200, tag=callee.tag)
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        call.cseq = 8000
        call.send(call.request('UPDATE'))
        s.server.reply(s.server.expect('UPDATE'), 200)
        call.expect((200, 'UPDATE'))
        callee.send(callee.request('INFO'))
        s.caller.reply(s.caller.expect('INFO'), 200)
        callee.expect((200, 'INFO'))
        callee.cseq = 900
        callee.invite()
        s.caller.reply(s.caller.expect('INVITE'), 200)
        callee.ack(callee.expect((200, 'INVITE')))
        s.caller.expect('ACK')
        call.cseq = 9000
        call.invite()
        s.server.reply(s.server.expect('INVITE'), 200)
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        newcomer(s)
        check_both_byes(s, call, callee)


@cases('caller', 'callee')
def test_target_refresh(case):
    """A re-INVITE or its answer says where the party is now: the BYE goes there."""
    with Setup(1) as s:
        call, callee = s.up()
        moved = s.another()
        if case == 'caller':
            lines = call.request('INVITE').decode().replace(
                s.caller.contact('alice'), moved.contact('alice'))
            call.send(lines.encode())
            call.sent = None
            s.server.reply(s.server.expect('INVITE'), 200)
            ok = call.expect((200, 'INVITE'))
            call.send(call.request('ACK', cseq=ok.cseq))
            s.server.expect('ACK')
        else:
            call.invite()
            again = s.server.expect('INVITE')
            s.server.reply(again, 200, ('Contact', moved.contact()), contact=False)
            call.ack(call.expect((200, 'INVITE')))
        newcomer(s)
        if case == 'caller':
            bye = moved.expect('BYE')
            check(bye.uri == uri_of(moved.contact('alice')), bye.uri)
            moved.reply(bye, 200)
            s.server.reply(s.server.expect('BYE'), 200)
        else:
            # Through the server still: it is the next hop to everybody behind it.
            bye = poll(lambda: (moved.pump(0.01), s.server.pump(0.01), moved.take('BYE') or
                                s.server.take('BYE'))[2], bool, say='BYE to the callee')
            check(bye.uri == uri_of(moved.contact()), bye.uri)
            s.server.reply(bye, 200, to=s.proxy.address)
            s.caller.reply(call.expect('BYE'), 200)
        s.wait_figure('ending', 0)


def test_target_refresh_by_update():
    with Setup(1) as s:
        call, callee = s.up()
        moved = s.another()
        data = callee.request('UPDATE').decode().replace(
            uri_of(s.server.contact('callee')), uri_of(moved.contact('callee')))
        callee.send(data.encode())
        s.caller.reply(s.caller.expect('UPDATE'), 200)
        callee.expect((200, 'UPDATE'))
        newcomer(s)
        s.caller.reply(call.expect('BYE'), 200)
        bye = poll(lambda: (moved.pump(0.01), s.server.pump(0.01), moved.take('BYE') or
                            s.server.take('BYE'))[2], bool, say='BYE to the callee')
        check(bye.uri == uri_of(moved.contact('callee')), bye.uri)


def test_route_of_the_server_side():
    """The server record-routes (twice, as some do): the BYE has its route set, in
    order, without the proxy's own entry, and the callee as its target."""
    with Setup(1) as s:
        call, at_server, tag = s.waiting()
        theirs = [f'<sip:{s.server.at};lr;two=b>', f'<sip:{s.server.at};lr;one=a>']
        lines = [('Via', via) for via in at_server.all('via')]
        lines += [('Record-Route', ', '.join(theirs))]
        lines += [('Record-Route', one) for one in at_server.all('record-route')]
        lines += [('From', at_server.get('from')),
                  ('To', at_server.get('to') + f';tag={tag}'), ('Call-ID', call.call_id),
                  ('CSeq', at_server.get('cseq')),
                  ('Contact', '<sip:bob@127.9.9.7:5070;ob>')]
        s.server.send(build('SIP/2.0 200 OK', lines), at_server.source)
        call.ack(call.expect((200, 'INVITE')))
        ack = s.server.expect('ACK')
        check(ack.listed('route') == theirs[::-1], 'Route of the ACK', ack.all('route'))
        newcomer(s)
        s.caller.reply(call.expect('BYE'), 200)
        bye = s.server.expect('BYE')
        check(bye.listed('route') == theirs[::-1], 'Route', bye.all('route'))
        check(bye.uri == 'sip:bob@127.9.9.7:5070;ob', bye.uri)
        s.server.reply(bye, 200)
        s.wait_figure('ending', 0)


def test_route_of_the_callers_side():
    """There are proxies before ours: the BYE goes by their Record-Route, to the
    caller, who cannot be reached otherwise."""
    with Setup(1) as s:
        edge = s.another()
        call = s.call(edge)
        theirs = [f'<sip:{edge.at};lr>', '<sip:127.9.9.1:5080;lr>']
        data = call.request('INVITE', *(('Record-Route', one) for one in theirs))
        data = data.decode().replace(edge.contact('alice'), '<sip:alice@127.9.9.9>')
        call.sent = call.send(data.encode())
        at_server = s.server.expect('INVITE')
        check(at_server.listed('record-route')[-2:] == theirs, at_server.all('record-route'))
        s.server.reply(at_server, 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        newcomer(s)
        bye = edge.expect('BYE')
        check(bye.listed('route') == theirs, 'Route', bye.all('route'))
        check(bye.uri == 'sip:alice@127.9.9.9', bye.uri)
        edge.reply(bye, 200)
        s.server.reply(s.server.expect('BYE'), 200)
        s.wait_figure('ending', 0)


def test_strict_router_on_the_callers_side():
    """The next hop is a strict router (RFC 2543): its URI is the Request-URI and the
    target the last Route (RFC 3261 section 12.2.1.1)."""
    with Setup(1) as s:
        edge = s.another()
        call = s.call(edge)
        theirs = [f'<sip:{edge.at}>', '<sip:127.9.9.1:5080;lr>']
        data = call.request('INVITE', *(('Record-Route', one) for one in theirs))
        data = data.decode().replace(edge.contact('alice'), '<sip:alice@127.9.9.9>')
        call.sent = call.send(data.encode())
        s.server.reply(s.server.expect('INVITE'), 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        newcomer(s)
        bye = edge.expect('BYE')
        check(bye.uri == f'sip:{edge.at}', bye.uri)
        check(bye.listed('route') == ['<sip:127.9.9.1:5080;lr>', '<sip:alice@127.9.9.9>'],
              bye.all('route'))
        edge.reply(bye, 200)
        s.server.reply(s.server.expect('BYE'), 200)
        s.wait_figure('ending', 0)


@cases('private', 'name', 'none')
def test_caller_behind_nat(case):
    """Its Contact cannot be reached: the BYE goes to where the INVITE came from."""
    contact = {'private': '<sip:alice@10.255.255.254:5062>',
               'name': '<sip:alice@phone.invalid>',
               'none': '<sip:alice@10.255.255.254:5062;transport=udp>'}[case]
    with Setup(1) as s:
        call = s.call()
        data = call.request('INVITE').decode().replace(s.caller.contact('alice'), contact)
        data = data.replace(f'SIP/2.0/UDP {s.caller.at};rport',
                            'SIP/2.0/UDP 10.255.255.254:5062' +
                            ('' if case == 'none' else ';rport'))
        if case == 'none':
            # No rport: answers go to the Via's port at the address received
            # (section 18.2.2); so the port must be the right one to hear them.
            data = data.replace('10.255.255.254:5062;branch',
                                f'10.255.255.254:{s.caller.port};branch')
        call.sent = call.send(data.encode())
        at_server = s.server.expect('INVITE')
        via = at_server.listed('via')[1]
        check(parameter(via, 'received') == '127.0.0.1', via)
        if case != 'none':
            check(parameter(via, 'rport') == str(s.caller.port), via)
        s.server.reply(at_server, 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        newcomer(s)
        bye = call.expect('BYE')
        check(bye.uri == uri_of(contact), bye.uri)
        s.caller.reply(bye, 200)
        s.server.reply(s.server.expect('BYE'), 200)
        s.wait_figure('ending', 0)


def test_user_part_with_a_semicolon():
    """`;` is part of this Contact's user (RFC 3261 section 25.1)."""
    user = 'alice;phone-context=example.org;x=1'
    with Setup(1) as s:
        call = s.call()
        call.user = user
        call.invite()
        s.server.reply(s.server.expect('INVITE'), 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        newcomer(s)
        bye = call.expect('BYE')
        check(bye.uri == f'sip:{user}@{s.caller.at}', bye.uri)
        s.caller.reply(bye, 200)


def test_byes_cross():
    """The caller hangs up as the proxy ends the call: both BYEs are answered, and
    the call is over once."""
    with Setup(1) as s:
        call, callee = s.up()
        newcomer(s)
        mine = call.expect('BYE')
        call.bye()
        s.caller.reply(mine, 200)

        def answer_all():
            s.server.pump(0.02)
            bye = s.server.take('BYE')
            if bye:
                s.server.reply(bye, 200)
            return s.figure('ending')
        poll(answer_all, lambda n: n == 0, say='ending 0')
        later = call.expect(lambda m: m.status and m.method == 'BYE')
        check(later.status in (200, 481), later)
        s.wait_up(1, 0)


def test_tcp_caller_has_gone():
    """Its connection is closed: it cannot be told, the server can."""
    with Setup(1, 'tcp', t1=QUICK) as s:
        phone = s.another('tcp')
        call, _ = s.up(endpoint=phone)
        phone.close()
        s.more.remove(phone)
        newcomer(s)
        s.server.reply(s.server.expect('BYE'), 200)
        s.wait_figure('ending', 0)


def test_record_routed_twice():
    """The server sends the same Call-ID through the proxy again, to the callee: one
    call, and a BYE for each party."""
    with Setup(1) as s:
        phone = s.another()
        call, at_server, _ = s.waiting(ring=False)
        vias = [('Via', s.server.via('z9hG4bKserver' + at_server.call_id[:12]))]
        vias += [('Via', via) for via in at_server.all('via')]
        kept = [(name, value) for name, value in at_server.headers if name.lower() not in
                ('via', 'record-route', 'content-length', 'max-forwards')]
        record = [('Record-Route', f'<sip:{s.server.at};lr>')]
        record += [('Record-Route', one) for one in at_server.all('record-route')]
        forwarded = build(f'INVITE {uri_of(phone.contact("bob"))} SIP/2.0',
                          vias + record + [('Max-Forwards', '68')] + kept, at_server.body)
        s.server.send(forwarded, s.proxy.address)
        at_phone = phone.expect('INVITE')
        check(at_phone.call_id == call.call_id)
        check(s.figure('started') == 1 and s.figure('waiting') == 1, s.proxy.status())
        phone.reply(at_phone, 200, tag='p')
        ok = s.server.expect((200, 'INVITE'))
        up = [line for line in ok.headers if line[0].lower() != 'content-length']
        s.server.send(build('SIP/2.0 200 OK', up[1:], ok.body), at_server.source)
        call.ack(call.expect((200, 'INVITE')))
        ack = s.server.expect('ACK')
        check(len(ack.listed('route')) >= 1, 'Route of the ACK', ack.all('route'))
        s.wait_up(0, 1)
        # The next newcomer: BYE to the caller, and towards the callee.
        newcomer(s)
        mine = call.expect('BYE')
        s.caller.reply(mine, 200)
        bye = s.server.expect('BYE')
        check(bye.uri == uri_of(phone.contact()), bye.uri)
        check(bye.tag('to') == 'p', bye.headers)
        s.server.reply(bye, 200)
        s.wait_figure('ending', 0)
        check(s.figure('started') == 2, s.figure('started'))

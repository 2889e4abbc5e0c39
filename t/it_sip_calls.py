"""One call is one place, from its INVITE to its end, whatever happens to it; and
what the proxy does to the messages of a call is what RFC 3261 section 16 says."""

from t.it_common import cases, check, limit, poll
from t.sip_common import LONG_ROUND, OVER, Setup, answered, same_call
from t.sipwire import SDP, Call, parameter, uri_of

QUICK = '60ms'      # T1: timers B, F and H come after 64 of them


@cases('udp-udp', 'tcp-udp', 'udp-tcp', 'tcp-tcp', 'udp-udp-6', 'tcp-tcp-6')
def test_call(case):
    """A call passes, is WAITING and then INCALL, and its place comes back."""
    over, server_over, *six = case.split('-')
    with Setup(3, over, server_over, host='::1' if six else '127.0.0.1') as s:
        call, at_server, tag = s.waiting()
        s.wait_up(1, 0)
        s.server.reply(at_server, 200, tag=tag, body=SDP)
        ok = call.expect((200, 'INVITE'))
        check(ok.body.decode() == SDP, 'the body of the 200 has changed')
        call.ack(ok)
        s.server.expect('ACK')
        s.wait_up(0, 1)
        call.bye()
        s.server.reply(s.server.expect('BYE'), 200)
        call.expect((200, 'BYE'))
        s.wait_up(0, 0)
        check(s.figure('started') == 1, 'started', s.figure('started'))
        check(s.figure('ended.completed') == 1, s.figure('ended'))


@cases('udp-udp', 'tcp-tcp', 'udp-tcp')
def test_headers_pass_unchanged(case):
    """What the proxy does not own arrives byte for byte, and in order."""
    over, server_over = case.split('-')
    odd = [('X-Odd', 'a;b="c, d" <e>   f'), ('Subject', 'Gr\xfc\xdfe'),
           ('x-odd', 'again'), ('P-Asserted-Identity', '"A, B" <sip:a@example.org>'),
           ('Allow', 'INVITE, ACK,BYE'), ('Supported', 'timer,  100rel'),
           ('Session-Expires', '1800;refresher=uac'), ('Date', 'not a date')]
    body = 'v=0\r\n\0\x01\xff binary\r\n\r\n..'
    with Setup(3, over, server_over) as s:
        call = s.call()
        sent = call.invite(*odd, body=body)
        got = s.server.expect('INVITE')
        check(got.body == body.encode('latin-1'), 'the body has changed:', got.body)
        check(got.uri == sent.uri, 'Request-URI', got.uri)
        same_call(sent, got, 'from', 'to', 'call-id', 'cseq', 'contact', 'content-type',
                  *{name.lower() for name, _ in odd})
        check(got.get('max-forwards') == '69', 'Max-Forwards', got.get('max-forwards'))
        vias = got.listed('via')
        check(len(vias) == 2, vias)
        check(parameter(vias[0], 'branch').startswith('z9hG4bK'), vias[0])
        check(parameter(vias[1], 'branch') == parameter(sent.get('via'), 'branch'), vias)
        check(got.all('record-route'), 'it did not record-route itself')
        own = [name for name, _ in got.headers if name.lower() not in
               ('via', 'record-route', 'max-forwards')]
        before = [name for name, _ in sent.headers if name.lower() not in
                  ('via', 'max-forwards')]
        check([n for n in own if n.lower() not in ('content-length',)] ==
              [n for n in before if n.lower() not in ('content-length',)],
              'order or names of headers:', own, before)
        s.server.reply(got, 183, ('X-Back', 'z;y="x"'), tag='tt', body=body)
        back = call.expect(183)
        check(back.get('x-back') == 'z;y="x"' and back.body == body.encode('latin-1'))
        check(len(back.listed('via')) == 1, back.all('via'))


def test_retransmitted_invite_counts_once():
    with Setup(3) as s:
        call, at_server, tag = s.waiting()
        for _ in range(5):
            call.again()
        # Each is answered with the last provisional response (17.2.1).
        poll(lambda: call.count(180), lambda n: n >= 2, say='180 sent again')
        s.wait_up(1, 0)
        check(s.figure('started') == 1, s.figure('started'))
        check(s.server.count('INVITE') == 1, 'the server got it again')


@cases('401', '407')
def test_authentication_counts_once(case):
    """The second INVITE has the credentials, another branch and the next CSeq."""
    with Setup(2) as s:
        call, status = s.call(), int(case)
        call.invite()
        first = s.server.expect('INVITE')
        name = {401: 'WWW', 407: 'Proxy'}[status] + '-Authenticate'
        s.server.reply(first, status, (name, 'Digest realm="r", nonce="n"'), tag='x')
        answer = call.expect(status)
        check(answer.get(name.lower()) == 'Digest realm="r", nonce="n"', answer.headers)
        call.ack(answer)
        s.server.expect('ACK')
        call.invite(('Authorization', 'Digest username="a"'))
        second = s.server.expect('INVITE')
        check(second.cseq == first.cseq + 1)
        check(s.figure('waiting') == 1, 'up', s.figure('waiting'))
        s.server.reply(second, 200, tag='y')
        call.ack(call.expect((200, 'INVITE')))
        s.wait_up(0, 1)
        # The place is kept for 2 s: a test that was slower has begun another call.
        count = s.figure('started') - s.figure('ended.failed')
        check(count == 1, 'started', s.figure('started'))
        s.hang_up(call)
        s.wait_up(0, 0)


def test_authentication_when_full():
    """Whose place it is keeps it between the challenge and the second try."""
    with Setup(2, round=LONG_ROUND) as s:
        s.up()
        call = s.call()
        call.invite()
        first = s.server.expect('INVITE', call_id=call.call_id)
        s.server.reply(first, 407, ('Proxy-Authenticate', 'Digest realm="r"'), tag='x')
        call.ack(call.expect(407))
        call.invite()
        second = s.server.expect('INVITE', call_id=call.call_id)
        s.server.reply(second, 180, tag='y')
        call.expect(180)
        check(s.figure('refused') == 0 and s.figure('replaced') == 0, s.proxy.status())
        check(s.figure('pmod') == 0, 'PMod', s.figure('pmod'))


def test_requests_in_dialog_count_nothing():
    """re-INVITE, UPDATE, PRACK and INFO of either side, though all places are taken
    and nobody else gets in."""
    with Setup(1, round=LONG_ROUND) as s:
        call, at_server, tag = s.waiting(invite={})
        callee = answered(s.server, at_server, tag)
        s.server.reply(at_server, 183, ('RSeq', '1'), ('Require', '100rel'), tag=tag)
        call.expect(183)
        call.send(call.request('PRACK', ('RAck', '1 1 INVITE')))
        s.server.reply(s.server.expect('PRACK'), 200)
        call.expect((200, 'PRACK'))
        s.server.reply(at_server, 200, tag=tag)
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        for method in ('UPDATE', 'INFO'):
            call.send(call.request(method))
            s.server.reply(s.server.expect(method), 200)
            call.expect((200, method))
            callee.send(callee.request(method))
            s.caller.reply(s.caller.expect(method), 200)
            callee.expect((200, method))
        call.invite()
        s.server.reply(s.server.expect('INVITE'), 200)
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        callee.invite()
        s.caller.reply(s.caller.expect('INVITE'), 200)
        callee.ack(callee.expect((200, 'INVITE')))
        s.caller.expect('ACK')
        s.wait_up(0, 1)
        check(s.figure('started') == 1, s.figure('started'))
        check(s.figure('pmod') == 0, 'PMod', s.figure('pmod'))
        s.hang_up(call)
        s.wait_up(0, 0)


def test_forked_answers_count_once():
    """18x and 2xx of several branches (RFC 3261 section 16.7) are one call; it is
    over when the last of its dialogs is."""
    with Setup(2) as s:
        call = s.call()
        call.invite()
        at_server = s.server.expect('INVITE')
        for tag in ('fork-a', 'fork-b', 'fork-c'):
            s.server.reply(at_server, 180, tag=tag)
            check(call.endpoint.expect(180).tag('to') == tag)
        legs = []
        for tag in ('fork-a', 'fork-b'):
            s.server.reply(at_server, 200, tag=tag)
            ok = s.caller.expect(lambda m: m.status == 200 and m.tag('to') == tag)
            leg = Call(s.caller, s.proxy.address, call_id=call.call_id)
            leg.local, leg.sent, leg.cseq = call.local, call.sent, call.cseq
            leg.learn(ok)
            leg.ack(ok)
            s.server.expect(lambda m: m.method == 'ACK' and m.tag('to') == tag)
            legs.append(leg)
        s.wait_up(0, 1)
        check(s.figure('started') == 1, s.figure('started'))
        s.hang_up(legs[1])
        s.wait_up(0, 1)
        s.hang_up(legs[0])
        s.wait_up(0, 0)


def test_back_to_back_server_counts_once():
    """The server's own INVITE to the callee, with another Call-ID, is not a new
    call."""
    with Setup(1, round=LONG_ROUND) as s:
        phone = s.another()
        call, at_server, tag = s.waiting()
        second = Call(s.server, s.proxy.address, caller='alice', callee='bob')
        second.target = uri_of(phone.contact('bob'))
        second.invite()
        at_phone = phone.expect('INVITE')
        check(at_phone.call_id == second.call_id)
        phone.reply(at_phone, 200, tag='p')
        second.ack(second.expect((200, 'INVITE')))
        phone.expect('ACK')
        s.server.reply(at_server, 200, tag=tag)
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        s.wait_up(0, 1)
        check(s.figure('started') == 1, s.figure('started'))
        # The callee hangs up: the server ends both of its dialogs.
        back = answered(phone, at_phone, 'p')
        back.bye()
        s.server.reply(s.server.expect('BYE', call_id=second.call_id), 200)
        back.expect((200, 'BYE'))
        first = answered(s.server, at_server, tag)
        first.bye()
        s.caller.reply(s.caller.expect('BYE', call_id=call.call_id), 200)
        first.expect((200, 'BYE'))
        s.wait_up(0, 0)


@cases('caller', 'callee')
def test_bye_gives_the_place_back(case):
    with Setup(2) as s:
        call, callee = s.up()
        s.wait_up(0, 1)
        if case == 'caller':
            s.hang_up(call)
        else:
            callee.bye()
            s.caller.reply(s.caller.expect('BYE'), 200)
            callee.expect((200, 'BYE'))
        s.wait_up(0, 0)
        check(s.figure('ended.completed') == 1, s.figure('ended'))


@cases('302', '404', '480', '486', '488', '500', '503', '600', '603')
def test_final_error_gives_the_place_back(case):
    with Setup(2) as s:
        call, at_server, tag = s.waiting()
        s.wait_up(1, 0)
        s.server.reply(at_server, int(case), ('X-Why', 'so'), tag=tag)
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status == int(case), answer)
        check(answer.get('x-why') == 'so', answer.headers)
        call.ack(answer)
        s.server.expect('ACK')
        s.wait_up(0, 0)
        check(s.figure('ended.failed') == 1, s.figure('ended'))


@cases(*OVER)
def test_cancel_gives_the_place_back(case):
    with Setup(2, case) as s:
        call, at_server, tag = s.waiting()
        call.cancel()
        call.expect((200, 'CANCEL'))
        cancel = s.server.expect('CANCEL')
        check(cancel.uri == at_server.uri and cancel.cseq == at_server.cseq, cancel)
        check(parameter(cancel.get('via'), 'branch') ==
              parameter(at_server.get('via'), 'branch'), 'branch of the CANCEL')
        s.server.reply(cancel, 200)
        s.server.reply(at_server, 487, tag=tag)
        call.ack(call.expect(487))
        s.server.expect('ACK')
        s.wait_up(0, 0)
        check(s.figure('ended.cancelled') == 1, s.figure('ended'))


def test_cancel_crosses_the_200():
    """CANCEL came too late: the call is up (RFC 3261 section 9.1)."""
    with Setup(2) as s:
        call, at_server, tag = s.waiting()
        call.cancel()
        cancel = s.server.expect('CANCEL')
        s.server.reply(at_server, 200, tag=tag)
        s.server.reply(cancel, 200)
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        s.wait_up(0, 1)
        s.hang_up(call)
        s.wait_up(0, 0)


def test_timer_c():
    """It rings too long: CANCEL, and the caller is told."""
    with Setup(2, ring_time='1s') as s:
        call, at_server, tag = s.waiting(ring=False)
        s.server.reply(at_server, 180, tag=tag)
        cancel = s.server.expect('CANCEL')
        s.server.reply(cancel, 200)
        s.server.reply(at_server, 487, tag=tag)
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status in (408, 487), answer)
        call.ack(answer)
        s.server.expect('ACK')
        s.wait_up(0, 0)
        check(s.figure('ended.timeout') == 1, s.figure('ended'))


def test_timer_b():
    """The server answers nothing at all: INVITE is sent again, then given up."""
    with Setup(2, t1=QUICK) as s:
        call = s.call()
        call.invite()
        answer = call.expect(lambda m: m.status and m.status >= 300)
        check(answer.status == 408, answer)
        call.ack(answer)
        check(s.server.count('INVITE') >= 2, 'INVITEs', s.server.count('INVITE'))
        s.wait_up(0, 0)
        check(s.figure('ended.timeout') == 1, s.figure('ended'))


def test_timer_h():
    """The caller never acknowledges the 2xx: it has vanished."""
    with Setup(2, t1=QUICK) as s:
        call, at_server, tag = s.waiting()
        s.server.reply(at_server, 200, tag=tag)
        call.expect((200, 'INVITE'))
        s.wait_up(0, 0)
        check(s.figure('ended.no_ack') == 1, s.figure('ended'))


def test_bye_is_never_answered():
    """Both sides have vanished: one hung up, the other answers nothing."""
    with Setup(2, t1=QUICK) as s:
        call, _ = s.up()
        call.bye()
        s.server.expect('BYE')
        s.wait_up(0, 0)


def test_bye_answered_481():
    """The other side had forgotten the call."""
    with Setup(2) as s:
        call, _ = s.up()
        call.bye()
        s.server.reply(s.server.expect('BYE'), 481)
        call.expect((481, 'BYE'))
        s.wait_up(0, 0)


def test_bye_challenged():
    """A BYE that the server challenges has not ended the call."""
    with Setup(2) as s:
        call, _ = s.up()
        call.bye()
        s.server.reply(s.server.expect('BYE'), 407, ('Proxy-Authenticate', 'Digest r="x"'))
        call.expect((407, 'BYE'))
        s.wait_up(0, 1)
        s.hang_up(call)
        s.wait_up(0, 0)


@limit(90)
def test_thousands_leave_nothing():
    """Calls of every kind of end, and at last none is up."""
    with Setup(1000) as s:
        live = []
        for at in range(300):
            call, at_server, tag = s.waiting()
            kind = at % 4
            if kind == 0:
                s.server.reply(at_server, 486, tag=tag)
                call.ack(call.expect(486))
            elif kind == 1:
                call.cancel()
                s.server.reply(s.server.expect('CANCEL', call_id=call.call_id), 200)
                s.server.reply(at_server, 487, tag=tag)
                call.ack(call.expect(487))
            else:
                s.server.reply(at_server, 200, tag=tag)
                call.ack(call.expect((200, 'INVITE')))
                live.append(call)
        s.wait_up(0, 150)
        for call in live:
            s.hang_up(call)
        s.wait_up(0, 0)
        check(s.figure('started') == 300, s.figure('started'))

"""What callers may write to have a call that is not counted, or that cannot be ended.
Each call that reaches the server holds a place, and its BYE ends it there."""

from t.it_common import cases, check, poll
from t.sip_common import Setup
from t.sipwire import Call, Message, build, parameter, unique


def at_server(s, call):
    """The INVITE at the server, or None if the caller was refused."""
    found = poll(lambda: (s.server.pump(0.02), call.endpoint.pump(0.02),
                          s.server.take('INVITE', call.call_id) or
                          call.endpoint.take(lambda m: m.status and m.status >= 300,
                                             call.call_id))[2],
                 bool, say='INVITE at the server, or a refusal')
    return None if found.status else found


@cases('waiting', 'incall')
def test_same_call_id_is_not_free(case):
    """INVITEs with the Call-ID and From-tag of a call that is up, the CSeq higher: if
    one goes on to the server it is counted as the call that it is there."""
    with Setup(10) as s:
        if case == 'waiting':
            call, _, _ = s.waiting()
        else:
            call, _ = s.up()
        passed = 1
        for cseq in range(2, 7):
            more = Call(s.caller, s.proxy.address, call_id=call.call_id, cseq=cseq)
            more.local = call.local
            more.invite()
            found = at_server(s, more)
            if found is not None:
                s.server.reply(found, 180, tag=unique('t'))
                passed += 1
        s.server.pump(0.1)
        check(s.figure('waiting') + s.figure('incall') == passed,
              passed, 'at the server, counted', s.figure('waiting'), s.figure('incall'))


@cases('vias', 'routes', 'both')
def test_pretending_to_have_passed(case):
    """An INVITE that looks as if it came from the server, with what the proxy itself
    wrote into an earlier one."""
    with Setup(10) as s:
        first, seen, _ = s.waiting()
        for _ in range(3):
            call = s.call()
            more = []
            if case != 'routes':
                more += [('Via', f'SIP/2.0/UDP {s.server.at};branch=z9hG4bKs{unique()}'),
                         *(('Via', via) for via in seen.all('via'))]
            if case != 'vias':
                more += [('Record-Route', f'<sip:{s.server.at};lr>'),
                         *(('Record-Route', one) for one in seen.all('record-route'))]
            call.invite(*more, routes=seen.all('record-route') if case == 'both' else [])
            poll(lambda: (s.caller.pump(0.05), call.count(lambda m: m.status is not None))[1],
                 bool, say='an answer')
        s.server.pump(0.2)
        alive = {m.call_id for m in s.server.seen if m.is_a('INVITE')}
        check(s.figure('waiting') + s.figure('incall') >= len(alive),
              len(alive), 'at the server, counted', s.figure('waiting'))
        check(first.call_id in alive)


def ended_at_server(s, call, tag):
    """A newcomer's victim: the server gets its BYE."""
    s.waiting()
    bye = s.server.expect('BYE', call_id=call.call_id)
    check(bye.tag('to') == tag, bye.headers)
    s.server.reply(bye, 200)
    return bye


LONG = {'call-id': 3000, 'from': 3000, 'contact': 6000, 'record-route': 20000}


@cases(*LONG)
def test_too_long_to_be_kept(case):
    """Either it does not get in, or it can be ended."""
    with Setup(1) as s:
        many = 'x' * LONG[case]
        call = s.call(call_id=f'{many}@test' if case == 'call-id' else None)
        if case == 'from':
            call.local = f'"{many}" <sip:alice@example.org>;tag={many}'
        if case == 'contact':
            call.user = many
        more = [('Record-Route', f'<sip:127.9.9.{at % 250};lr;x={"y" * 300}>')
                for at in range(LONG[case] // 320)] if case == 'record-route' else []
        call.invite(*more)
        found = at_server(s, call)
        if found is None:
            return
        s.server.reply(found, 200, tag='t')
        answer = call.expect(lambda m: m.status and m.status >= 200)
        if answer.status == 200:
            call.ack(answer)
        ended = poll(lambda: (s.server.pump(0.05), s.server.take('BYE'))[1] or
                     s.figure('incall'), bool, say='INCALL or BYE')
        if isinstance(ended, Message):
            s.server.reply(ended, 200)
            return
        ended_at_server(s, call, 't')


@cases('none', 'the proxy', 'the server', 'a strict route', 'not a SIP URI', 'a star',
       'several')
def test_odd_contact(case):
    """A caller who cannot be reached, or sends the BYE elsewhere: it still comes to the
    server, and nothing goes round."""
    with Setup(1, t1='60ms') as s:
        contact = {'none': '', 'the proxy': f'<sip:a@127.0.0.1:{s.proxy.port}>',
                   'the server': f'<sip:a@{s.server.at}>',
                   'a strict route': f'<sip:a@{s.caller.at}>',
                   'not a SIP URI': '<mailto:a@example.org>', 'a star': '*',
                   'several': f'<sip:a@{s.caller.at}>, <sip:b@{s.caller.at}>'}[case]
        call = s.call()
        routes = [('Record-Route', f'<sip:127.0.0.1:{s.proxy.port}>')] \
            if case == 'a strict route' else []
        text = call.request('INVITE', *routes).decode()
        line = f'Contact: {s.caller.contact("alice")}\r\n'
        text = text.replace(line, f'Contact: {contact}\r\n' if contact else '')
        call.sent = call.send(text.encode())
        found = at_server(s, call)
        if found is None:
            return
        s.server.reply(found, 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        before = s.figure('requests')
        ended_at_server(s, call, 't')
        s.wait_figure('ending', 0)
        check(s.figure('requests') < before + 40, 'requests', s.figure('requests'))


@cases('no Contact', 'no To-tag', 'no Record-Route', 'an odd tag')
def test_odd_answer(case):
    """The callee is an accomplice: its 2xx leaves out or changes what a BYE needs."""
    with Setup(1) as s:
        call = s.call()
        call.invite()
        invite = s.server.expect('INVITE')
        tag = 'a.b-c!%*_+`\'~' if case == 'an odd tag' else 't'
        lines = [('Via', via) for via in invite.all('via')]
        if case != 'no Record-Route':
            lines += [('Record-Route', one) for one in invite.all('record-route')]
        lines += [('From', invite.get('from')), ('To', invite.get('to') +
                                                 ('' if case == 'no To-tag' else f';tag={tag}')),
                  ('Call-ID', call.call_id), ('CSeq', invite.get('cseq'))]
        if case != 'no Contact':
            lines.append(('Contact', s.server.contact()))
        s.server.send(build('SIP/2.0 200 OK', lines), invite.source)
        answer = call.expect(lambda m: m.status and m.status >= 200)
        if answer.status == 200:
            call.hop = s.proxy.address
            call.ack(answer)
        s.waiting()
        bye = s.server.expect('BYE', call_id=call.call_id)
        if case != 'no To-tag':
            check(bye.tag('to') == tag, bye.headers)
        s.server.reply(bye, 200)


def test_cancel_with_the_wrong_branch():
    """It is not this call's: the call stays. (Section 16.10 has it sent on.)"""
    with Setup(2) as s:
        call, _, _ = s.waiting()
        call.sent = Message(call.sent.raw.replace(
            parameter(call.sent.get('via'), 'branch').encode(), b'z9hG4bKother'))
        call.cancel()
        call.none((487, 'INVITE'), 0.3)
        s.wait_up(1, 0)


def test_bye_of_a_stranger():
    """Right Call-ID, wrong tags: the call stays, and counted."""
    with Setup(2) as s:
        call, callee = s.up()
        stranger = Call(s.another(), s.proxy.address, call_id=call.call_id, cseq=77)
        stranger.remote = call.remote.split(';tag=')[0] + ';tag=wrong'
        stranger.routes, stranger.target = call.routes, call.target
        stranger.send(stranger.request('BYE'))
        bye = poll(lambda: (s.server.pump(0.05), s.server.take('BYE'),
                            stranger.endpoint.pump(0.05),
                            stranger.endpoint.take(lambda m: m.status is not None)),
                   lambda found: found[1] or found[3], say='BYE or its answer')[1]
        if bye:
            s.server.reply(bye, 481)
        s.wait_up(0, 1)
        s.hang_up(call)


"""Messages as they come over the wire: TCP framing, odd but valid forms, wrong ones,
routing, and the torture messages of RFC 4475."""

import glob
import os
import re
import socket
import subprocess

from t.httpd import TOP
from t.it_common import Skip, cases, check, limit, poll
from t.sip import free_sip_port
from t.sip_common import LONG_ROUND, OVER, Setup
from t.sipwire import SDP, Call, Message, Missing, build, parameter, unique, uri_of

TORTURE = os.path.join(TOP, '..', 'shared', 'corpora', 'rfc4475')
# The requests of its section 3.1.1, which are valid.
# intmeth is another, that sofia-sip's parser does not read.
VALID = '''wsinv esc01 escnull esc02 lwsdisp longreq dblreq semiuri transports
    mpart01'''.split()


# ---- TCP -------------------------------------------------------------------------

def options_of(endpoint, call_id, user='bob'):
    return build(f'OPTIONS sip:{user}@example.org SIP/2.0', [
        ('Via', endpoint.via()), ('Max-Forwards', '70'),
        ('From', f'<sip:a@example.org>;tag={unique()}'), ('To', f'<sip:{user}@example.org>'),
        ('Call-ID', call_id), ('CSeq', '1 OPTIONS'), ('Content-Type', 'text/plain')],
        'some body')


def served(s, call_id):
    """The server gets this OPTIONS and its answer gets back."""
    got = s.server.expect('OPTIONS', call_id=call_id)
    check(got.body == b'some body', got.body)
    s.server.reply(got, 200, tag='t')
    s.caller.expect((200, 'OPTIONS'), call_id=call_id)


def test_several_messages_in_a_segment():
    with Setup(2, 'tcp') as s:
        names = [unique('o') for _ in range(20)]
        s.caller.send(b''.join(options_of(s.caller, name) for name in names),
                      s.proxy.address)
        for name in names:
            served(s, name)


@cases('1', '7', 'head', 'separator')
def test_message_in_many_segments(case):
    with Setup(2, 'tcp') as s:
        name = unique('o')
        data = options_of(s.caller, name)
        link = s.caller.connection(s.proxy.address)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if case.isdigit():
            pieces = [data[at:at + int(case)] for at in range(0, len(data), int(case))]
        else:
            cut = data.index(b'\r\n\r\n') + (4 if case == 'head' else 2)
            pieces = [data[:cut], data[cut:]]
        for piece in pieces:
            link.sendall(piece)
            s.caller.pump(0)
        served(s, name)


def test_half_a_message_and_then_the_rest_of_two():
    with Setup(2, 'tcp') as s:
        one, two = unique('o'), unique('o')
        data = options_of(s.caller, one) + options_of(s.caller, two)
        cut = len(data) * 3 // 4
        s.caller.send(data[:cut], s.proxy.address)
        served(s, one)
        s.caller.send(data[cut:], s.proxy.address)
        served(s, two)


@cases('alone', 'before a message')
def test_keepalives(case):
    """CRLFs before a message are nothing (section 7.5); a double one may be answered
    (RFC 5626)."""
    with Setup(2, 'tcp') as s:
        first, name = unique('o'), unique('o')
        s.caller.send(options_of(s.caller, first), s.proxy.address)
        served(s, first)
        if case == 'alone':
            for _ in range(5):
                s.caller.send(b'\r\n\r\n', s.proxy.address)
                s.caller.pump(0.05)
        s.caller.send((b'\r\n\r\n' if case != 'alone' else b'') +
                      options_of(s.caller, name), s.proxy.address)
        served(s, name)


@cases(*OVER)
def test_bare_line_feeds(case):
    """Lines that end in LF alone are taken as some send them, or refused: but not
    taken for something else, and what follows is understood."""
    with Setup(2, case) as s:
        name, later = unique('o'), unique('o')
        s.caller.send(options_of(s.caller, name).replace(b'\r\n', b'\n'), s.proxy.address)
        try:
            answer = s.server.expect('OPTIONS', 1, call_id=name)
            check(answer.get('cseq') == '1 OPTIONS', answer.headers)
        except Missing:
            pass
        again = s.another(case)
        again.send(options_of(again, later), s.proxy.address)
        s.server.expect('OPTIONS', call_id=later)


def test_connection_closed_within_a_message():
    with Setup(2, 'tcp') as s:
        for at in (10, 100, 200):
            link = socket.create_connection(s.proxy.address)
            link.sendall(options_of(s.caller, unique('o'))[:at])
            link.close()
        name = unique('o')
        s.caller.send(options_of(s.caller, name), s.proxy.address)
        served(s, name)


def test_server_closes_its_connection():
    """The next request opens another one."""
    with Setup(2, 'tcp', 'tcp') as s:
        name, later = unique('o'), unique('o')
        s.caller.send(options_of(s.caller, name), s.proxy.address)
        served(s, name)
        for link in list(s.server.buffers):
            s.server.buffers.pop(link)
            link.close()
        s.server.by_address.clear()

        def asked():
            s.caller.send(options_of(s.caller, later), s.proxy.address)
            try:
                return s.server.expect('OPTIONS', 1, call_id=later)
            except Missing:
                return None
        got = poll(asked, bool, say='OPTIONS over a new connection')
        s.server.reply(got, 200, tag='t')
        s.caller.expect((200, 'OPTIONS'), call_id=later)


@cases(*OVER)
def test_big_message(case):
    """Beyond one datagram of Ethernet's size; over TCP all but 64 kB, where there must be
    room for what is added on the way, too."""
    body = 'x' * (30000 if case == 'udp' else 64500)
    with Setup(2, case, case) as s:
        call = s.call()
        call.invite(body=body)
        got = s.server.expect('INVITE')
        check(got.body.decode() == body, len(got.body))


# ---- TLS -------------------------------------------------------------------------

def certificate(directory):
    """A key and a certificate of its own, as the proxy reads them."""
    made = subprocess.run(
        ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256',
         '-nodes', '-days', '2', '-subj', '/CN=localhost', '-keyout',
         os.path.join(directory, 'key.pem'), '-out', os.path.join(directory, 'cert.pem')],
        capture_output=True, text=True)
    check(made.returncode == 0, made.stderr)
    with open(os.path.join(directory, 'agent.pem'), 'w') as file:
        for name in ('key.pem', 'cert.pem'):
            with open(os.path.join(directory, name)) as part:
                file.write(part.read())


def test_tls():
    """A call over TLS, to a server that is reached by UDP; its BYE as a victim goes
    back by the caller's connection."""
    with Setup(1, start=False) as s:
        port = free_sip_port()
        certificate(s.proxy.dir)
        s.proxy.configure(listen=f'tls:127.0.0.1:{port}', tls_certificates=s.proxy.dir)
        s.proxy.start()
        phone = s.another('tls')
        call = Call(phone, ('127.0.0.1', port))
        call.invite()
        at_server = s.server.expect('INVITE')
        s.server.reply(at_server, 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        s.waiting()
        bye = call.expect('BYE')
        check(bye.connection is not None, 'over another connection')
        phone.reply(bye, 200)
        s.server.reply(s.server.expect('BYE'), 200)
        s.wait_figure('ending', 0)


# ---- odd but valid ------------------------------------------------------------------

def test_compact_names_and_folded_lines():
    """They are understood, and what the proxy does not own stays as it was."""
    with Setup(1) as s:
        call = s.call()
        text = call.request('INVITE').decode()
        for long, short in (('Via', 'v'), ('From', 'f'), ('To', 't'), ('Call-ID', 'i'),
                            ('Contact', 'm')):
            text = text.replace(f'\r\n{long}: ', f'\r\n{short}: ')
        text = text.replace('\r\nf: "A caller" ', '\r\nf: "A caller"\r\n  ')
        text = text.replace('\r\nMax', '\r\nSubject: one\r\n\ttwo\r\n   three\r\nMax')
        call.sent = call.send(text.encode())
        got = s.server.expect('INVITE')
        check(got.call_id == call.call_id and got.tag('from'), got.headers)
        check('one' in got.get('subject') and 'three' in got.get('subject'), got.headers)
        s.server.reply(got, 200, tag='t')
        call.ack(call.expect((200, 'INVITE')))
        s.server.expect('ACK')
        s.waiting()
        s.caller.reply(call.expect('BYE'), 200)
        s.server.reply(s.server.expect('BYE'), 200)
        s.wait_figure('ending', 0)


def test_several_values_in_a_line():
    """Vias and Record-Routes that share a line, as some proxies send them."""
    with Setup(2) as s:
        call = s.call()
        text = call.request('INVITE').decode()
        via = text.split('Via: ')[1].split('\r\n')[0]
        text = text.replace(via, via + ', SIP/2.0/TCP 127.9.9.1:5070;branch=z9hG4bKold')
        text = text.replace('\r\nMax', '\r\nRecord-Route: <sip:127.9.9.1;lr>, '
                            '<sip:127.9.9.2;lr;x="a,b">\r\nMax')
        call.sent = call.send(text.encode())
        got = s.server.expect('INVITE')
        check([uri_of(r) for r in got.listed('record-route')[-2:]] ==
              ['sip:127.9.9.1;lr', 'sip:127.9.9.2;lr;x="a,b"'] or
              len(got.listed('record-route')) >= 3, got.all('record-route'))
        check(len(got.listed('via')) == 3, got.all('via'))
        s.server.reply(got, 180, tag='t')
        back = call.expect(180)
        check(len(back.listed('via')) == 2, back.all('via'))


@cases('call-id', 'from', 'cseq', 'content-length', 'to')
def test_duplicate_headers(case):
    """Two of what must be one: 400, or the message is dropped; never two meanings."""
    line = {'call-id': 'Call-ID: other@x', 'from': 'From: <sip:x@y>;tag=9',
            'cseq': 'CSeq: 9 INVITE', 'content-length': 'Content-Length: 5',
            'to': 'To: <sip:z@y>'}[case]
    with Setup(2) as s:
        call = s.call()
        text = call.request('INVITE', body=SDP).decode()
        call.sent = call.send(text.replace('\r\nMax', f'\r\n{line}\r\nMax').encode())
        answer = poll(lambda: (s.caller.pump(0.05), s.server.pump(0.05),
                               s.caller.take(lambda m: True) or s.server.take('INVITE'))[2]
                      or True, bool)
        if answer is not True and answer.status:
            check(answer.status in (100, 400), answer)
        other, _, _ = s.waiting()
        check(other.count(180) == 1)


# ---- routing ---------------------------------------------------------------------------

@cases('loose', 'none')
def test_initial_route(case):
    """A Route that is the proxy's own is taken away; the request goes to the
    server."""
    with Setup(2) as s:
        call = s.call()
        routes = [f'<sip:127.0.0.1:{s.proxy.port};lr>'] if case == 'loose' else []
        call.invite(routes=routes)
        got = s.server.expect('INVITE')
        check(not got.all('route'), got.all('route'))
        check(got.uri == 'sip:bob@example.org', got.uri)


def test_strict_router_before_us():
    """Its Request-URI is what we record-routed, the real one is the last Route
    (section 16.4)."""
    with Setup(2) as s:
        call, _ = s.up()
        own = call.routes[0]
        data = call.request('INFO', uri=uri_of(own), routes=[f'<{call.target}>'])
        call.send(data)
        got = s.server.expect('INFO')
        check(got.uri == call.target, got.uri)
        check(not got.all('route'), got.all('route'))


def test_strict_router_after_us():
    """The next Route has no lr: it becomes the Request-URI, and the target the last
    Route (section 16.6 step 6)."""
    with Setup(2) as s:
        edge = s.another()
        call, callee = s.up()
        data = callee.request('INFO', routes=[*callee.routes, f'<sip:{edge.at}>'])
        callee.send(data)
        got = edge.expect('INFO')
        check(got.uri == f'sip:{edge.at}', got.uri)
        check(got.listed('route') == [f'<{callee.target}>'], got.all('route'))


def test_max_forwards():
    with Setup(2) as s:
        call = s.call()
        call.invite(forwards=0)
        answer = call.expect(483)
        call.ack(answer)
        s.server.none('INVITE', 0.1)
        s.wait_up(0, 0)
        low = s.call()
        low.invite(forwards=1)
        check(s.server.expect('INVITE').get('max-forwards') == '0')
        bare = s.call()
        data = bare.request('INVITE').replace(b'Max-Forwards: 70\r\n', b'')
        bare.sent = bare.send(data)
        got = s.server.expect('INVITE', call_id=bare.call_id)
        check(got.get('max-forwards') == '70', got.all('max-forwards'))


def test_received_and_rport():
    """RFC 3261 section 18.2.1, RFC 3581."""
    with Setup(2) as s:
        call = s.call()
        data = call.request('INVITE').replace(
            f'SIP/2.0/UDP {s.caller.at};rport'.encode(), b'SIP/2.0/UDP 127.9.9.1:9;rport')
        call.sent = call.send(data)
        via = s.server.expect('INVITE').listed('via')[1]
        check(parameter(via, 'received') == '127.0.0.1', via)
        check(parameter(via, 'rport') == str(s.caller.port), via)


@cases('udp-tcp', 'tcp-udp')
def test_in_dialog_between_transports(case):
    """The proxy stays on the path both ways (RFC 5658)."""
    with Setup(2, *case.split('-')) as s:
        call, callee = s.up()
        callee.send(callee.request('INFO'))
        got = s.caller.expect('INFO')
        s.caller.reply(got, 200)
        callee.expect((200, 'INFO'))
        callee.bye()
        s.caller.reply(s.caller.expect('BYE'), 200)
        callee.expect((200, 'BYE'))
        s.wait_up(0, 0)
        check(call.call_id == got.call_id)


def test_two_addresses():
    """IPv4 callers, an IPv6 server, and back."""
    with Setup(2, hosts=('127.0.0.1', '::1'), server_host='::1') as s:
        call, callee = s.up()
        callee.send(callee.request('INFO'))
        s.caller.reply(s.caller.expect('INFO'), 200)
        callee.expect((200, 'INFO'))
        s.hang_up(call)
        s.wait_up(0, 0)


# ---- wrong ---------------------------------------------------------------------------------

WRONG = {
    'no-call-id': ('\r\nCall-ID: ', '\r\nX-Not: '),
    'no-cseq': ('\r\nCSeq: ', '\r\nX-Not: '),
    'no-from': ('\r\nFrom: ', '\r\nX-Not: '),
    'no-to': ('\r\nTo: ', '\r\nX-Not: '),
    'other-method-in-cseq': (' INVITE\r\n', ' OPTIONS\r\n'),
    'bad-version': ('SIP/2.0\r\nVia', 'SIP/7.0\r\nVia'),
    'bad-uri': ('INVITE sip:bob@example.org', 'INVITE <sip:bob@example.org>'),
    'no-via': ('\r\nVia: ', '\r\nX-Not: '),
    'cseq-is-no-number': ('CSeq: 1 ', 'CSeq: one '),
    'negative-length': ('Content-Length: ', 'Content-Length: -'),
    'much-too-long': ('Content-Length: ', 'Content-Length: 99999999'),
    'no-tag-delimiter': (';tag=', ';;;tag==;'),
    'nul-in-header': ('Max-Forwards: 70', 'Max-Forwards: 7\0'),
    'forwards-is-no-number': ('Max-Forwards: 70', 'Max-Forwards: many'),
}


@cases(*WRONG)
def test_malformed(case):
    """400 (505 for a version) or silence; and the next one is served."""
    with Setup(2) as s:
        call = s.call()
        text = call.request('INVITE').decode().replace(*WRONG[case])
        call.sent = call.send(text.encode())
        later, _, _ = s.waiting()
        for answer in s.caller.seen:
            if answer.call_id == call.call_id or not answer.call_id:
                check(answer.status in (100, 400, 505, 483, 416), answer)
        check(later.count(180) == 1)


@cases(*OVER)
def test_garbage(case):
    """Bytes that are no SIP at all, and then something that is."""
    with Setup(2, case) as s:
        for data in (b'\0' * 100, b'GET / HTTP/1.0\r\n\r\n', b'\xff' * 3000, b'INVITE',
                     b'INVITE sip:a@b SIP/2.0\r\n\r\n', b'\r\n' * 50, b' \t \r\n\r\n',
                     b'SIP/2.0 200 OK\r\n\r\n', b'SIP/2.0 999999999999 x\r\n\r\n',
                     b'A' * 60000):
            link = s.another(case)
            link.send(data, s.proxy.address)
        s.waiting()


def test_stray_messages():
    """Responses to nothing, an ACK, a CANCEL and a BYE of no call: no harm, and 481
    where there is an answer."""
    with Setup(2) as s:
        call = s.call()
        call.sent = Message(call.request('INVITE'))
        call.cancel()
        call.remote += ';tag=none'
        call.send(call.request('ACK'))
        stray = [('Via', f'SIP/2.0/UDP 127.0.0.1:{s.proxy.port};branch=z9hG4bKno.1.x'),
                 ('Via', s.caller.via()), ('From', call.local), ('To', call.remote),
                 ('Call-ID', call.call_id), ('CSeq', '1 INVITE')]
        s.server.send(build('SIP/2.0 200 OK', stray), s.proxy.address)
        s.caller.send(build('SIP/2.0 180 Ringing', stray[1:]), s.proxy.address)
        s.waiting()
        s.wait_up(1, 0)


def torture():
    found = sorted(glob.glob(os.path.join(TORTURE, '*.dat')))
    if not found:
        raise Skip('there are no torture messages in ../shared/corpora/rfc4475')
    return {os.path.basename(path)[:-4]: open(path, 'rb').read() for path in found}


def over_of(data):
    """The transport that a message says it came by."""
    found = re.search(rb'(?im)^(?:via|v)\s*:\s*SIP\s*/\s*2\.0\s*/\s*(\w+)', data)
    return 'tcp' if found and found[1].upper() == b'TCP' else 'udp'


@limit(120)
@cases('as it says', 'udp', 'tcp')
def test_torture(case):
    """Each of RFC 4475's messages: no crash or hang. Over the transport that its Via
    names, the valid requests go on."""
    messages = torture()
    with Setup(60, round=LONG_ROUND) as s:
        for name, data in messages.items():
            over = over_of(data) if case not in OVER else case
            link = s.another(over)
            link.send(data, s.proxy.address)
            probe = unique('o')
            s.caller.send(options_of(s.caller, probe), s.proxy.address)
            served(s, probe)
            check(s.proxy.process.poll() is None, name, 'ended it')
        if case in OVER:
            return

        def missing():
            s.server.pump(0.05)
            passed = {message.call_id for message in s.server.seen
                      if message.status is None}
            return [name for name in VALID if name in messages and
                    Message(messages[name]).call_id not in passed]
        poll(missing, lambda names: not names, 5, 'every valid request on its way')

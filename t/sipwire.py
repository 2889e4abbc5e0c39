"""SIP on raw sockets, for tests of exact scenarios: a message is what was on the
wire, byte for byte, and nothing is sent, answered or sent again unless a test
says so.

    caller = Endpoint()                      # UDP on 127.0.0.1
    call = Call(caller, to=proxy.address)
    call.invite()
    call.expect(180)

Endpoint  a socket (UDP), or a listener and its connections (TCP, TLS)
Message   one message, parsed as far as tests look
Call      the caller's or callee's side of one dialog
"""

import itertools
import os
import select
import socket
import ssl
import time

PATIENCE = 10        # seconds to wait for what must come
COMPACT = {'v': 'via', 'f': 'from', 't': 'to', 'i': 'call-id', 'm': 'contact',
           'l': 'content-length', 'c': 'content-type', 'k': 'supported',
           's': 'subject', 'e': 'content-encoding', 'o': 'event', 'r': 'refer-to'}
SDP = ('v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n'
       'm=audio 6000 RTP/AVP 0\r\n')
REASONS = {100: 'Trying', 180: 'Ringing', 183: 'Session Progress', 200: 'OK',
           401: 'Unauthorized', 404: 'Not Found', 407: 'Proxy Authentication Required',
           408: 'Request Timeout', 481: 'Call/Transaction Does Not Exist',
           486: 'Busy Here', 487: 'Request Terminated', 500: 'Server Internal Error',
           503: 'Service Unavailable', 603: 'Decline'}
_count = itertools.count(1)


def unique(prefix=''):
    """A word that was not used before, by this process or another."""
    return f'{prefix}{os.getpid()}x{next(_count)}x{int(time.time() * 1000) % 10**8}'


def branch():
    return unique('z9hG4bK')


class Missing(AssertionError):
    """What had to come did not."""


# ---- messages ----------------------------------------------------------------

class Message:
    """What came in, or what is to go out. Header names compare without case and
    in their long form; values keep their bytes (as Latin-1)."""

    def __init__(self, raw, source=None, connection=None):
        self.raw, self.source, self.connection = raw, source, connection
        head, _, self.body = raw.partition(b'\r\n\r\n')
        lines = head.decode('latin-1').split('\r\n')
        self.first = lines[0]
        self.headers = []
        for line in lines[1:]:
            if line[:1] in (' ', '\t') and self.headers:
                name, value = self.headers[-1]
                self.headers[-1] = (name, value + ' ' + line.strip())
            else:
                name, _, value = line.partition(':')
                self.headers.append((name.strip(), value.strip()))

    def all(self, name):
        """Every value of a header, in order; one a line, commas not split."""
        return [value for given, value in self.headers
                if COMPACT.get(given.lower(), given.lower()) == name.lower()]

    def get(self, name, default=''):
        return next(iter(self.all(name)), default)

    def listed(self, name):
        """Every value of a header whose values may share a line, commas split
        where they are not inside <> or quotes."""
        return [part for value in self.all(name) for part in split_commas(value)]

    @property
    def status(self):
        """The status code, or None: it is a request."""
        return int(self.first.split()[1]) if self.first.startswith('SIP/2.0 ') else None

    @property
    def method(self):
        """The method: of a response, that of its CSeq."""
        return (self.get('cseq').split() or [''])[-1] if self.status else \
            self.first.split()[0]

    @property
    def uri(self):
        return self.first.split()[1]

    @property
    def cseq(self):
        return int(self.get('cseq').split()[0])

    @property
    def call_id(self):
        return self.get('call-id')

    def tag(self, name):
        return parameter(self.get(name), 'tag')

    def is_a(self, what):
        """What: a method, a status code, a pair of status and method, or a
        function."""
        if callable(what):
            return what(self)
        if isinstance(what, tuple):
            return self.status == what[0] and self.method == what[1]
        if isinstance(what, int):
            return self.status == what
        return self.status is None and self.method == what

    def __repr__(self):
        return f'<{self.first} | {self.get("cseq")} | {self.call_id}>'


def split_commas(value):
    parts, depth, quoted, part = [], 0, False, ''
    for char in value:
        if char == '"':
            quoted = not quoted
        elif not quoted and char in '<>':
            depth += 1 if char == '<' else -1
        if char == ',' and not quoted and depth == 0:
            parts.append(part.strip())
            part = ''
        else:
            part += char
    return parts + [part.strip()]


def uri_of(value):
    """The URI of a name-addr or addr-spec."""
    if '<' in value:
        return value.split('<', 1)[1].split('>', 1)[0]
    return value.split(';', 1)[0].strip()


def parameter(value, name):
    """A header parameter (one after the > if there is one), or None."""
    rest = value.split('>', 1)[1] if '>' in value else value
    for word in rest.split(';')[1:]:
        key, _, given = word.partition('=')
        if key.strip().lower() == name:
            return given.strip()
    return None


def build(first, headers, body=''):
    """A message from its first line and (name, value) pairs; Content-Length is
    added."""
    data = body.encode('latin-1') if isinstance(body, str) else body
    lines = [first, *(f'{name}: {value}' for name, value in headers),
             f'Content-Length: {len(data)}', '', '']
    return '\r\n'.join(lines).encode('latin-1') + data


# ---- endpoints ---------------------------------------------------------------

def frame(data):
    """Split off the first whole message of a stream: (message or None, rest)."""
    data = data.lstrip(b'\r\n')
    end = data.find(b'\r\n\r\n')
    if end < 0:
        return None, data
    length = int(Message(data[:end + 4]).get('content-length', '0') or 0)
    whole = end + 4 + length
    return (data[:whole], data[whole:]) if len(data) >= whole else (None, data)


class Endpoint:
    """A SIP element that does only what it is told. `seen` is everything that
    came in; expect() looks through what was not yet taken."""

    def __init__(self, transport='udp', host='127.0.0.1'):
        self.transport, self.host = transport, host
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        kind = socket.SOCK_DGRAM if transport == 'udp' else socket.SOCK_STREAM
        self.family = family
        self.socket = socket.socket(family, kind)
        # Without SO_REUSEADDR, or the system might give two of us the same UDP port.
        self.socket.bind((host, 0))
        if transport == 'udp':
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        else:
            self.socket.listen(64)
        self.port = self.socket.getsockname()[1]
        self.buffers = {}          # TCP connections and what of a message is there
        self.by_address = {}
        self.seen, self.waiting = [], []

    @property
    def address(self):
        return self.host, self.port

    @property
    def at(self):
        """host:port as written in a URI."""
        return f'[{self.host}]:{self.port}' if ':' in self.host else \
            f'{self.host}:{self.port}'

    def contact(self, user='u'):
        more = '' if self.transport == 'udp' else f';transport={self.transport}'
        return f'<sip:{user}@{self.at}{more}>'

    def via(self, mark=None):
        return (f'SIP/2.0/{self.transport.upper()} {self.at};rport;'
                f'branch={mark or branch()}')

    def connection(self, address):
        """The connection to an address, made when it is first asked for."""
        link = self.by_address.get(address)
        if link is None or link not in self.buffers:
            link = socket.create_connection(address, timeout=PATIENCE)
            if self.transport == 'tls':
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                link = context.wrap_socket(link)
            self.buffers[link] = b''
            self.by_address[address] = link
        return link

    def send(self, data, to):
        """To an address, or over a connection."""
        if self.transport == 'udp':
            self.socket.sendto(data, to)
        else:
            (self.connection(to) if isinstance(to, tuple) else to).sendall(data)

    def _arrived(self, raw, source, link=None):
        if raw.strip(b'\r\n\0 '):
            message = Message(raw, source, link)
            message.at = time.monotonic()
            self.seen.append(message)
            self.waiting.append(message)

    def _read(self, ready):
        if self.transport == 'udp':
            try:
                raw, source = ready.recvfrom(65536)
            except ConnectionError:
                return
            self._arrived(raw, source[:2])
        elif ready is self.socket:
            link, source = ready.accept()
            self.buffers[link] = b''
            self.by_address.setdefault(source[:2], link)
        else:
            try:
                data = ready.recv(65536)
            except OSError:
                data = b''
            if not data:
                self.buffers.pop(ready)
                ready.close()
                return
            if self.transport == 'tls' and ready.pending():
                data += ready.recv(ready.pending())
            self.buffers[ready] += data
            while True:
                raw, self.buffers[ready] = frame(self.buffers[ready])
                if raw is None:
                    return
                self._arrived(raw, ready.getpeername()[:2], ready)

    def pump(self, timeout=0):
        """Take in what has come, waiting at most so long for something. True if
        something came."""
        ready, _, _ = select.select([self.socket, *self.buffers], [], [], timeout)
        for one in ready:
            self._read(one)
        return bool(ready)

    def take(self, what, call_id=None):
        """What has come already and is asked for, or None. It is taken once."""
        for message in self.waiting:
            if (call_id is None or message.call_id == call_id) and message.is_a(what):
                self.waiting.remove(message)
                return message
        return None

    def expect(self, what, timeout=PATIENCE, call_id=None):
        """Wait for a message (see Message.is_a)."""
        end = time.monotonic() + timeout
        while True:
            found = self.take(what, call_id)
            if found:
                return found
            left = end - time.monotonic()
            if left <= 0:
                raise Missing(f'no {what} came to {self.at} within {timeout} s; '
                              f'waiting: {self.waiting[-8:]}; seen {len(self.seen)}')
            self.pump(left)

    def none(self, what, for_seconds, call_id=None):
        """Nothing of this kind comes for so long."""
        try:
            found = self.expect(what, for_seconds, call_id)
        except Missing:
            return
        raise AssertionError(f'{found} came to {self.at}')

    def count(self, what, call_id=None):
        """How many of these ever came."""
        while self.pump():
            pass
        return sum((call_id is None or m.call_id == call_id) and m.is_a(what)
                   for m in self.seen)

    def reply(self, request, status, *headers, reason=None, tag=None, body='',
              contact=True, to=None):
        """Answer a request over the way it came."""
        target = request.get('to')
        if tag and not parameter(target, 'tag'):
            target += f';tag={tag}'
        lines = [('Via', via) for via in request.all('via')]
        if 100 < status < 300:
            lines += [('Record-Route', one) for one in request.all('record-route')]
        lines += [('From', request.get('from')), ('To', target),
                  ('Call-ID', request.call_id), ('CSeq', request.get('cseq'))]
        if contact and 100 < status < 300:
            lines.append(('Contact', self.contact()))
        if body:
            lines.append(('Content-Type', 'application/sdp'))
        first = f'SIP/2.0 {status} {reason or REASONS.get(status, "Because")}'
        data = build(first, [*lines, *headers], body)
        self.send(data, to or request.connection or request.source)
        return Message(data)

    def close(self):
        for link in list(self.buffers):
            link.close()
        self.buffers.clear()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- dialogs -----------------------------------------------------------------

class Call:
    """One side of a dialog. The caller's is made with where its requests go
    first; the callee's, by answer(), from an INVITE that came."""

    def __init__(self, endpoint, to=None, caller='alice', callee='bob',
                 domain='example.org', call_id=None, cseq=1):
        self.endpoint, self.hop = endpoint, to
        self.user = caller
        self.call_id = call_id or unique('c') + '@test'
        self.local = f'"A caller" <sip:{caller}@{domain}>;tag={unique("f")}'
        self.remote = f'<sip:{callee}@{domain}>'
        self.target = f'sip:{callee}@{domain}'
        self.routes = []
        self.cseq = cseq
        self.confirmed = False     # a 2xx has come
        self.sent = None           # the last INVITE, as a Message

    def request(self, method, *headers, body='', cseq=None, mark=None, uri=None,
                routes=None, forwards=70):
        """The bytes of a request in this dialog, or of the one that starts it."""
        if cseq is None:
            if method not in ('ACK', 'CANCEL') and self.sent is not None:
                self.cseq += 1
            cseq = self.cseq
        lines = [('Via', self.endpoint.via(mark)), ('Max-Forwards', str(forwards)),
                 *(('Route', route) for route in
                   (self.routes if routes is None else routes)),
                 ('From', self.local), ('To', self.remote), ('Call-ID', self.call_id),
                 ('CSeq', f'{cseq} {method}')]
        if method in ('INVITE', 'UPDATE', 'SUBSCRIBE', 'REGISTER'):
            lines.append(('Contact', self.endpoint.contact(self.user)))
        if body:
            lines.append(('Content-Type', 'application/sdp'))
        return build(f'{method} {uri or self.target} SIP/2.0', [*lines, *headers], body)

    def send(self, data):
        self.endpoint.send(data, self.hop)
        return Message(data)

    def invite(self, *headers, body=SDP, **how):
        """INVITE, also again within the dialog."""
        self.sent = self.send(self.request('INVITE', *headers, body=body, **how))
        return self.sent

    def again(self):
        """The last INVITE, the same bytes."""
        self.endpoint.send(self.sent.raw, self.hop)

    def expect(self, what, timeout=PATIENCE):
        message = self.endpoint.expect(what, timeout, self.call_id)
        if message.status and 100 < message.status < 300 and \
                message.method in ('INVITE', 'UPDATE') and message.tag('to'):
            self.learn(message)
        return message

    def learn(self, response):
        """Take the dialog's state from a response to our INVITE or UPDATE. The 2xx
        that answers the first INVITE sets the route set anew (section 13.2.2.4)."""
        if not self.confirmed and response.method == 'INVITE':
            self.routes = list(reversed(response.listed('record-route')))
            self.confirmed = response.status >= 200
        self.remote = response.get('to')
        if response.get('contact'):
            self.target = uri_of(response.get('contact'))

    @property
    def remote_tag(self):
        return parameter(self.remote, 'tag')

    def ack(self, response, **how):
        """ACK: a transaction of its own for a 2xx, part of the INVITE's for the
        rest."""
        if response.status < 300:
            return self.send(self.request('ACK', cseq=response.cseq, **how))
        lines = [('Via', self.sent.get('via')), ('Max-Forwards', '70'),
                 *(('Route', route) for route in self.sent.all('route')),
                 ('From', self.local), ('To', response.get('to')),
                 ('Call-ID', self.call_id), ('CSeq', f'{response.cseq} ACK')]
        return self.send(build(f'ACK {self.sent.uri} SIP/2.0', lines))

    def cancel(self):
        lines = [('Via', self.sent.get('via')), ('Max-Forwards', '70'),
                 ('From', self.local), ('To', self.sent.get('to')),
                 ('Call-ID', self.call_id), ('CSeq', f'{self.sent.cseq} CANCEL')]
        return self.send(build(f'CANCEL {self.sent.uri} SIP/2.0', lines))

    def bye(self, *headers, **how):
        return self.send(self.request('BYE', *headers, **how))

    def none(self, what, for_seconds):
        self.endpoint.none(what, for_seconds, self.call_id)

    def count(self, what):
        return self.endpoint.count(what, self.call_id)


def answered(endpoint, invite, tag=None):
    """The callee's side of a dialog, from the INVITE that came and is about to be
    answered with this tag."""
    call = Call.__new__(Call)
    call.endpoint, call.user = endpoint, 'callee'
    call.hop = invite.connection or invite.source
    call.call_id = invite.call_id
    call.tag = tag or unique('t')
    call.local = invite.get('to') + f';tag={call.tag}'
    call.remote = invite.get('from')
    call.target = uri_of(invite.get('contact'))
    call.routes = invite.listed('record-route')
    call.cseq = 0
    call.confirmed = True
    call.sent = invite
    return call

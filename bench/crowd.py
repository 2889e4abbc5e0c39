"""A hundred thousand calls from two UDP sockets: a caller's and a server's that
answers at once. Quick rather than complete: it looks at few headers, and knows the
order in which they are. For measuring what calls cost the proxy between the two.
"""

import os
import select
import socket
import time

KEPT = (b'via:', b'from:', b'to:', b'call-id:', b'cseq:', b'record-route:')
BUFFER = 1 << 23


def lines_of(data):
    return data.partition(b'\r\n\r\n')[0].split(b'\r\n')


def values(lines, name):
    """The values of a header, name with its colon and in lower case."""
    return [line.split(b':', 1)[1].strip() for line in lines[1:]
            if line[:len(name)].lower() == name]


def answer(lines, status, tag=None, contact=b''):
    """A response to a request."""
    out = [b'SIP/2.0 ' + status]
    for line in lines[1:]:
        name = line[:line.find(b':') + 1].lower()
        if name in KEPT:
            if name == b'to:' and tag and b';tag=' not in line.lower():
                line += b';tag=' + tag
            out.append(line)
    return b'\r\n'.join([*out, *contact, b'Content-Length: 0', b'', b''])


class Crowd:
    """Callers without number, each with a call of its own that never ends by
    itself."""

    def __init__(self, proxy):
        """Where calls go; the proxy's server is to be at `server_address`."""
        self.proxy = proxy
        self.caller, self.server = self._socket(), self._socket()
        self.poll = select.poll()
        for one in (self.caller, self.server):
            self.poll.register(one, select.POLLIN)
        self.mark = f'{os.getpid()}x{time.time_ns() % 10**9}'.encode()
        self.next = 0
        self.answered = self.refused = self.byes = self.cancels = 0
        self.settled = set()     # numbers that were answered or refused

    @staticmethod
    def _socket():
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            found.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        found.bind(('127.0.0.1', 0))
        found.setblocking(False)
        return found

    @property
    def server_address(self):
        return self.server.getsockname()

    # ---- sending -----------------------------------------------------------

    def invite(self):
        """One more call. Returns its number."""
        number = self.next
        self.next += 1
        me = b'127.0.0.1:%d' % self.caller.getsockname()[1]
        self.caller.sendto(b'\r\n'.join([
            b'INVITE sip:bob@example.org SIP/2.0',
            b'Via: SIP/2.0/UDP %s;rport;branch=z9hG4bK%sx%d' % (me, self.mark, number),
            b'Max-Forwards: 70',
            b'From: "A caller" <sip:alice%d@example.org>;tag=f%d' % (number, number),
            b'To: <sip:bob@example.org>',
            b'Call-ID: %d-%s@example.org' % (number, self.mark), b'CSeq: 1 INVITE',
            b'Contact: <sip:alice@%s>' % me, b'Content-Length: 0', b'', b'']), self.proxy)
        return number

    def _ack(self, lines, number, ok):
        me = b'127.0.0.1:%d' % self.caller.getsockname()[1]
        branch = b'z9hG4bK%sx%d' % (self.mark, number)
        target, routes = b'sip:bob@example.org', []
        if ok:
            branch += b'a'
            target = values(lines, b'contact:')[0].strip(b'<>')
            routes = [b'Route: ' + route for route in
                      reversed(values(lines, b'record-route:'))]
        self.caller.sendto(b'\r\n'.join([
            b'ACK ' + target + b' SIP/2.0',
            b'Via: SIP/2.0/UDP %s;rport;branch=%s' % (me, branch), b'Max-Forwards: 70',
            *routes, b'From: ' + values(lines, b'from:')[0],
            b'To: ' + values(lines, b'to:')[0], b'Call-ID: ' + values(lines, b'call-id:')[0],
            b'CSeq: 1 ACK', b'Content-Length: 0', b'', b'']), self.proxy)

    # ---- what comes in -------------------------------------------------------

    def _at_server(self, data, source):
        lines = lines_of(data)
        method = data.split(b' ', 1)[0]
        if method == b'INVITE':
            port = self.server.getsockname()[1]
            self.server.sendto(answer(lines, b'200 OK', b't' + self.mark,
                                      [b'Contact: <sip:bob@127.0.0.1:%d>' % port]), source)
        elif method in (b'BYE', b'CANCEL'):
            self.byes += method == b'BYE'
            self.cancels += method == b'CANCEL'
            self.server.sendto(answer(lines, b'200 OK'), source)

    def _at_caller(self, data, source):
        if data.startswith(b'BYE '):
            self.byes += 1
            self.caller.sendto(answer(lines_of(data), b'200 OK'), source)
            return
        if not data.startswith(b'SIP/2.0 ') or data.startswith(b'SIP/2.0 1'):
            return
        lines = lines_of(data)
        if b'INVITE' not in values(lines, b'cseq:')[0]:
            return
        number = int(values(lines, b'call-id:')[0].split(b'-', 1)[0])
        ok = data.startswith(b'SIP/2.0 2')
        if number not in self.settled:
            self.settled.add(number)
            self.answered += ok
            self.refused += not ok
        self._ack(lines, number, ok)

    def pump(self, milliseconds=0):
        """Take in what has come, waiting at most so long for something."""
        if not self.poll.poll(milliseconds):
            return False
        for one, handle in ((self.server, self._at_server), (self.caller, self._at_caller)):
            for _ in range(200):
                try:
                    data, source = one.recvfrom(65536)
                except BlockingIOError:
                    break
                if data.strip():
                    handle(data, source)
        return True

    # ---- many ------------------------------------------------------------------

    def call(self, count, at_once=50, rate=None, seconds=300):
        """So many calls, so many of them unsettled at a time at most, and not more
        than so many a second. False if it took too long."""
        began = time.monotonic()
        first = self.next
        done = len(self.settled)
        while len(self.settled) < done + count:
            now = time.monotonic()
            if now - began > seconds:
                return False
            due = count if rate is None else int(rate * (now - began)) + 1
            while self.next - first < min(count, due) and \
                    self.next - first - (len(self.settled) - done) < at_once:
                self.invite()
            self.pump(1)
        return True

    def settle(self, seconds=0.3):
        """Take in what still comes, until nothing does for so long."""
        last = time.monotonic()
        end = last + 60
        while time.monotonic() - last < seconds and time.monotonic() < end:
            if self.pump(10):
                last = time.monotonic()

    def close(self):
        self.caller.close()
        self.server.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

"""Clients for the tests: honest ones, and slow ones of every kind.

A Client is one blocking connection. wait_closed() says how the server ended it:
    'fin'   an orderly end; over TLS, with a close_notify
    'cut'   over TLS: an end without one, which tells that something is missing
    'rst'   a reset
    'open'  not within the time given
What came before the end is in .data. A Crowd keeps many slow clients going.
"""

import collections
import re
import select
import socket
import ssl
import struct
import threading
import time

HOST = 'Host: localhost\r\n'
HALF_HEAD = f'GET / HTTP/1.1\r\n{HOST}X-a: b\r\n'.encode()
TLS_HELLO = b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'    # and 506 bytes to come


def unverified():
    """A TLS client that accepts the throwaway certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # An end without a close_notify is to be told from one with it.
    context.options &= ~getattr(ssl, 'OP_IGNORE_UNEXPECTED_EOF', 0)
    return context


class Reply:
    """An answer, as far as it came. .complete: all that its head promises, or,
    where the end of the connection is the end of the body, an orderly end."""

    def __init__(self, data, end, head_only=False):
        self.end = end
        head, blank, self.body = data.partition(b'\r\n\r\n')
        lines = head.decode('latin-1').split('\r\n')
        match = re.match(r'HTTP/1\.[01] (\d{3})', lines[0])
        self.status = int(match[1]) if match and blank else None
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(':')
            self.headers[name.strip().lower()] = value.strip()
        self.complete = self.status is not None and self._whole(head_only)

    def _whole(self, head_only):
        if head_only or self.status in (204, 304):
            return True
        if 'content-length' in self.headers:
            return len(self.body) >= int(self.headers['content-length'])
        if self.headers.get('transfer-encoding') == 'chunked':
            return self.body.endswith(b'0\r\n\r\n')
        return self.end == 'fin'

    def __repr__(self):
        return (f'Reply(status={self.status}, complete={self.complete}, '
                f'end={self.end}, headers={self.headers}, body={len(self.body)} bytes)')


class Client:
    """One connection to 127.0.0.1, from a loopback address of choice."""

    def __init__(self, port, tls=False, source='127.0.0.1', receive_buffer=None,
                 timeout=10, alpn=None):
        self.port, self.data, self.end = port, b'', None
        self.sock = socket.socket()
        try:
            if receive_buffer:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF,
                                     receive_buffer)
            self.sock.settimeout(timeout)
            self.sock.bind((source, 0))
            self.sock.connect(('127.0.0.1', port))
            if tls:
                context = unverified()
                if alpn:
                    context.set_alpn_protocols([alpn])
                self.sock = context.wrap_socket(self.sock,
                                                suppress_ragged_eofs=False)
        except BaseException:
            self.sock.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self, reset=False):
        if reset and self.sock.fileno() >= 0:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                 struct.pack('ii', 1, 0))
        self.sock.close()

    def send(self, data):
        """Send; False if the server has ended the connection."""
        try:
            self.sock.sendall(data.encode() if isinstance(data, str) else data)
            return True
        except OSError:
            return False

    def read(self, size=65536, timeout=10):
        """Read once. False at an end (see .end) or when nothing came in time."""
        if self.end:
            return False
        self.sock.settimeout(max(timeout, 0.001))
        try:
            data = self.sock.recv(size)
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            cut = (isinstance(error, ssl.SSLEOFError) or
                   getattr(error, 'reason', '') == 'UNEXPECTED_EOF_WHILE_READING')
            self.end = 'cut' if cut else 'rst'
            return False
        if not data:
            self.end = 'fin'
        self.data += data
        return bool(data)

    def read_until(self, done, timeout=10):
        """Read until done() or the end; True if done()."""
        limit = time.monotonic() + timeout
        while not done() and not self.end and time.monotonic() < limit:
            self.read(timeout=limit - time.monotonic())
        return done()

    def wait_closed(self, timeout=10):
        """Read what comes until the server ends it: 'fin', 'rst' or 'open'."""
        self.read_until(lambda: False, timeout)
        return self.end or 'open'

    def reply(self, timeout=10):
        """Read one reply and the end, if the reply is the connection's last."""
        self.read_until(lambda: Reply(self.data, None).complete, timeout)
        if Reply(self.data, None).headers.get('connection', '').lower() == 'close':
            self.wait_closed(timeout)
        return Reply(self.data, self.end)

    def is_open(self):
        """False once the server has ended it. Reads what is there."""
        while not self.end and select.select([self.sock], [], [], 0)[0]:
            if not self.read(timeout=0.01) and not self.end:
                break
        return not self.end


# ---- whole requests -------------------------------------------------------------

def request(path='/', method='GET', version='1.1', headers='', body=b''):
    length = f'Content-Length: {len(body)}\r\n' if body else ''
    return (f'{method} {path} HTTP/{version}\r\n{HOST}{length}{headers}\r\n'
            .encode() + body)


def ask(port, path='/', tls=False, source='127.0.0.1', timeout=10, **how):
    """A complete request on a connection of its own; the Reply (status None if
    nothing came)."""
    how.setdefault('headers', 'Connection: close\r\n')
    try:
        with Client(port, tls, source, timeout=timeout) as client:
            client.send(request(path, **how))
            return client.reply(timeout)
    except OSError as error:
        return Reply(b'', 'rst' if isinstance(error, ConnectionError) else 'open')


def pipelined(port, paths, tls=False, timeout=10):
    """All requests in one go, the last asking for the end; what came, and how it
    ended."""
    with Client(port, tls) as client:
        client.send(b''.join(request(path) for path in paths[:-1]) +
                    request(paths[-1], headers='Connection: close\r\n'))
        return client.wait_closed(timeout), client.data


# ---- slow clients ------------------------------------------------------------------

def half_head(port, **how):
    """Half a request head, and no more."""
    client = Client(port, **how)
    client.send(HALF_HEAD)
    return client


def slow_body(port, path='/upload', length=1000000, sent=b'x', **how):
    """A whole head, and the beginning of a body."""
    client = Client(port, **how)
    client.send(request(path, 'POST', headers=f'Content-Length: {length}\r\n') + sent)
    return client


def slow_reader(port, path='/huge.bin', version='1.1', headers='', **how):
    """Asks for much, and reads nothing."""
    client = Client(port, receive_buffer=4096, **how)
    client.send(request(path, version=version, headers=headers))
    return client


def stalled_hello(port, **how):
    """The beginning of a TLS handshake. (The port is a TLS port.)"""
    client = Client(port, **how)
    client.send(TLS_HELLO)
    return client


def idle(port, path='/', **how):
    """Asks once, reads the answer, and keeps the connection."""
    client = Client(port, **how)
    client.send(request(path))
    client.first = client.reply()
    client.data = b''
    return client


KINDS = {'head': half_head, 'body': slow_body, 'read': slow_reader,
         'hello': stalled_hello}


class Crowd:
    """Slow clients: so many new ones a second, each held until the server ends
    it, at most so many at a time. Heads get a line more each second, bodies a
    byte. .ends counts how they ended ('503' if told so)."""

    def __init__(self, port, kind, rate=20, most=60, tls=False,
                 source='127.0.0.1'):
        self.port, self.kind, self.rate, self.most = port, kind, rate, most
        self.tls, self.source = tls, source
        self.ends, self.clients, self.opened = collections.Counter(), [], 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._open_all, daemon=True),
                         threading.Thread(target=self._look_after, daemon=True)]
        # A handshake may have to wait: others go on meanwhile.
        if tls:
            self._threads += [threading.Thread(target=self._open_all, daemon=True)
                              for _ in range(3)]
            self.rate = rate / 4
        for thread in self._threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _open_all(self):
        while not self._stop.wait(1 / self.rate):
            if len(self.clients) >= self.most:
                continue
            try:
                self.clients.append(KINDS[self.kind](
                    self.port, tls=self.tls, source=self.source, timeout=2))
                self.opened += 1
            except OSError:
                self.ends['not opened'] += 1

    def _look_after(self):
        fed = time.monotonic()
        while not self._stop.wait(0.05):
            feed = time.monotonic() - fed >= 1
            fed = time.monotonic() if feed else fed
            for client in list(self.clients):
                self._look_at(client, feed)

    def _look_at(self, client, feed):
        # A slow reader must not read to learn of its end.
        ended = client.end or (bool(select.select([], [], [client.sock], 0)[2])
                               if self.kind == 'read' else not client.is_open())
        if self.kind == 'read' and not ended:
            ended = reader_ended(client)
        if ended:
            told = b' 503 ' in client.data[:20]
            self.ends['503' if told else client.end or 'ended'] += 1
            client.close()
            self.clients.remove(client)
        elif feed:
            client.send({'head': b'X-a: b\r\n', 'body': b'x'}.get(self.kind, b''))

    def stop(self):
        """Stop, and leave abruptly."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        for client in self.clients:
            client.close()
        self.clients = []


TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8


def reader_ended(client):
    """True if the server has ended the connection of somebody who does not read;
    sets .end."""
    try:
        state = client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        state = TCP_CLOSE
    if state in (TCP_CLOSE, TCP_CLOSE_WAIT):
        client.end = 'rst' if state == TCP_CLOSE else 'fin'
    return client.end is not None


# ---- HTTP/2, by hand ----------------------------------------------------------------

H2_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
H2_DATA, H2_HEADERS, H2_SETTINGS, H2_GOAWAY = 0, 1, 4, 7


def h2_frame(kind, flags, stream, payload=b''):
    return (struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) +
            struct.pack('>I', stream) + payload)


def h2_text(text):
    return bytes([len(text)]) + text.encode()


class H2Client(Client):
    """HTTP/2 with prior knowledge, or over TLS: enough to open streams and stall."""

    def __init__(self, port, window=65535, tls=False, **how):
        super().__init__(port, tls=tls, alpn='h2' if tls else None, **how)
        self.next_stream = 1
        self.send(H2_PREFACE + h2_frame(H2_SETTINGS, 0, 0,
                                        struct.pack('>HI', 4, window)))

    def ask(self, path, body_length=None):
        """Open a stream; its number. With a length it is a POST, body to come."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        get = body_length is None
        block = (bytes([0x82 if get else 0x83, 0x86, 0x04]) + h2_text(path) +
                 b'\x01' + h2_text('localhost'))
        if not get:    # content-length is number 28: 15 and 13 more
            block += b'\x0f\x0d' + h2_text(str(body_length))
        self.send(h2_frame(H2_HEADERS, 4 | get, stream, block))
        return stream

    def frames(self):
        """Whole frames so far: [(kind, flags, stream, payload)]."""
        found, at = [], 0
        while len(self.data) >= at + 9:
            size = int.from_bytes(self.data[at:at + 3], 'big')
            if len(self.data) < at + 9 + size:
                break
            kind, flags = self.data[at + 3:at + 5]
            stream = int.from_bytes(self.data[at + 5:at + 9], 'big')
            found.append((kind, flags, stream, self.data[at + 9:at + 9 + size]))
            at += 9 + size
        return found

    def finished(self):
        """Streams that the server has ended properly."""
        return {stream for kind, flags, stream, _ in self.frames()
                if kind in (H2_DATA, H2_HEADERS) and flags & 1}

    def wait_finished(self, *streams, timeout=10):
        return self.read_until(lambda: set(streams) <= self.finished(), timeout)

    def acknowledge(self):
        self.send(h2_frame(H2_SETTINGS, 1, 0))

"""What the integration tests of seven-sip share: a proxy between a caller and a
server that are both raw endpoints, so that each message is the test's own."""

import re

from t.it_common import check, long_round, poll
from t.sip import SevenSip
from t.sipwire import Call, Endpoint, answered, unique

OVER = ('udp', 'tcp')
LONG_ROUND = long_round(2 * 365 * 86400)     # where seven-sip's clock starts


class Setup:
    """A seven-sip (the sanitized build, if there is one) between `caller` and
    `server`. The caller comes by one transport, the server is reached by another."""

    def __init__(self, calls=1, over='udp', server_over='udp', host='127.0.0.1',
                 server_host=None, hosts=None, start=True, **keys):
        self.over = over
        self.caller = Endpoint(over, host)
        self.server = Endpoint(server_over, server_host or host)
        keys.setdefault('strategy', 'tournament')
        keys.setdefault('t_m', '60s')
        keys.setdefault('forward', 'now')
        keys.setdefault('round', '1s')
        keys.setdefault('t1', '10s')     # nothing is sent again because a test was slow
        self.proxy = SevenSip(self.server.address, calls, server_over,
                              hosts or (host,), asan=True, start=start, **keys)
        self.more = []

    def another(self, over=None, host=None):
        """One more endpoint, closed with the rest."""
        found = Endpoint(over or self.over, host or self.caller.host)
        self.more.append(found)
        return found

    # ---- calls -------------------------------------------------------------

    def call(self, endpoint=None, **how):
        """A caller's side, with nothing sent yet."""
        return Call(endpoint or self.caller, self.proxy.address, **how)

    def waiting(self, *headers, ring=True, endpoint=None, invite=None, **how):
        """A call whose INVITE has reached the server: (caller's side, INVITE as the
        server got it, To-tag)."""
        call = self.call(endpoint, **how)
        call.invite(*headers, **(invite or {}))
        at_server = self.server.expect('INVITE', call_id=call.call_id)
        tag = unique('t')
        if ring:
            self.server.reply(at_server, 180, tag=tag)
            call.expect(180)
        return call, at_server, tag

    def up(self, *headers, answer=(), contact=True, **how):
        """A call in progress: (caller's side, callee's side)."""
        call, at_server, tag = self.waiting(*headers, **how)
        callee = answered(self.server, at_server, tag)
        self.server.reply(at_server, 200, *answer, tag=tag, contact=contact)
        call.ack(call.expect((200, 'INVITE')))
        self.server.expect('ACK', call_id=call.call_id)
        return call, callee

    def hang_up(self, call):
        call.bye()
        self.server.reply(self.server.expect('BYE', call_id=call.call_id), 200)
        return call.expect((200, 'BYE'))

    def end_victim(self, call):
        """Both sides answer the BYEs they get. Returns them: (caller's, callee's)."""
        mine = call.expect('BYE')
        call.endpoint.reply(mine, 200)
        theirs = self.server.expect('BYE', call_id=call.call_id)
        self.server.reply(theirs, 200)
        return mine, theirs

    def refused(self, most=60, **how):
        """Newcomers until one is refused: (its side, the answer). Those let in are
        left alone."""
        for _ in range(most):
            call = self.call(**how)
            call.invite()
            answer = call.expect(lambda m: m.status and (m.status > 100 or
                                                         self.arrived(call)))
            if answer.status >= 300:
                return call, answer
        raise AssertionError(f'none of {most} newcomers was refused')

    def arrived(self, call):
        """True if the call's INVITE has come to the server (or will very soon)."""
        return bool(self.server.expect('INVITE', call_id=call.call_id))

    # ---- what the proxy says -------------------------------------------------

    def figure(self, name):
        """A figure of its status by name; parts of a nested one by dots."""
        value = self.proxy.status()
        for part in name.split('.'):
            value = value[part]
        return value

    def wait_figure(self, name, wanted, timeout=15):
        test = wanted if callable(wanted) else lambda value: value == wanted
        return poll(lambda: self.figure(name), test, timeout,
                    f'{name} {"as wanted" if callable(wanted) else wanted}')

    def wait_up(self, waiting, incall):
        """Wait for so many calls in each state."""
        return poll(lambda: (self.figure('waiting'), self.figure('incall')),
                    lambda value: value == (waiting, incall),
                    say=f'{waiting} WAITING, {incall} INCALL')

    # ---- the end ---------------------------------------------------------------

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """The program must end in order, and no sanitizer may have spoken."""
        for endpoint in (self.caller, self.server, *self.more):
            endpoint.close()
        clean(self.proxy, kind is None)


def clean(proxy, judge=True):
    """End a seven-sip; unless the test failed already, judge how it ended."""
    status = None
    if proxy.process is not None:
        proxy.leave()
        status = proxy.process.poll()
    text = proxy.output()
    proxy.stop()
    if judge:
        check(not re.search(r'(Address|Leak|Undefined\w*)Sanitizer|runtime error:', text),
              'a sanitizer found something; see the log')
        check(status in (0, None), 'seven-sip ended with status', status)


def same_call(one, other, *names):
    """These headers of two messages have the same values."""
    for name in names:
        check(one.all(name) == other.all(name), name, 'is', other.all(name), 'not',
              one.all(name))

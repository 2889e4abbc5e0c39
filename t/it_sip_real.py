"""With a real Kamailio behind the proxy and real SIPps before it."""

import os
import subprocess
import sys
import time

from bench.callers import ATTACKER, HONEST, Callee, Callers, outcome, schedule
from t.httpd import TOP
from t.it_common import cases, check, limit, poll
from t.sip import Kamailio, SevenSip, digest, register
from t.sip_common import LONG_ROUND, OVER, clean
from t.sipwire import SDP, Call, Endpoint, answered, build

PLACES = 4


class Town:
    """A Kamailio, a seven-sip before it, and two phones on raw sockets."""

    def __init__(self, calls=PLACES, over='udp', auth=False, through=False,
                 by_tags=False, **keys):
        self.phones = [Endpoint(over), Endpoint(over)]
        self.caller, self.callee = self.phones
        self.over = over
        self.server = Kamailio(limit=calls + 2, auth=auth, by_tags=by_tags)
        keys.setdefault('t_m', '60s')
        keys.setdefault('round', '1s')
        keys.setdefault('forward', 'now')
        self.proxy = SevenSip(self.server.address, calls, over, asan=True, **keys)
        if through:
            self.server.end()
            self.server.outbound = (*self.proxy.address, over)
            self.server._start()
            self.server._wait_ready()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for phone in self.phones:
            phone.close()
        clean(self.proxy, kind is None)
        self.server.stop()

    def up(self):
        """A call in progress: (caller's side, callee's side)."""
        call = Call(self.caller, self.proxy.address)
        call.invite()
        at_callee = self.callee.expect('INVITE', call_id=call.call_id)
        callee = answered(self.callee, at_callee)
        self.callee.reply(at_callee, 180, tag=callee.tag)
        self.callee.reply(at_callee, 200, tag=callee.tag, body=SDP)
        call.ack(call.expect((200, 'INVITE')))
        self.callee.expect('ACK', call_id=call.call_id)
        return call, callee

    def register(self):
        register(self.callee, self.proxy.address, 'bob',
                 self.callee.contact('bob').strip('<>'))


@cases('udp', 'tcp', 'udp-through', 'tcp-through')
def test_call_and_victim(case):
    """A call by way of the registrar; then, with all places taken, its BYE reaches
    both phones. `through`: Kamailio sends to the callee by way of the proxy, too."""
    over, *through = case.split('-')
    with Town(1, over, through=bool(through)) as town:
        town.register()
        call, callee = town.up()
        poll(lambda: town.proxy.status()['incall'], lambda n: n == 1, say='1 INCALL')
        callee.send(callee.request('INFO'))
        town.caller.reply(call.expect('INFO'), 200)
        callee.expect((200, 'INFO'))
        other = Call(town.caller, town.proxy.address)
        other.invite()
        town.caller.reply(call.expect('BYE'), 200)
        bye = town.callee.expect('BYE', call_id=call.call_id)
        check(bye.tag('to') == callee.tag, bye.headers)
        town.callee.reply(bye, 200)
        town.callee.expect('INVITE', call_id=other.call_id)
        poll(lambda: town.proxy.status()['ending'], lambda n: n == 0, say='ending 0')
        status = town.proxy.status()
        check(status['started'] == 2 and status['waiting'] == 1, status)


@cases(*OVER)
def test_waiting_victim(case):
    with Town(1, case) as town:
        town.register()
        call = Call(town.caller, town.proxy.address)
        call.invite()
        at_callee = town.callee.expect('INVITE')
        town.callee.reply(at_callee, 180, tag='t')
        call.expect(180)
        other = Call(town.caller, town.proxy.address)
        other.invite()
        call.ack(call.expect(503))
        cancel = town.callee.expect('CANCEL')
        town.callee.reply(cancel, 200)
        town.callee.reply(at_callee, 487, tag='t')
        town.callee.expect('ACK')
        town.callee.expect('INVITE', call_id=other.call_id)
        poll(lambda: town.proxy.status()['ending'], lambda n: n == 0, say='ending 0')


def test_digest_authentication():
    """Kamailio challenges REGISTER (401) and INVITE (407): one call, one place, though
    there is only one and nobody else would get in."""
    with Town(1, auth=True, round=LONG_ROUND) as town:
        phone = Call(town.callee, town.proxy.address, caller='bob', callee='bob')
        phone.target = 'sip:example.org'
        phone.send(phone.request('REGISTER'))
        challenge = phone.expect((401, 'REGISTER')).get('www-authenticate')
        phone.cseq += 1
        phone.send(phone.request('REGISTER', ('Authorization', digest(
            challenge, 'REGISTER', phone.target, 'bob'))))
        phone.expect((200, 'REGISTER'))
        call = Call(town.caller, town.proxy.address)
        call.invite()
        answer = call.expect(407)
        call.ack(answer)
        call.invite(('Proxy-Authorization', digest(answer.get('proxy-authenticate'),
                                                   'INVITE', call.target, 'alice')))
        at_callee = town.callee.expect('INVITE')
        check(not at_callee.all('proxy-authorization'), at_callee.headers)
        town.callee.reply(at_callee, 200, tag='t', body=SDP)
        call.ack(call.expect((200, 'INVITE')))
        town.callee.expect('ACK')
        poll(lambda: town.proxy.status()['incall'], lambda n: n == 1, say='1 INCALL')
        status = town.proxy.status()
        # The place is kept for 2 s: a test that was slower has begun another call.
        check(status['started'] - status['ended']['failed'] == 1 and status['pmod'] == 0,
              status)
        call.bye()
        town.callee.reply(town.callee.expect('BYE'), 200)
        call.expect((200, 'BYE'))
        poll(lambda: town.proxy.status()['incall'], lambda n: n == 0, say='0 INCALL')


@cases(*(f'{what}-{how}' for how in ('through', 'direct') for what in ('server', 'all', 'none')))
def test_accomplice_strips_record_routes(case):
    """A callee leaves the server's Record-Route (or all of them) out of its 2xx, so
    that a BYE would go round the server, which would count the call for ever. With
    the callee's leg by way of the proxy, too, or with a server that knows dialogs
    by their tags, the BYE still ends it at the server: the server is never full."""
    case, how = case.split('-')
    with Town(1, through=how == 'through', by_tags=how == 'direct',
              round='50ms') as town:
        town.register()
        for _ in range(8):
            call = Call(town.caller, town.proxy.address)
            call.invite()
            invite = town.callee.expect('INVITE', call_id=call.call_id)
            kept = [route for route in invite.listed('record-route') if case == 'none' or
                    case == 'server' and f':{town.server.port};' not in route]
            lines = [('Via', via) for via in invite.all('via')]
            lines += [('Record-Route', route) for route in kept]
            lines += [('From', invite.get('from')), ('To', invite.get('to') + ';tag=t'),
                      ('Call-ID', call.call_id), ('CSeq', invite.get('cseq')),
                      ('Contact', town.callee.contact())]
            town.callee.send(build('SIP/2.0 200 OK', lines), invite.source)
            call.ack(call.expect((200, 'INVITE')))

            def settled():
                for phone in town.phones:
                    phone.pump(0.01)
                    bye = phone.take('BYE')
                    if bye:
                        phone.reply(bye, 200)
                status = town.proxy.status()
                return status['ending'], status['waiting'], status['pmod']
            poll(settled, lambda found: found == (0, 0, 0), say='all ended')
        check(town.caller.count(503) == 0, 'the server is full')


def test_crash_and_then_bye_and_victim():
    with Town(2) as town:
        town.proxy.configure(store=town.proxy.path('calls'))
        town.proxy.kill()
        town.proxy.start()
        town.register()
        one, _ = town.up()
        two, _ = town.up()
        poll(lambda: town.proxy.status()['incall'], lambda n: n == 2, say='2 INCALL')
        town.proxy.kill()
        town.proxy.start()
        poll(lambda: town.proxy.status()['incall'], lambda n: n == 2, say='2 INCALL')
        one.bye()
        town.callee.reply(town.callee.expect('BYE', call_id=one.call_id), 200)
        one.expect((200, 'BYE'))
        for _ in range(2):
            other = Call(town.caller, town.proxy.address)
            other.invite()
            town.callee.expect('INVITE', call_id=other.call_id)
        # The one in progress or the one that rings lost its place.
        poll(lambda: (town.caller.pump(0.05), two.count('BYE') + town.caller.count(503))[1],
             lambda n: n >= 1, say='a victim')


@limit(120)
@cases('udp', 'tcp')
def test_attack(case):
    """SIPp's callers, a third of them attackers, on few places: calls are cut on both
    sides, and none is lost on the way. How many are served is for the benchmarks."""
    kind = {'udp': 'u1', 'tcp': 't1'}[case]
    with Kamailio(limit=12) as server, Callee(60) as bob, Callee(60) as mallory:
        server.register('bob', f'sip:bob@{bob.at}')
        server.register('mallory', f'sip:mallory@{mallory.at}')
        # Whoever is still to answer a BYE when the callers stop is given up after 6.4 s.
        with SevenSip(server.address, 8, case, asan=True, t_m='500ms',
                      forward='now', t1='100ms') as proxy:
            rows = schedule(1, HONEST, 8, 6, mean=0.5) + schedule(1, ATTACKER, 4, 6)
            with Callers(rows, proxy.address, transport=kind) as callers:
                poll(callers.calls, lambda calls: len(calls) == len(rows), timeout=30,
                     say='every call made')
                time.sleep(0.6)      # their last answers
                honest = outcome(callers.calls(), HONEST)
                attackers = outcome(callers.calls(), ATTACKER)
                errors = callers.read('errors')
                callers.halt()
            status = proxy.status()
            check(honest.complete > 0 and attackers.cut > 0, honest, attackers)
            check(status['ended']['cut_incall'] > 0, status)
            check('timeout' not in errors.lower(), errors[:2000])
            poll(lambda: proxy.status()['ending'], lambda n: n == 0, say='ending 0')
            status = proxy.status()
            check(status['waiting'] + status['incall'] <= 8, status)
            clean(proxy)


def test_no_attack_nobody_is_touched():
    with Kamailio(limit=60) as server, Callee(60) as bob:
        server.register('bob', f'sip:bob@{bob.at}')
        with SevenSip(server.address, 60, asan=True, t_m='500ms') as proxy, \
                Callers(schedule(2, HONEST, 20, 3, mean=0.3), proxy.address) as callers:
            check(callers.wait(60), 'the callers have not ended')
            found = outcome(callers.calls(), HONEST)
            check(found.complete == found.calls == len(callers.rows), found)
            status = proxy.status()
            check(status['refused'] == status['replaced'] == 0, status)
            check(status['ended']['completed'] == found.calls, status)
            poll(lambda: proxy.status()['incall'], lambda n: n == 0, say='0 INCALL')
            clean(proxy)


def test_demonstration():
    """bench/demo_sip.py, shorter: it ends well and its table says what became of the
    calls."""
    done = subprocess.run([sys.executable, os.path.join(TOP, 'bench', 'demo_sip.py'),
                           '--seconds', '5', '--t-m', '0.5', '--rate', '20'],
                          capture_output=True, text=True, timeout=50)
    check(done.returncode == 0, done.stdout, done.stderr)
    for words in ('honest calls', 'complete, percent', 'never connected',
                  'post-dial delay, p99'):
        check(words in done.stdout, words, 'is not in', done.stdout)

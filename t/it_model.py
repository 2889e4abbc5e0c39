"""The formal model: exhaustive searches of it, the core against it on generated
sequences, and mutants of it, each of which one of the two must find."""

import os
import re
import shutil
import subprocess
import tempfile

from t.httpd import TOP, die_with_parent
from t.it_common import cases, check, limit

MODEL = os.path.join(TOP, 't', 'model')
CONFORM = os.path.join(TOP, 'build', 'conform')
BATCHES, SEQUENCES = 4, 2520      # sequences in each batch


def maude(folder, file, source=None, timeout=200):
    """What maude says to a file in a folder, and then to what the command source
    writes."""
    # It looks for files where PWD says.
    how = {'cwd': folder, 'env': dict(os.environ, PWD=folder), 'text': True,
           'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'timeout': timeout,
           'preexec_fn': die_with_parent}
    words = ['maude', '-no-banner', '-no-wrap', '-no-advise', file]
    with subprocess.Popen(source or ['true'], stdout=subprocess.PIPE,
                          preexec_fn=die_with_parent) as asker:
        done = subprocess.run(words, stdin=asker.stdout, check=False, **how)
        check(asker.wait(10) == 0, source, 'failed')
    check('Warning' not in done.stdout, done.stdout[:2000])
    return done.stdout


# ---- searches ------------------------------------------------------------------

def searches():
    """search.maude, in two: what comes before its searches, and {name: search}."""
    with open(os.path.join(MODEL, 'search.maude')) as file:
        head, *rest = re.split(r'(?m)^(?=\*\*\* [a-z-]+: )', file.read())
    return head, {re.match(r'\*\*\* ([a-z-]+): ', text)[1]: text for text in rest}


@limit(300)
def test_no_wrong_state_can_be_reached():
    _, named = searches()
    said = maude(MODEL, 'search.maude')
    found = re.findall(r'(No solution\.|Solution \d+ \(state \d+\))\n'
                       r'states: (\d+)  rewrites: \d+ in (\d+)ms', said)
    check(len(found) == len(named), said[-4000:])
    for name, (result, states, ms) in zip(named, found):
        print(f'{name}: {states} states, {ms} ms: {result}')
    check(all(result == 'No solution.' for result, _, _ in found), said[-4000:])
    print('all:', sum(int(states) for _, states, _ in found), 'states')


# ---- conformance ----------------------------------------------------------------

def compare(folder, seed, count):
    """How many sequences the core and the model in a folder decide alike, and what
    is said of those they do not."""
    said = maude(folder, 'conform.maude', [CONFORM, str(seed), str(count)])
    same = len(re.findall(r'(?m)^result Verdict: same$', said))
    return same, re.findall(r'(?m)^result .*differs.*$', said)


def first_difference(seed, count):
    """The first question that core and model answer otherwise, up to where they do."""
    asked = subprocess.run([CONFORM, str(seed), str(count)], capture_output=True,
                           text=True, check=True).stdout.splitlines()
    said = re.findall(r'(?m)^result .*$',
                      maude(MODEL, 'conform.maude', [CONFORM, str(seed), str(count)]))
    for question, answer in zip(asked, said):
        match = re.match(r'result Verdict: differs\("(.*)"\)$', answer)
        if answer == 'result Verdict: same':
            continue
        if not match:
            return f'{question}\n{answer}'
        head, operations, core = re.match(r'(.*), "(.*)", "(.*)"\) \.$', question).groups()
        pairs = list(zip(core.split(), match[1].split()))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs) - 1)
        return (f'{head}\noperation {at} of {operations}:\n'
                f'{operations[21 * at:21 * at + 21]}: core {pairs[at][0]}, '
                f'model {pairs[at][1]}; before it {core.split()[max(0, at - 5):at]}')
    return 'no difference'


@cases(*(str(n) for n in range(1, BATCHES + 1)))
@limit(120)
def test_core_and_model_decide_alike(batch):
    same, other = compare(MODEL, int(batch), SEQUENCES)
    print(same, 'sequences alike,', len(other), 'not')
    if other or same != SEQUENCES:
        raise AssertionError(first_difference(int(batch), SEQUENCES))


# ---- mutants ---------------------------------------------------------------------

class Mutant:
    """A model with an error: in a file, each first text is replaced by the second."""

    def __init__(self, file, *changes):
        self.file, self.changes = file, changes

    def make(self, folder):
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        path = os.path.join(folder, self.file)
        with open(path) as file:
            text = file.read()
        for old, new in self.changes:
            check(text.count(old) == 1, 'is there', text.count(old), 'times:', old)
            text = text.replace(old, new)
        with open(path, 'w') as file:
            file.write(text)


# name: (mutant, the search that finds it, what it finds wrong)
PROTOCOL = {
    'a leave that does not check its serial': (Mutant(
        'seven.maude', ('after(leave, W), B)) Ts | D | C | E }\n    if held(W, S) .',
                        'after(leave, W), B)) Ts | D | C | E }\n    if state(W) =/= free .')),
        'death', 'actedAfterLoss'),
    'an act that is stored, not swapped': (Mutant(
        'seven.maude', ("act(tk(I, S, M), W, V, B)) Ts", "act(tk(I, S, M), W', V, B)) Ts")),
        'death', 'actedAfterLoss'),
    'a replacement that is stored, not swapped': (Mutant(
        'seven.maude', ("swap(M, F, I, W, V, n(B))) Ts", "swap(M, F, I, W', V, n(B))) Ts")),
        'two-places', 'heldTwice'),
    'the same where there is one place': (Mutant(
        'seven.maude', ("swap(M, F, I, W, V, n(B))) Ts", "swap(M, F, I, W', V, n(B))) Ts")),
        'three', 'tooManyHolders'),
    'a relief that is stored, not swapped': (Mutant(
        'seven.maude', ("swap(M, F, I, W, V, r(B))) Ts", "swap(M, F, I, W', V, r(B))) Ts")),
        'relief', 'wrongVictim'),
    'a serial that stays': (Mutant(
        'seven.maude', ('= w(s S rem serials, As, N)', '= w(S, As, N)')),
        'death', 'tooManyHolders'),
    'a serial that comes again too soon': (Mutant(
        'seven.maude', ('eq serials = 4194304 .', 'eq serials = 2 .')),
        'three', 'tooManyHolders'),
    'a gate that is not reset': (Mutant(
        'seven.maude', ('if R < N then g(N, 1) else', 'if R < N then g(N, s P) else'),
        ('if R < N then 0 else P fi', 'P')),
        'rounds', 'firstRefused'),
    'a gate that is stored, not swapped': (Mutant(
        'seven.maude', ("""t(P, pass(M, G, J)) Ts | D | C | E }
    => { Ps | counted(G, M) | N | t(P, passed""", """t(P, pass(M, G', J)) Ts | D | C | E }
    => { Ps | counted(G', M) | N | t(P, passed""")),
        'rounds', 'pmodWrong'),
    'a gate that a late clock sets back': (Mutant(
        'seven.maude', ('if R < N then g(N, 1) else', 'if R =/= N then g(N, 1) else')),
        'rounds', 'pmodWrong'),
    'a late record of the owner': (Mutant(
        'seven.maude', ('eq hidden(o(R, Q), S) = later(R, S) .',
                        'eq hidden(o(R, Q), S) = false .')),
        'death', 'ownerHidden'),
    'a record that is stored, not swapped': (Mutant(
        'seven.maude', ("""owns(tk(I, S, M), O, B)) Ts | D | C | E }
    => { p(I, W, o(S, P)""", """owns(tk(I, S, M), O', B)) Ts | D | C | E }
    => { p(I, W, o(S, P)"""), ('if not hidden(O, S) .', "if not hidden(O', S) .")),
        'death', 'ownerHidden'),
    'places given back whoever has them': (Mutant(
        'seven.maude', ('if held(W, S) then back(tk(I, S, M), W, after(leave, W))',
                        'if state(W) =/= free then back(tk(I, S, M), W, after(leave, W))')),
        'death', 'actedAfterLoss'),
    'places that nobody gives back': (Mutant(
        'seven.maude', ("""t(P, look(I, O)) Ts | true | C | E }
    if state(W) =/= free .""", """t(P, look(I, O)) Ts | true | C | E }
    if false .""")),
        'end', None),
    'a node that is not looked at again': (Mutant(
        'summary.maude', ('{ v(L, I, Y) Cs | Fr | F | D | t(Ss, look(L, I, true, H)) Ts }',
                          '{ v(L, I, Y) Cs | Fr | F | D | t(Ss, after(L, I, true, H)) Ts }')),
        'summary-twice', None),
    'a change that is not told above': (Mutant(
        'summary.maude', ('eq after(1, I, true, up) = look(2, 0, false, up) .',
                          'eq after(1, I, true, up) = idle .')),
        'summary', None),
    'a death that nobody repairs': (Mutant(
        'summary.maude', ('t(Ss, look(1, 0, false, all)) Ts }', 't(Ss, idle) Ts }')),
        'summary-death', None),
    'a tree said to be fresh that has changed': (Mutant(
        'summary.maude', ('=> { Cs | Fr | F | D | t(Ss, idle) Ts } if Fr =/= repair(N)',
                          '=> { Cs | fresh | F | D | t(Ss, idle) Ts } if Fr =/= repair(N)')),
        'summary-stale', None),
    'repairs that have no numbers': (Mutant(
        'summary.maude', ('eq numbers = 2147483648 .', 'eq numbers = 1 .')),
        'summary-stale-twice', None),
    'a change that another repair is not told of': (Mutant(
        'summary.maude', ('{ Cs | stale | F | D | t(Ss, leaveStale) Ts }\n    => { Cs | stale |',
                          '{ Cs | Fr | F | D | t(Ss, leaveStale) Ts }\n    => { Cs | Fr |'),
        ('t(Ss, sayStale) Ts } if Fr =/= stale .', 't(Ss, sayStale) Ts } if Fr == fresh .')),
        'summary-stale', None),
}
# name: mutant, which differs from the core
DECISIONS = {
    'overdue a tick early': Mutant('draw.maude', ('Now - (Tm quo 256) .',
                                                  's Now - (Tm quo 256) .')),
    'PMod counted before the chance': Mutant('seven.maude', ('if R < N then 0 else P fi',
                                                             'if R < N then 1 else s P fi')),
    'a round that begins late': Mutant('conform.maude', (') = Now quo Round .',
                                                         ') = sd(Now, 1) quo Round .')),
    'ties go to the first': Mutant('draw.maude', ('if Z == 0 then hit(I, R) else H fi, R) .',
                                                  'if Ties == 1 then hit(I, R) else H fi, R) .')),
    'credit a tick too far': Mutant('seven.maude', ('N + Credit', 'N + Credit + 1')),
    'drop factors that grow too slowly': Mutant('draw.maude', ('1.4426950408889634', '0.7')),
    'weights that grow too slowly': Mutant('draw.maude', ('float(A) * X * 1048576.0',
                                                          'float(A) * X * 524288.0')),
    'a busy holder is dropped': Mutant('draw.maude', (
        'eq is(droppable, w(S, served, A)) = true .',
        'eq is(droppable, w(S, served, A)) = true .\n  eq is(droppable, w(S, busy, A)) = true .')),
    'a serial that wraps at 1': Mutant('seven.maude', ('eq serials = 4194304 .',
                                                       'eq serials = 2 .')),
}


@cases(*PROTOCOL)
@limit(120)
def test_search_finds(name):
    mutant, search, wrong = PROTOCOL[name]
    head, named = searches()
    command = named[search]
    if wrong:
        check('=/= fine' in command, command)
        command = command.replace('=/= fine', f'== {wrong}')
    with tempfile.TemporaryDirectory() as folder:
        mutant.make(folder)
        with open(os.path.join(folder, 'one.maude'), 'w') as file:
            file.write(head + command)
        said = maude(folder, 'one.maude')
    check(re.search(r'(?m)^Solution 1 ', said), said[-4000:])
    print(said[:4000])


@cases(*DECISIONS)
@limit(120)
def test_comparison_finds(name):
    with tempfile.TemporaryDirectory() as folder:
        DECISIONS[name].make(folder)
        for count in (300, SEQUENCES):     # the first are the same
            same, other = compare(folder, 1, count)
            print(same, 'alike,', len(other), 'not')
            if other:
                break
    check(other, 'the core does the same')

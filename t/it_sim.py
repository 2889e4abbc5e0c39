"""The simulator: its tables, what they are checked against, and its command line."""

import csv
import io
import math
import os
import re
import subprocess
import tempfile

from t.httpd import TOP
from t.it_common import cases, check

SIM = os.path.join(TOP, 'build', 'seven-sim')
REFERENCE = os.path.join(TOP, 't', 'reference')
FIGURES = ('complete', 'incomplete', 'unsuccessful')


def sim(*arguments, status=0):
    """Run it. Returns what it prints; on stderr, if it is to fail."""
    done = subprocess.run([SIM, *arguments], capture_output=True, text=True, timeout=50)
    check(done.returncode == status, arguments, 'ended with', done.returncode,
          done.stdout, done.stderr)
    return done.stderr if status else done.stdout


def rows(*arguments):
    return list(csv.DictReader(io.StringIO(sim(*arguments, '--csv'))))


def reference(name):
    with open(os.path.join(REFERENCE, name)) as file:
        return list(csv.DictReader(file))


def cell_of(row):
    return tuple(row[field] for field in ('model', 'rate_per_unit', 'strategy', 'duration',
                                          'attacker_share'))


def test_equal_seeds_give_equal_tables():
    few = ('--length', 'exponential', '--share', '17,50', '--max-runs', '300')
    first = sim(*few, '--threads', '1')
    check(sim(*few, '--threads', '1') == first, 'the same again differs')
    for threads in ('2', '5'):
        check(sim(*few, '--threads', threads) == first, threads, 'threads differ')
    check(sim(*few, '--seed', '2') != first, 'another seed gives the same')
    web = ('http', '--count', '100', '--max-runs', '30', '--strategy', 'all')
    check(sim(*web, '--threads', '1') == sim(*web, '--threads', '3'), 'http differs')


def test_columns_are_the_references():
    with open(os.path.join(REFERENCE, 'tdos-model.csv')) as file:
        columns = file.readline().strip()
    few = ('--share', '50', '--length', 'exponential', '--max-runs', '200', '--csv')
    for mode in ((), ('--as-published',), ('--forward', 'round')):
        table = sim(*mode, *few).splitlines()
        check(table[0] == columns, table[0])
        check(all(line.count(',') == columns.count(',') for line in table), table)
    wide = sim(*few, '--wide').splitlines()
    check(wide[0].startswith(columns + ','), wide[0])


# Honest calls complete, k = 24, 4.75 calls a second, exponential lengths; and how far off.
EXPECTED = {('none', '17'): 0.540, ('none', '83'): 0.153,
            ('uniform', '17'): 0.719, ('uniform', '83'): 0.546,
            ('roulette', '17'): 0.760, ('roulette', '83'): 0.601,
            ('tournament', '17'): 0.774, ('tournament', '83'): 0.630,
            ('oldest', '17'): 0.786, ('oldest', '83'): 0.667}
TOLERANCE = 0.005


def test_cells_are_as_ever():
    seen = rows('--length', 'exponential', '--share', '17,83', '--min-runs', '800',
                '--max-runs', '800')
    check(len(seen) == len(EXPECTED), len(seen), 'cells')
    for row in seen:
        expected = EXPECTED[row['strategy'], row['attacker_share']]
        room = TOLERANCE + float(row['complete_ci'])
        check(abs(float(row['complete']) - expected) <= room, row, 'expected', expected)
        check(abs(sum(float(row[figure]) for figure in FIGURES) - 1) < 0.0002, row)
    by = {(row['strategy'], row['attacker_share']): float(row['complete']) for row in seen}
    for share in ('17', '83'):
        order = [by[name, share] for name in ('none', 'uniform', 'roulette', 'tournament',
                                              'oldest')]
        check(order == sorted(order), share, order)


def test_the_public_model_is_met():
    theirs = {cell_of(row): row for row in reference('tdos-model.csv')}
    seen = rows('--as-published', '--min-runs', '300', '--max-runs', '300')
    inside = figures = 0
    for row in seen:
        known = theirs[cell_of(row)]
        for figure in FIGURES:
            room = float(row[figure + '_ci']) + float(known[figure + '_ci']) + 0.0001
            inside += abs(float(row[figure]) - float(known[figure])) <= room
            figures += 1
    check(len(seen) == 165, len(seen), 'cells')
    check(inside >= 0.97 * figures, inside, 'of', figures, 'figures are inside')


def test_oldest_first_meets_the_bound():
    theirs = reference('age-only-bound.csv')
    seen = rows('bound', '--min-runs', '6', '--max-runs', '6', '--horizon', '50')
    check(len(seen) == len(theirs) == 10, len(seen))
    for row, known in zip(seen, theirs):
        check(abs(float(row['honest_complete_bound']) -
                  float(known['honest_complete_bound'])) < 0.0011, row, known)
        check(abs(float(row['oldest_first_cut_age']) -
                  float(known['oldest_first_cut_age'])) < 0.011, row, known)
        check(abs(float(row['difference'])) < 0.01, row)


def test_no_policy_beats_the_bound():
    """At k = 24 nothing that knows ages only does, and the best comes near."""
    bound = {row['attackers_share'][:4]: float(row['honest_complete_bound'])
             for row in reference('age-only-bound.csv')[:5]}
    for row in rows('--warm-up', '40', '--horizon', '200', '--drain', '--length', 'exponential',
                    '--share', '50', '--max-runs', '200'):
        share = float(row['complete']) - float(row['complete_ci'])
        check(share <= bound['0.5'], row)


def test_the_2014_model():
    served = {row['strategy']: float(row['served'])
              for row in rows('http', '--as-2014', '--strategy', 'all', '--max-runs', '300')}
    for name, expected in (('none', 0.043), ('uniform', 0.698), ('roulette', 0.902),
                           ('tournament', 0.917), ('oldest', 0.925)):
        check(abs(served[name] - expected) < 0.015, name, served[name], expected)


@cases('180', '100000')
def test_p1_is_all_that_counts_where_needs_are_short(places):
    """ln(1 + load) / load, whatever the size."""
    for load in (0.1, 1):
        found, = rows('http', '--places', places, '--load', str(load), '--honest-share', '5%',
                      '--need', '0.0001', '--handler', '0', '--reserve', '0', '--warm-up', '0.2',
                      '--count', '2000', '--min-runs', '2', '--max-runs', '4')
        law = math.log1p(load) / load
        check(abs(float(found['served']) - law) < 0.03, found, law)


def test_the_reserve_serves_all():
    """As mod_seven measured: everything, at 300 attack connections a second."""
    for row in rows('http', '--strategy', 'uniform,tournament', '--warm-up', '4', '--count',
                    '300', '--max-runs', '20'):
        check(float(row['served']) >= 0.999, row)


def test_servers_behind_a_balancer():
    for row in rows('http', '--servers', '16', '--places', '20', '--balance', 'all', '--attack',
                    '300', '--t-m', '0.08', '--count', '300', '--max-runs', '20'):
        check(float(row['served']) >= 0.99, row)


def given(*lines):
    """What becomes of these calls, at two places without delays: the table's rows."""
    with tempfile.NamedTemporaryFile('w', suffix='.csv') as file:
        file.write(''.join(line + '\n' for line in lines))
        file.flush()
        return rows('--calls', file.name, '--places', '2', '--delay', '0', '--ring', '0',
                    '--horizon', '10', '--min-runs', '20', '--max-runs', '20')


def test_given_calls():
    """Two loads on two places: in the first an attacker takes one for good."""
    table = given('1,0,forever', '1,1000,2000', '1,1500,1000', '1,4000,9000',
                  '2,0,5000', '2,2000,1000', '2,4000,100')
    by = {row['strategy']: row for row in table}
    check(set(by) == {'none', 'uniform', 'roulette', 'tournament', 'oldest'}, by)
    check(float(by['none']['complete']) == 0.8333 and
          float(by['none']['unsuccessful']) == 0.1667, by['none'])
    # Oldest first puts out the attacker: all six are complete.
    check(float(by['oldest']['complete']) == 1, by['oldest'])
    check(by['oldest']['rate_per_unit'] == '0.875', by['oldest'])
    check(0.8333 < float(by['tournament']['complete']) <= 1, by['tournament'])


def test_given_calls_that_are_wrong():
    for lines, said in ((('1,0,5', '1,2'), 'line 2'), (('2,0,5',), 'line 1'),
                        (('1,5,5', '1,4,5'), 'line 2'), (('1,0,5', '3,0,5'), 'line 2'),
                        (('1,x,5',), 'line 1'), (('1,0,ever',), 'line 1'), ((), 'no calls'), (('1,0,5' + 80 * '0',), 'line 1'),
                        (('1,0,5', ''), 'line 2'), (('1,0,-5',), 'line 1')):
        with tempfile.NamedTemporaryFile('w', suffix='.csv') as file:
            file.write(''.join(line + '\n' for line in lines))
            file.flush()
            sentence = sim('--calls', file.name, status=2)
        check(re.fullmatch(r'seven-sim: .{10,200}[.]\n', sentence) and said in sentence,
              lines, sentence)


def test_all_entrants_cut_the_highest_drop_factor():
    few = ('--length', 'exponential', '--share', '50', '--strategy', 'tournament', '--min-runs',
           '400', '--max-runs', '400')
    half, whole, one = (float(rows(*few, '--entrants', n)[0]['complete'])
                        for n in ('12', '24', '1'))
    check(one < half - 0.05 and half - 0.01 < whole, one, half, whole)
    check(float(rows(*few)[0]['complete']) == half, 'k/2 is not the default')


WRONG = (('--share', 'abc'), ('--share', '100'), ('--share', '17,,33'), ('--share', '-1'),
         ('--strategy', 'lottery'), ('--length', ''), ('--rate', '0'), ('--places', '0'),
         ('--places', '1.5'), ('--places', '9999999'), ('--threads', '0'), ('--width', '2'),
         ('--seed', '-1'), ('--max-runs', '1'), ('--max-runs', '100', '--min-runs', '200'),
         ('--warm-up', '50'), ('--forward', 'later'), ('--t-m', 'nan'), ('--t-m', 'auto'),
         ('--rate',), ('--unknown',), ('--csv=yes',), ('extra', 'words'), ('calls', 'words'),
         ('--as-published', '--rate', '5'), ('--as-published', '--share', '20'),
         ('--as-published', '--strategy', 'oldest'), ('--speed', 'now'), ('bound', '--delay'),
         ('--rate', ','.join(['1'] * 17)), ('http', '--reserve', '60%'),
         ('http', '--honest', '0'), ('http', '--load', '0.001', '--honest', '1000'),
         ('http', '--honest-share', '100%'), ('http', '--attack', '0', '--honest-share', '5%'),
         ('http', '--servers', '0'), ('http', '--balance', 'best'), ('http', '--hold', '1e9'),
         ('--calls', '/no/such/file'), ('--calls', '/dev/null', '--sha', '17'),
         ('--calls', '/dev/null', '--as-published'), ('bound', '--entrants', '2'),
         ('--strategy', 'uniform', '--entrants', '2'),
         ('bound', '--calls', '/dev/null'), ('--entrants', '0'), ('--entrants', '25'),
         ('--as-published', '--entrants', '12'),
         ('http', '--servers', '1000', '--places', '1048576'))


def test_wrong_input_is_one_sentence():
    for arguments in WRONG:
        said = sim(*arguments, status=2)
        check(re.fullmatch(r'seven-sim: .{10,200}[.]\n', said), arguments, said)


def test_help_knows_every_option():
    text = sim('--help')
    check(sim('http', '--help') == text == sim('-h'), 'help differs')
    for option in sorted(set(re.findall(r'--[a-z0-9-]+', text)) - {'--help', '--speed'}):
        known = [command for command in ('calls', 'bound', 'http')
                 if 'There is no option' not in subprocess.run(
                     [SIM, command, option, '?'], capture_output=True, text=True,
                     timeout=20).stderr]
        check(known, option, 'is in the help and nowhere else')

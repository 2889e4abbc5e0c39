#!/usr/bin/env python3
"""Runs all tests: what `make check` does once everything is built.

    t/run.py [lint|unit|it] [NAME-SUBSTRING...]

lint  the include rule, what the core may call, formatting, cppcheck, clang-tidy
unit  the programs in build/t, build/t-asan and build/t-tsan, of t/test_*.c
it    the functions test_* in t/it_*.py, against httpds of their own
last  nothing may be left running or lying about

Three tests run at a time, each in a process of its own with a time limit. What a
failed test printed is shown. The last line is `N passed, N failed`; the exit
status is 0 if none failed.
"""

import concurrent.futures
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from t import lint                                             # noqa: E402
from t.httpd import adopt_orphans, die_with_parent             # noqa: E402
from t.it_common import Skip                                   # noqa: E402

TOP = sys.path[0]
KINDS = ('lint', 'unit', 'it')
AT_A_TIME = 3     # most of them wait most of the time
UNIT_LIMIT = 400     # seconds
LINT_LIMIT = 300
SHOWN = 12000        # of what a failed test printed, at most
SKIPPED = 77         # exit status of a test that cannot run here
TAG = 'SEVEN_TEST'   # in the environment of all that a test starts


class Result:
    """What became of one test program: most are one test, a Check program is
    several."""

    def __init__(self, passed=0, failed=0, skipped=0, text=''):
        self.passed, self.failed, self.skipped = passed, failed, skipped
        self.text = text

    @property
    def word(self):
        return 'FAIL' if self.failed else 'skip' if self.skipped else 'ok'


class Test:
    """A name, a command, a limit in seconds, and how to read what it says."""

    def __init__(self, name, command, limit, judge=None, env=None):
        self.name, self.command, self.limit = name, command, limit
        self.judge = judge or judge_one
        self.env = env or {}


def judge_one(status, text):
    """A test that is one test: its exit status tells."""
    if status == SKIPPED:
        return Result(skipped=1, text=text)
    return Result(passed=status == 0, failed=status != 0, text=text)


# ---- running one -------------------------------------------------------------

def end_group(process):
    """Let a test clean up, then make sure of it."""
    for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            pass


_running = set()


def run(test, scratch):
    """Run one test. Returns its Result and how many seconds it took."""
    began = time.monotonic()
    env = dict(os.environ, TMPDIR=scratch, PYTHONDONTWRITEBYTECODE='1',
               **{TAG: test.name}, **test.env)
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(test.command, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT,
                                       cwd=TOP, env=env, start_new_session=True,
                                       preexec_fn=die_with_parent)
        except OSError as error:
            return Result(failed=1, text=str(error)), 0
        late = ''
        _running.add(process)
        try:
            status = process.wait(test.limit)
        except subprocess.TimeoutExpired:
            late = f'\nstill not done after {test.limit} s\n'
            status = 1
        finally:
            end_group(process)
            _running.discard(process)
        output.seek(0)
        text = output.read().decode('utf-8', 'replace') + late
    result = Result(failed=1, text=text) if late else test.judge(status, text)
    return result, time.monotonic() - began


# ---- unit tests ----------------------------------------------------------------

def judge_check(status, text):
    """Add up what Check says of each suite."""
    result = Result(text=text)
    for checks, failures, errors in re.findall(
            r'^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)', text,
            re.MULTILINE):
        bad = int(failures) + int(errors)
        result.passed += int(checks) - bad
        result.failed += bad
    if result.failed == 0 and (status != 0 or result.passed == 0):
        result.failed = 1
        result.text += f'\nexit status {status}\n'
    return result


def unit_tests():
    """The programs that were built; a missing plain or ASan build is a failure."""
    tests = []
    names = sorted(name[5:-2] for name in os.listdir(os.path.join(TOP, 't'))
                   if name.startswith('test_') and name.endswith('.c'))
    for folder, needed in (('t', True), ('t-asan', True), ('t-tsan', False)):
        for name in names:
            path = os.path.join(TOP, 'build', folder, name)
            if not needed and not os.path.exists(path):
                continue
            command = [path]
            # ThreadSanitizer may not cope with how far addresses are randomised.
            if folder == 't-tsan' and shutil.which('setarch'):
                command = ['setarch', '-R', *command]
            tests.append(Test(f'unit {folder}/{name}', command, UNIT_LIMIT,
                              judge_check,
                              {'TSAN_OPTIONS': 'halt_on_error=1',
                               'UBSAN_OPTIONS': 'print_stacktrace=1'}))
    return tests


# ---- integration tests -----------------------------------------------------------

def cases_of(module_name, name, function):
    """A function with cases is a test for each."""
    for case in getattr(function, 'cases', [None]):
        label = name if case is None else f'{name}[{case}]'
        yield Test(f'{module_name} {label}',
                   [sys.executable, os.path.abspath(__file__), '--one',
                    module_name, name, *([] if case is None else [case])],
                   getattr(function, 'limit', 60))


def it_tests():
    tests = []
    for file in sorted(os.listdir(os.path.join(TOP, 't'))):
        if re.fullmatch(r'it_(?!common)\w+\.py', file):
            module = importlib.import_module(f't.{file[:-3]}')
            for name, function in vars(module).items():
                if name.startswith('test_') and function.__module__ == module.__name__:
                    tests += cases_of(file[:-3], name, function)
    # The long ones first: then nobody waits for a last one alone.
    return sorted(tests, key=lambda test: -test.limit)


def run_function(module_name, name, *case):
    """In a process of its own: one test function."""
    module = importlib.import_module(f't.{module_name}')
    try:
        getattr(module, name)(*case)
    except Skip as reason:
        print('skipped:', reason)
        sys.exit(SKIPPED)


# ---- lint ------------------------------------------------------------------------

def lint_tests():
    return [Test(f'lint {name}', [sys.executable, os.path.abspath(__file__),
                                  '--lint', name], LINT_LIMIT)
            for name in lint.CHECKS]


# ---- what is left ------------------------------------------------------------------

def descendants():
    """Processes that a test started and that are still there: {pid: (test, what)}.
    An orphan becomes our child, so the parent does not tell; the tags do."""
    found = {}
    ours = f'{TAG}_RUN={os.getpid()}'.encode()
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f'/proc/{name}/environ', 'rb') as file:
                words = file.read().split(b'\0')
            with open(f'/proc/{name}/cmdline', 'rb') as file:
                command = b' '.join(file.read().split(b'\0')[:3]).decode()
        except OSError:
            continue
        tests = [word for word in words if word.startswith(TAG.encode() + b'=')]
        if ours in words and tests:
            found[int(name)] = (tests[0].decode().split('=', 1)[1], command)
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def leftovers(scratch):
    """The last test: everything that was started has ended, and cleaned up."""
    end = time.monotonic() + 5
    while descendants() and time.monotonic() < end:
        reap()
        time.sleep(0.05)
    text = ''
    for pid, (test, command) in descendants().items():
        text += f'{test} left process {pid} running: {command}\n'
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for name in os.listdir(scratch):
        text += f'a test left {name} in its temporary directory\n'
    return Result(passed=not text, failed=bool(text), text=text)


# ---- all of it ---------------------------------------------------------------------

class Report:
    """Prints one line a test, and counts."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self._lock = threading.Lock()

    def add(self, name, result, seconds):
        with self._lock:
            self.passed += result.passed
            self.failed += result.failed
            self.skipped += result.skipped
            several = (f' ({result.passed} of {result.passed + result.failed})'
                       if result.passed + result.failed > 1 else '')
            print(f'{result.word:4} {name}{several} {seconds:.1f} s', flush=True)
            if result.failed:
                text = result.text[-SHOWN:].rstrip()
                self.failures.append((name, text.rpartition('\n')[2][:500]))
                print('\n'.join('    | ' + line for line in text.splitlines()),
                      flush=True)

    def close(self):
        for name, why in self.failures:
            print(f'failed: {name}\n    | {why}')
        print(f'{self.passed} passed, {self.failed} failed' +
              (f', {self.skipped} skipped' if self.skipped else ''), flush=True)
        return 1 if self.failed else 0


def chosen(arguments):
    """The tests that the command line asks for, in the order to run them."""
    kinds = [word for word in arguments if word in KINDS] or KINDS
    parts = [word for word in arguments if word not in KINDS]
    tests = []
    for kind, collect in (('unit', unit_tests), ('lint', lint_tests), ('it', it_tests)):
        if kind in kinds:
            tests += collect()
    return [test for test in tests
            if not parts or any(part in test.name for part in parts)]


def run_all(tests):
    report = Report()
    scratch = tempfile.mkdtemp(prefix='seven-check-')
    os.chmod(scratch, 0o755)

    def one(test):
        report.add(test.name, *run(test, scratch))

    pool = concurrent.futures.ThreadPoolExecutor(AT_A_TIME)
    try:
        for future in [pool.submit(one, test) for test in tests]:
            future.result()
        report.add('leftovers', leftovers(scratch), 0)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(_running):      # only when we are interrupted
            end_group(process)
        shutil.rmtree(scratch, ignore_errors=True)
    return report.close()


def on_signal(number, _frame):
    sys.exit(128 + number)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == '--one':
        run_function(*sys.argv[2:])
        return 0
    if len(sys.argv) > 1 and sys.argv[1] == '--lint':
        return lint.run(sys.argv[2])
    if any(word.startswith('-') for word in sys.argv[1:]):
        print(__doc__)
        return 0 if {'-h', '--help'} & set(sys.argv) else 2
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    os.environ[f'{TAG}_RUN'] = str(os.getpid())
    tests = chosen(sys.argv[1:])
    if not tests:
        print('No test has such a name.')
        return 2
    return run_all(tests)


if __name__ == '__main__':
    sys.exit(main())

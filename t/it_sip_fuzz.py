"""The fuzzer of seven-sip's message entry, for a short fixed time, from seeds: RFC
4475's messages if they are there, and calls of each kind."""

import glob
import os
import subprocess
import tempfile

from t.httpd import TOP
from t.it_common import Skip, check

FUZZER = os.path.join(TOP, 'build', 'fuzz_sip')
TORTURE = os.path.join(TOP, '..', 'shared', 'corpora', 'rfc4475', '*.dat')
SECONDS = 15
CLIENT, SERVER, CLIENT_ANSWERS, SERVER_ANSWERS, CLIENT_ASKS, SERVER_ASKS, INVITE = range(7)
ACK, BYE, REINVITE, UPDATE, PRACK, CANCEL = range(6)


def step(what, data=b''):
    return bytes([what]) + len(data).to_bytes(2, 'big') + data


def status(code):
    """The byte that the fuzzer makes that status of, or one just above."""
    return bytes([min(255, ((code - 100) * 256 + 599) // 600)])


def seeds():
    up = (step(INVITE) + step(SERVER_ANSWERS, status(180)) +
          step(SERVER_ANSWERS, status(200)) + step(CLIENT_ASKS, bytes([ACK, 0])))
    found = {
        'ended': up + step(CLIENT_ASKS, bytes([BYE, 1])) + step(SERVER_ANSWERS, status(200)),
        'victims': 5 * up + step(CLIENT_ANSWERS, status(200)) +
        step(SERVER_ANSWERS, status(200)),
        'cancelled': step(INVITE) + step(SERVER_ANSWERS, status(180)) +
        step(CLIENT_ASKS, bytes([CANCEL, 0])) + step(SERVER_ANSWERS, status(200)) +
        step(SERVER_ANSWERS, status(487)),
        'refreshed': up + step(SERVER_ASKS, bytes([REINVITE, 5])) +
        step(CLIENT_ANSWERS, status(200)) + step(CLIENT_ASKS, bytes([UPDATE, 9])) +
        step(SERVER_ANSWERS, status(200)),
        'forked': up + step(SERVER_ANSWERS, status(200) + b'To: <sip:bob@x>;tag=u'),
    }
    for path in glob.glob(TORTURE):
        with open(path, 'rb') as file:
            found[os.path.basename(path)] = step(CLIENT, file.read())
    return found


def test_fuzz():
    if not os.path.exists(FUZZER):
        raise Skip('build/fuzz_sip is not built')
    with tempfile.TemporaryDirectory(prefix='seven-fuzz-') as folder:
        corpus = os.path.join(folder, 'corpus')
        os.mkdir(corpus)
        for name, data in seeds().items():
            with open(os.path.join(corpus, name), 'wb') as file:
                file.write(data)
        done = subprocess.run(
            [FUZZER, f'-max_total_time={SECONDS}', '-max_len=12000', '-timeout=25',
             '-rss_limit_mb=1024', f'-artifact_prefix={folder}/', corpus],
            capture_output=True, text=True, errors='replace', timeout=SECONDS + 100)
        check(done.returncode == 0, done.stderr[-6000:])

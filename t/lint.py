"""What can be said of the sources without running them. Each check prints what
it found and is one test."""

import glob
import os
import re
import subprocess
import sys

from t.httpd import TOP

C11_HEADERS = set('''assert complex ctype errno fenv float inttypes iso646 limits
    locale math setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio
    stdlib stdnoreturn string tgmath threads time uchar wchar wctype'''.split())
# What sip_ext may use besides: POSIX and Linux, its SIP library, OpenSSL, LMDB,
# libmicrohttpd.
SIP_HEADERS = set('''dirent fcntl getopt malloc netdb poll pthread sched strings syslog
    unistd'''.split())
SIP_FOLDERS = ('arpa/', 'linux/', 'net/', 'netinet/', 'sys/', 'sofia-sip/',
               'openssl/')
SIP_LIBRARIES = ('lmdb.h', 'microhttpd.h')
# A core that neither allocates, asks the time, prints nor uses a hidden generator.
FORBIDDEN_IN_CORE = '''malloc calloc realloc free aligned_alloc time clock
    clock_gettime gettimeofday timespec_get printf fprintf sprintf snprintf puts
    rand srand random srandom drand48 getrandom open read write close fopen exit
    abort getenv sleep usleep nanosleep'''.split()


def files(*patterns):
    return sorted(path for pattern in patterns
                  for path in glob.glob(pattern, root_dir=TOP))


def read(path):
    with open(os.path.join(TOP, path)) as file:
        return file.read()


def includes(path):
    """The includes of a file: [(line number, '<' or '"', name)]."""
    return [(number, match[1], match[2])
            for number, line in enumerate(read(path).splitlines(), 1)
            if (match := re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line))]


def code_of(path):
    """A C file without its comments and strings, line by line."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"',
                  lambda match: re.sub(r'[^\n]', ' ', match[0]), read(path),
                  flags=re.DOTALL)
    return text.splitlines()


def includes_of_core():
    """seven_core includes C11's headers and its own, and nothing else."""
    own = {os.path.basename(path) for path in files('seven_core/*.h')}
    return [f'{path}:{line}: seven_core must not include {name}'
            for path in files('seven_core/*.[ch]')
            for line, quote, name in includes(path)
            if not (name in own if quote == '"'
                    else name.removesuffix('.h') in C11_HEADERS)]


def includes_of_adapters():
    """mod_seven.c does not know SIP. sip_ext includes seven_core, its libraries, POSIX
    and its own, so nothing of httpd's."""
    own = {os.path.basename(path) for path in files('sip_ext/*.h', 'seven_core/*.h')}
    wrong = [f'mod_seven.c:{line}: must not include {name}'
             for line, _, name in includes('mod_seven.c')
             if 'sip' in name.lower() or name.startswith(('t/', 'bench/'))]
    return wrong + [f'{path}:{line}: sip_ext must not include {name}'
                    for path in files('sip_ext/*.[ch]', 'sip_ext/**/*.[ch]')
                    for line, quote, name in includes(path)
                    if not (name in own if quote == '"'
                            else name.startswith(SIP_FOLDERS) or name in SIP_LIBRARIES
                            or name.removesuffix('.h') in C11_HEADERS | SIP_HEADERS)]


def calls_of_core():
    """seven_core asks no clock, allocates nothing, prints nothing, has no rand()."""
    call = re.compile(r'\b(' + '|'.join(FORBIDDEN_IN_CORE) + r')\s*\(')
    return [f'{path}:{number}: seven_core must not call {match[1]}()'
            for path in files('seven_core/*.c')
            for number, line in enumerate(code_of(path), 1)
            if (match := call.search(line))]


def globals_of_core():
    """seven_core has no state of its own: its objects have no writable data."""
    wrong = []
    for path in files('seven_core/*.c'):
        built = f'build/core/{os.path.basename(path)[:-2]}.o'
        done = subprocess.run(['objdump', '-t', built], cwd=TOP, capture_output=True,
                              text=True, check=True)
        # Constants that hold addresses are in .data.rel.ro.
        wrong += [f'{path}: {line.split()[-1]} is a variable'
                  for line in done.stdout.splitlines()
                  if re.search(r' O (\.data|\.bss|\.tdata|\.tbss|\*COM\*)(?!\.rel\.ro)',
                               line)]
    return wrong


def licences():
    return [f'{path}: no SPDX-License-Identifier in its first lines'
            for path in files('mod_seven.c', 'seven_core/*.[ch]', 'sip_ext/*.[ch]')
            if 'SPDX-License-Identifier: Apache-2.0' not in read(path)[:200]]


def tool(command):
    """Run a tool; what it prints if it fails."""
    try:
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True)
    except OSError as error:
        return [str(error)]
    return [(done.stdout + done.stderr).strip() or f'exit status {done.returncode}'
            ] if done.returncode else []


def clang_format():
    return tool(['clang-format', '--dry-run', '-Werror',
                 *files('mod_seven.c', 'seven_core/*.[ch]', 'bench/*.[ch]', 't/*.[ch]',
                        'sip_ext/*.[ch]')])


def cppcheck():
    return tool(['cppcheck', '--quiet', '--error-exitcode=1', '--std=c11',
                 '--enable=warning,performance,portability', '--inline-suppr',
                 '--suppress=missingIncludeSystem', '--suppress=missingInclude',
                 # It does not follow functions that never return.
                 '--suppress=va_end_missing:bench/webbots_util.c',
                 '--suppress=nullPointerRedundantCheck:bench/*',
                 '--suppress=ctunullpointer:bench/*',
                 '-I.', '-Iseven_core', '-Isip_ext', '-D_GNU_SOURCE',
                 '-DAP_MODULE_DECLARE_DATA=', '-DAPLOG_USE_MODULE(x)=',
                 '-DSTANDARD20_MODULE_STUFF=0',
                 *files('mod_seven.c', 'seven_core/*.c', 'bench/*.c', 'sip_ext/*.c')])


def apxs(name):
    done = subprocess.run([os.environ.get('APXS', 'apxs'), '-q', name],
                          capture_output=True, text=True, check=True)
    return done.stdout.split()


def clang_tidy(paths, flags):
    said = tool(['clang-tidy', '--quiet', *paths, '--', '-std=c11', '-D_GNU_SOURCE',
                 *flags])
    # "N warnings generated" are those in others' headers, which are not shown.
    return [re.sub(r'(?m)^\d+ warnings? generated\.\n?', '', text) for text in said]


def clang_tidy_core():
    return clang_tidy(files('seven_core/*.c'), ['-Iseven_core'])


def clang_tidy_module():
    httpd = [*apxs('CFLAGS'), *apxs('EXTRA_CPPFLAGS')]
    defines = [flag for flag in httpd if flag.startswith('-D')]
    return clang_tidy(['mod_seven.c'],
                      [*defines, '-isystem', *apxs('INCLUDEDIR'),
                       '-isystem', *apxs('APR_INCLUDEDIR'), '-I.'])


def clang_tidy_sip():
    done = subprocess.run(['pkg-config', '--cflags-only-I', 'sofia-sip-ua'],
                          capture_output=True, text=True, check=True)
    system = [word for flag in done.stdout.split() for word in ('-isystem', flag[2:])]
    # One at a time: with several clang-tidy 14 takes every later va_list for unset.
    return [said for path in files('sip_ext/*.c')
            for said in clang_tidy([path], ['-Isip_ext', '-Iseven_core', *system])]


def manual():
    """conf/seven-sip.8 is without a warning of mandoc's and groff's."""
    page = 'conf/seven-sip.8'
    said = tool(['mandoc', '-T', 'lint', '-W', 'warning', page])
    done = subprocess.run(['groff', '-man', '-mandoc', '-ww', '-Tutf8', '-z', page], cwd=TOP,
                          capture_output=True, text=True)
    return said + ([done.stderr] if done.stderr else [])


CHECKS = {'includes of seven_core': includes_of_core,
          'includes of the adapters': includes_of_adapters,
          'calls of seven_core': calls_of_core,
          'globals of seven_core': globals_of_core,
          'licences': licences,
          'clang-format': clang_format,
          'cppcheck': cppcheck,
          'clang-tidy seven_core': clang_tidy_core,
          'clang-tidy mod_seven': clang_tidy_module,
          'clang-tidy sip_ext': clang_tidy_sip,
          'manual': manual}


def run(name):
    """One check by name. Returns an exit status."""
    wrong = CHECKS[name]()
    print('\n'.join(wrong))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(max(run(name) for name in CHECKS))

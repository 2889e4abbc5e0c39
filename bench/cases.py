"""Which of a benchmark's cases are to be run."""

import sys


def choose(cases, names):
    """The cases named; a name may also be the beginning of several."""
    chosen = []
    for name in names:
        found = [c for c in cases if name in ('all', c.name)]
        found = found or [c for c in cases if c.name.startswith(name + '-')]
        if not found:
            sys.exit(f'There is no case "{name}"; --list names them.')
        chosen += [c for c in found if c not in chosen]
    return chosen

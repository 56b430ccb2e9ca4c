"""__main__ - `python -m tfinject`: prints the path of the library, or starts one of the programs.

    python -m tfinject                    prints the path of libtfinject.so, for LD_PRELOAD
    python -m tfinject run [options] -- COMMAND…   is tfrun
    python -m tfinject analyze COMMAND…   is tfanalyze
    python -m tfinject help [TOPIC]       is tfanalyze help
"""

import os
import sys

import tfinject


def main(arguments):
    if not arguments:
        print(tfinject.library())
        return 0
    word, rest = arguments[0], arguments[1:]
    commands = {'run': ['tfrun'], 'analyze': ['tfanalyze'], 'help': ['tfanalyze', 'help']}
    if word in ('-h', '--help'):
        print(__doc__.split('\n\n', 1)[1], end='')
        return 0
    if word not in commands:
        print(f'tfinject: there is no {word}; the words are ' + ', '.join(commands) + ', or none', file=sys.stderr)
        return 2
    try:
        path = tfinject.program(commands[word][0])
    except FileNotFoundError as error:
        print(f'tfinject: {error}', file=sys.stderr)
        return 1
    os.execv(path, [*commands[word], *rest])


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))

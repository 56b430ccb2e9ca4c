"""forked - runs Python scripts that need torch in forks of one interpreter, which has imported it: an import takes two seconds.

This file is a program too: the interpreter. It reads a line of JSON for each script and answers with the exit status. Only
scripts that run without the library go here, and none that sets a variable which torch reads while it loads.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

# For `imports`, in tests of the group `diffusers`: diffusers and transformers take six seconds.
PIPELINES = 'diffusers.pipelines.dit.pipeline_dit', 'transformers.generation.utils'


class Interpreter:
    """Runs commands as execute() of conftest does; the first word of a command is ignored."""

    def __init__(self, python, directory, env):
        self.python, self.directory, self.env, self.process = python, Path(directory), env, None

    def run(self, command, env=None, cwd=None, imports=()):
        """`imports` are modules that the interpreter imports before it forks, and keeps."""
        out, err = self.directory / 'out', self.directory / 'err'
        line = {'command': [*map(str, command[1:])], 'env': {k: str(v) for k, v in (self.env if env is None else env).items()},
                'cwd': str(cwd or self.directory), 'out': str(out), 'err': str(err), 'imports': list(imports)}
        if not self.process:
            self.process = subprocess.Popen([self.python, __file__], env=self.env, text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, start_new_session=True)
        try:
            print(json.dumps(line), file=self.process.stdin, flush=True)
            status = int(self.process.stdout.readline())
        except BaseException:  # a test that no longer waits: the next one would get this script's status
            self.kill()
            raise
        return SimpleNamespace(rc=status, out=out.read_text(errors='replace'), err=err.read_text(errors='replace'))

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        self.process = None

    def end(self):
        if not self.process:
            return
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:  # a script that a test no longer waits for
            self.kill()


def play(command):
    """Runs `-W ACTION`, then `-c CODE` or a file, as the program of this process; returns the exit status."""
    import runpy
    import traceback
    import warnings
    while command[0] == '-W':
        warnings.simplefilter(command[1])
        command = command[2:]
    sys.path[0] = '' if command[0] == '-c' else os.path.dirname(command[0])
    sys.path[1:1] = filter(None, os.environ.get('PYTHONPATH', '').split(':'))
    try:
        if command[0] == '-c':
            sys.argv = ['-c', *command[2:]]
            main = type(sys)('__main__')
            main.__dict__['__builtins__'] = __builtins__
            sys.modules['__main__'] = main
            exec(compile(command[1], '<string>', 'exec'), main.__dict__)
        else:
            sys.argv = list(command)
            runpy.run_path(command[0], run_name='__main__')
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def start_profile_quickly(torch):
    """torch.profiler imports inductor to look at a setting of it, which takes two seconds. Here it does so if a script has."""
    prepare = torch.profiler.profile.prepare_trace

    def prepare_trace(profile):
        torch._lazy_modules.discard('_inductor')
        prepare(profile)
        torch._lazy_modules.add('_inductor')
    torch.profiler.profile.prepare_trace = prepare_trace


def serve():
    import atexit
    import importlib
    import torch
    start_profile_quickly(torch)
    for line in sys.stdin:
        asked = json.loads(line)
        for name in asked['imports']:
            importlib.import_module(name)
        child = os.fork()
        if not child:
            os.chdir(asked['cwd']), os.environ.clear(), os.environ.update(asked['env'])
            for name, file in ('/dev/null', 0), (asked['out'], 1), (asked['err'], 2):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), file)
            status = play(asked['command'])
            atexit._run_exitfuncs()
            sys.stdout.flush(), sys.stderr.flush(), os._exit(status & 255)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == '__main__':
    serve()

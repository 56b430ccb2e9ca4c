"""test_troubleshooting - each message that `tfanalyze help troubleshooting` quotes is one that a run prints.

A quote is a block of code that begins with the name of a program. Words in capitals stand for a value of the run. Each
quote has a function here that causes it; its lines on stderr are compared with the quote.
"""

import os
import re
import shutil

import pytest

import scripted
from conftest import BUILD, ROOT, built

TEXT = (ROOT / 'analysis/help/troubleshooting.txt').read_text()
SPEAKERS = 'tfinject: ', 'tfrun: ', 'tfanalyze: ', 'ERROR: ld.so: '
VALUES = re.compile(r'\b(?:PID|NUMBER|DIR|FILE|NAME|REASON)\b')


def quotes():
    for block in re.findall(r'(?:^    .*\n)+', TEXT, re.M):
        for quote in re.split(r'\n(?=\S)', re.sub(r'^    ', '', block, flags=re.M).rstrip()):
            if quote.startswith(SPEAKERS):
                yield re.sub(r'\s*\n\s+', ' ', quote)


class Causes:
    """Each method causes the message that its docstring begins and returns what was said."""

    def __init__(self, run, analyze, victim, tfanalyze, place):
        self.run, self.analyze, self.script, self.tfanalyze, self.place = run, analyze, victim('script'), tfanalyze, place

    def play(self, steps, env=None, **options):
        return self.run([self.script, *steps.split()], env, preload=options.pop('preload', 'test'), **options)

    def ask(self, *words, rc=0):
        return self.analyze(*words, rc=rc, format=None).err

    def recorded(self, steps='push=a call=1 pop'):
        return self.play(steps).dir

    def tfrun(self, *words):
        return self.run([ROOT / 'scripts/tfrun', *words], {'TFI_OUTPUT_DIR': None}, preload=False).err

    def without_privilege(self, *command):
        """Root may read and write everything; a root without these capabilities may not."""
        drop = ['setpriv', '--bounding-set=-dac_override,-dac_read_search'] if os.getuid() == 0 else []
        return [*drop, *command]

    def driver(self, **env):
        libraries = scripted.libraries(self.place / 'cuda', 'libcuda.so.1')
        return self.run([built(BUILD / 'victims_gpu/driver')], {'LD_LIBRARY_PATH': libraries, 'CUDA_HOME': '/nowhere', **env}).err

    # ---- nothing was written ----

    def nothing(self):
        """tfrun: no process recorded anything"""
        return self.tfrun('true')

    def no_library(self):
        """ERROR: ld.so: object"""
        return self.run(['true'], preload='/nowhere/libtfinject.so').err

    def unfit_library(self):
        """tfrun: FILE cannot be loaded"""
        (self.place / 'scripts').mkdir()
        (self.place / 'build').mkdir()
        shutil.copy(ROOT / 'scripts/tfrun', self.place / 'scripts')
        (self.place / 'build/libtfinject.so').write_text('of another machine')
        return self.run([self.place / 'scripts/tfrun', 'true'], preload=False).err

    def not_writable(self):
        """tfinject: nothing is recorded in process"""
        (self.place / 'closed').mkdir(mode=0o555)
        command = ['env', f'LD_PRELOAD={built(BUILD / "libtfinject.so")}', self.script, 'push=a', 'pop']
        return self.run(self.without_privilege(*command), {'TFI_OUTPUT_DIR': self.place / 'closed/run'}, preload=False).err

    def tfrun_not_writable(self):
        """tfrun:   - DIR cannot be written to"""
        (self.place / 'file').write_text('')
        return self.tfrun('--output', 'file/below', 'true')

    def not_readable(self):
        """tfanalyze: FILE: cannot be read"""
        trace = scripted.only(scripted.traces(self.recorded())).path
        trace.chmod(0)
        return self.run(self.without_privilege(self.tfanalyze, 'stages', trace), preload=False).err

    # ---- the device ----

    def no_kernels(self):
        """tfanalyze: no device work was recorded"""
        return self.ask('breakdown', self.recorded())

    def no_cupti(self):
        """tfinject: no device records: libcupti.so"""
        return self.driver()

    def wrong_cupti(self):
        """tfinject: TFI_CUPTI_PATH=FILE"""
        return self.driver(TFI_CUPTI_PATH='/nowhere/libcupti.so')

    def another_profiler(self):
        """tfinject: no device records: another profiler"""
        return self.driver(CUDA_INJECTION64_PATH='/opt/libToolsInjection64.so')

    # ---- stages and names ----

    def no_stages(self):
        """tfanalyze: no stages were recorded"""
        return self.no_live()

    def no_match(self):
        """tfinject: ENABLE_PROFILER_NAMES: NAME matched no stage in process PID; the nearest"""
        return self.play('push=denoise_step pop', {'ENABLE_PROFILER_NAMES': 'denoise'}).err

    def no_stage_to_match(self):
        """tfinject: ENABLE_PROFILER_NAMES: NAME matched no stage in process PID; the process"""
        return self.driver(ENABLE_PROFILER_NAMES='denoise')

    def no_step(self):
        """tfinject: TFI_SCHEDULE"""
        return self.play('push=a pop', {'TFI_SCHEDULE': 'wait=1'}).err

    def filter(self):
        """tfanalyze: nothing matches --stage"""
        return self.ask('stages', self.recorded(), '--stage', 'denoise', rc=1)

    # ---- incomplete ----

    def running(self):
        """tfanalyze: FILE: its process is still running"""
        return self.run([self.script, 'push=a', f'system={self.tfanalyze} stages {self.place}/run', 'pop']).err

    def killed(self):
        """tfanalyze: FILE: its process was killed;"""
        return self.ask('stages', self.recorded('push=a pop kill'))

    def killed_at_the_start(self):
        """tfanalyze: FILE: its process was killed before"""
        directory = self.recorded()
        (directory / 'early.tfr').write_bytes(scripted.only(scripted.traces(directory)).path.read_bytes()[:16])
        return self.ask('stages', directory)

    def no_live(self):
        """tfanalyze: FILE: its process ended"""
        directory = self.recorded('push=a pop kill')
        scripted.only(list(directory.glob('*.live'))).unlink()
        return self.ask('stages', directory, rc=3)

    def no_room(self):
        """tfinject: FILE.live"""
        return self.run(['bash', '-c', f'ulimit -f 1024; exec {self.script} push=a pop']).err

    def wrong_live_dir(self):
        """tfinject: TFI_LIVE_DIR=DIR"""
        return self.play('push=a pop', {'TFI_LIVE_DIR': '/proc/nowhere'}).err

    def cut(self):
        """tfanalyze: FILE: cut at byte"""
        trace = scripted.only(scripted.traces(self.recorded())).path
        os.truncate(trace, trace.stat().st_size - 10)
        return self.ask('stages', trace, rc=3)

    def full(self):
        """tfinject: FILE has reached TFI_MAX_MB"""
        marks = [f'mark={i:0200}' for i in range(8000)]
        return self.run([self.script, *marks, 'push=a', 'pop'], {'TFI_MAX_MB': '1'}).err

    # ---- variables ----

    def unknown(self):
        """tfinject: NAME is not a known"""
        return self.play('push=a pop', {'TFI_ACTIVITY': 'gpu'}).err

    def gone(self):
        """tfinject: NAME is gone"""
        return self.play('push=a pop', {'TFI_EVENT_KERNELS': '1'}).err

    def invalid(self):
        """tfinject: NAME is not valid"""
        return self.play('push=a pop', {'TFI_MAX_MB': 'much'}).err

    def other_plugin(self):
        """tfinject: TFI_NCCL_PLUGIN=1 has no effect"""
        rank = [built(BUILD / 'victims_gpu/nccl_ranks'), 0, 1, self.place / 'id', 'once']
        return self.run(rank, {'LD_LIBRARY_PATH': BUILD / 'simgpu', 'TFI_NCCL_PLUGIN': '1', 'NCCL_PROFILER_PLUGIN': '/opt/mine.so'}).err


CAUSES = {method.__doc__: method for method in vars(Causes).values() if getattr(method, '__doc__', None) and method.__doc__.startswith(SPEAKERS)}


def test_every_cause_is_explained():
    assert not [begins for begins in CAUSES if not any(q.startswith(begins) for q in quotes())]


@pytest.mark.parametrize('quote', list(quotes()))
def test_the_message_is_printed_as_it_is_quoted(run, analyze, victim, tfanalyze, tmp_path, quote):
    cause, = [method for begins, method in CAUSES.items() if quote.startswith(begins)]
    said = cause(Causes(run, analyze, victim, tfanalyze, tmp_path))
    pattern = '.+?'.join(re.escape(part) for part in VALUES.split(quote))
    assert any(re.match(pattern, line) for line in said.splitlines()), (quote, said)

"""random_settings - random values, right and wrong, for every variable of include/env.def, and what a program does with them.

A draw is a function of its seed. It says which values are wrong; each has one line on stderr, and nothing else changes.
"""

import random
import re
import signal

from conftest import CLOSING, ROOT, SOAK_SEED
from test_troubleshooting import VALUES, quotes

DEF = (ROOT / 'include' / 'env.def').read_text()
ROWS = re.findall(r'^ENV\((\w+), (\w+), \w+, "[^"]*", "[^"]*",\s*"([^"]*)"', DEF, re.M)
WORDS = {kind: re.findall(rf'^{kind}\(\w+, "(\w+)"', DEF, re.M) for kind in ('ACTIVITY', 'IO_CLASS', 'LEVEL', 'GRAPHS', 'MODES')}
RANGES = {kind: (int(least), int(most)) for kind, least, most in re.findall(r'^RANGE\((\w+), (\d+), (\d+)\)', DEF, re.M)}
STAGES = ['ProfilerStep#*', 'step', 'dit*', '*', 'no such stage', 'forward', 'Ünïcode', 'a' * 300, 'with space']
FUNCTIONS = ['auto', 'json:dumps', '__main__:main', '__main__:run', '__main__:Digits.__getitem__', 'torch.nn.functional:linear', 'torch:add',
             'torch.nn:Linear.forward', 'os.path:join', 'no.module:f', 'json:nothing', 'collections:OrderedDict', 'threading:Thread.run', 'x']
WRONG = {'NUMBER': ['0', '-1', '', 'abc', '1048577', '1e3', ' 5', '99999999999999999999'], 'COUNT': ['-1', '', '0x10', '1048577'], 'RATE': ['1001', '-1', '0.5', ''],
         'SWITCH': ['', '2', 'yes', '01'], 'FLAG': ['', 'maybe', '2'], 'WORDS': ['cpu,dog', 'CPU', 'all'], 'LEVEL': ['', 'loud', 'WARN'],
         'GRAPHS': ['', 'nodes'], 'MODES': ['', 'fly'], 'SCHEDULE': ['active=0', 'wait=x', 'often=1', 'wait=-1'], 'CAPTURE': ['later', 'delay=', 'duration=x', 'delay=1;duration=2'],
         'FILES': ['relative', '+dog', '+', '/a,b'], 'TRIGGER': ['signal:0', 'signal:9', 'signal:99', 'signal:', 'file', 'x']}
LONG = 'x' * 20000  # the library keeps no text of this length
TELEFUSER = r'\[.*\].*|.*\bms\b.*'  # its lines have no prefix


class Draw:
    """One set of variables; .environment, and .wrong, {name: value} of those that are not valid."""

    def __init__(self, seed, place, signals=(signal.SIGUSR2, signal.SIGRTMIN + 3, signal.SIGWINCH)):
        self.random, self.place, self.signals, self.wrong = random.Random(f'settings {seed}'), place, signals, {}
        density = self.random.choice([0.1, 0.3, 0.6, 1])
        self.environment = {}
        for kind, name, aliases in ROWS:
            if self.random.random() < density:
                self.set(kind, name, [a for a in aliases.split(',') if a])
        if self.random.random() < 0.1:
            self.environment['TFI_' + self.random.choice(['STAGE', 'SOMETHING', 'X' * 200])] = '1'
        self.environment.setdefault('TFI_OUTPUT_DIR', None)  # the test's own directory is no default

    def set(self, kind, name, aliases):
        wrong = kind in WRONG and self.random.random() < 0.15
        value = self.random.choice(WRONG[kind]) if wrong else getattr(self, kind.lower())(name)
        if wrong or value is LONG:
            self.wrong[name] = value
        self.environment[self.random.choice([name, name, *aliases])] = value

    # ---- right values, by type ----

    def some(self, things, most=3):
        return ','.join(self.random.choices(things, k=self.random.randint(0, most)))

    def text(self, name):
        return {'TFI_NVTX_DOMAINS': lambda: self.some(['NCCL', '+NCCL', '-torch', 'a*', '-*', '']), 'TFI_STEP': lambda: self.some(STAGES),
                'TFI_METADATA': lambda: self.some(['a=1', 'k=v', 'novalue', '=', 'a="quo\\te', 'token=secret', 'ü=ß'])}.get(
                    name, lambda: self.random.choice(['p', 'a name', '../..', 'x/y', 'ünï', '%h', '', LONG]))()

    def path(self, name):
        if name == 'TFI_CUPTI_PATH':
            return self.random.choice(['/nowhere/libcupti.so', '/etc/passwd', '/', '', f'{self.place}/none'])
        if name == 'TFI_LIVE_DIR':
            (self.place / 'live').mkdir(exist_ok=True)
            return self.random.choice(['/dev/shm', f'{self.place}/live', '/proc/nowhere', '/etc/passwd', '', 'relative'])
        return self.random.choice([f'{self.place}/out', f'{self.place}/out', f'{self.place}/%h/deep/er', 'relative/out', '/proc/nowhere', '/etc/passwd/out', ''])

    def list(self, name):
        return self.some(FUNCTIONS, 5) if name == 'TFI_STAGES' else self.some(['math', 'torch._C', 'no.module', 'json'])

    def names(self, name):
        return self.random.choice(['', '*', self.some(STAGES), LONG])

    def number_of(self, kind, common):
        return str(self.random.choice([*common, *RANGES[kind], self.random.randint(*RANGES[kind])]))

    def number(self, name):
        return self.number_of('NUMBER', [1, 2, 10, 100])

    def count(self, name):
        if name == 'TFI_HANG_S':
            return self.random.choice(['0', '1', '2', '5', '100'])
        return self.number_of('COUNT', [0, 1, 2, 3, 64])

    def rate(self, name):
        return self.number_of('RATE', [0, 1, 20, 50, 100])

    def switch(self, name):
        return self.random.choice('01')

    def flag(self, name):
        return self.random.choice(['0', '1', 'true', 'False', 'on', 'OFF', 'yes', 'unset'])

    def words(self, name):
        return ','.join(self.random.sample(WORDS['ACTIVITY'], self.random.randint(0, len(WORDS['ACTIVITY']))))

    def level(self, name):
        return self.random.choice(WORDS['LEVEL'])

    def graphs(self, name):
        return self.random.choice(WORDS['GRAPHS'])

    def modes(self, name):
        return self.random.choice(WORDS['MODES'])

    def files(self, name):
        return self.some(['/', '/etc', '-/usr', f'{self.place}', '-/dev', *('+' + word for word in WORDS['IO_CLASS'])], 5)

    def schedule(self, name):
        return ','.join(f'{part}={self.random.randint(1, 3)}' for part in self.random.sample(['skip_first', 'wait', 'warmup', 'active', 'repeat'], self.random.randint(1, 5)))

    def capture(self, name):
        return ','.join(self.random.sample(['cudaProfilerApi', 'delay=0.05', 'duration=0.1', 'delay=1'], self.random.randint(1, 2)))

    def trigger(self, name):
        (self.place / 'trigger').write_text(self.random.choice(['on', 'off', '+io -ops', 'nonsense', '']))
        return self.random.choice([f'signal:{int(self.random.choice(self.signals))}', f'file:{self.place}/trigger', 'file:/nowhere', f'file:{self.place}'])


def known_lines():
    """Patterns of the lines that the help quotes; the reason in parentheses may be another one."""
    for quote in quotes():
        if quote.startswith('tfinject: '):
            yield re.sub(r'\\\(.*?\\\)', r'\(.*\)', VALUES.sub('\0', re.escape(quote)).replace('\0', '.*').replace('\\ ', ' '))


KNOWN = list(known_lines())
ABOUT_A_VARIABLE = re.compile(r'tfinject: ((?:TFI|ENABLE|TELEFUSER|CACHE_DIT|PROFILER)_\w+)\b')
SEEDS = [str(number) if number < 2 else f'{SOAK_SEED}-{number}' for number in range(300)]
known_ends = {}
SIMULATORS = 'simgpu: ', 'simcupti: ', 'simnccl: ', 'simnvml: '  # one line of each that is used


def is_expected(line, environment):
    """A line of ours is known from the help, is about a variable that is set, or was asked for with TFI_LOG."""
    about = ABOUT_A_VARIABLE.match(line)
    trigger = environment.get('TFI_TRIGGER') or ''
    return environment.get('TFI_LOG') in ('info', 'debug') or line.startswith(f'tfinject: {trigger[5:]}: `') or any(re.match(pattern, line) for pattern in KNOWN) \
        or about and (environment.get(about[1]) is not None or 'is not a known variable' in line)


def own_lines(err, environment):
    """The program's own lines on stderr; fails for one of ours that is not expected."""
    rest = []
    for line in CLOSING.sub('', err).splitlines():
        if line.startswith('tfinject: '):
            assert is_expected(line, environment), line
        elif not line.startswith(SIMULATORS) and not ('TELEFUSER_PROFILE_DEBUG' in environment and re.fullmatch(TELEFUSER, line)):
            rest.append(line)
    return sorted(rest)


def alone(run, command, env, place):
    """The command's end without the library; each command runs so once."""
    if (key := tuple(str(word).replace(str(place), '') for word in command)) not in known_ends:
        (place / 'bare').mkdir()
        known_ends[key] = run(command, env, preload=False, cwd=place / 'bare', timeout=300)
    return known_ends[key]


def check(run, analyze, seed, place, command, env, preload=True, tidy=str, **options):
    """Runs the command with a draw of variables; it does what it does without the library, and its trace can be read."""
    bare = alone(run, command, env, place)
    one = place / 'one'
    (one / 'work').mkdir(parents=True)
    draw = Draw(seed, one, **options)
    context = seed, [str(word) for word in command], {name: value and value[:300] for name, value in draw.environment.items()}
    result = run(command, {**env, **draw.environment}, preload=preload, cwd=one / 'work', timeout=300)
    ends = [(of.rc, tidy(of.out)) for of in (result, bare)]
    assert ends[0] == ends[1], (ends, context, result.err[-1000:])
    lines = [own_lines(result.err, draw.environment), own_lines(bare.err, {})]
    assert lines[0] == lines[1], (lines, context)
    found = sorted(one.rglob('*.tfr'))
    if found:
        shown = analyze('info', *found, rc=None)
        assert len(shown['rows']) >= len(found), context
    for name, value in draw.wrong.items():
        assert result.err.count(f'tfinject: {name}={value[:20]}') <= 1, context


def chosen(seed, things):
    return random.Random(f'things {seed}').choice(things)

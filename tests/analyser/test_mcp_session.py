"""test_mcp_session - an agent over `tfanalyze mcp` comes from budget and advise to a planted fault, in few characters.

The agent is a script that knows `tfanalyze help agents` alone: it asks budget, advise, and two commands that the evidence of
advise names, with the options that it names.
"""

import json
import os
import random
import re

import pytest

import test_mcp
from conftest import built, short_form
from mcp_client import Server, call, message, texts
from pipelines import planted

MOST = 20000  # characters of all answers
FAULTS = {  # planted fault: what the answers must name of it
    'slow-batch': r'DataLoaderIter\.__next__ +0 ', 'python-loop': r'aten::(is_nonzero|item|_local_scalar_dense)', 'float64': 'operator aten::addmm', 'blocked-loop': r'faults\.py.*blocked_loop|blocked_loop.*faults\.py',
}


def next_questions(advice):
    """The commands of the evidence, without those that were asked, and their options as properties of a call."""
    found = dict.fromkeys(re.findall(r'tfanalyze ([a-z-]+)((?: --[a-z-]+ [\w,=]+)*)', advice))
    for command, options in found:
        if command not in ('budget', 'advise'):
            words = options.split()
            yield command, {word[2:]: value for word, value in zip(words[::2], words[1::2])}


@pytest.mark.slow
@pytest.mark.torch
@short_form(1, 'fault', FAULTS)
def test_a_session_leads_to_the_fault(tfanalyze, lib, python, tmp_path, fault):
    result, run = planted.record(python, lib, [planted.program('faults'), fault, 'bad'], tmp_path, planted.ON_CPU[fault])
    assert result.rc == 0, result.err
    with Server(tfanalyze, run) as server:
        server.send(message('initialize', 1, protocolVersion='2025-11-25'))
        page = server.receive()['result']['instructions']
        assert 'tfanalyze budget RUN\n    tfanalyze advise RUN' in page
        answers = [server.ask('budget'), server.ask('advise')]
        assert re.match(r'(.*\n)*?' + fault + r'\n', texts(answers[1])[0])
        questions = list(next_questions(texts(answers[1])[0]))[:2]
        own = [tool for tool in test_mcp.OWN if tool in dict(questions)]
        answers += [server.ask(command, **options) if command in own else server.ask('ask', command=command, **options) for command, options in questions]
    assert len(answers) == 4 and not any(answer['isError'] for answer in answers)
    said = '\n'.join(text for answer in answers for text in texts(answer))
    assert len(said) <= MOST and re.search(FAULTS[fault], said), said


# ---- mutated messages ----

PIECES = [b'"', b'\\u0000', b'\\ud800', b'[', b']', b'{', b'}', b',', b'null', b'-1', b'1e308', b'..', b'/', b'--output=x', b'rank=0:', b'%s%n', b'\xff\xfe',
          b'"input":', b'"command":"dump",', b'"ncu plan"', b'9' * 30, b'A' * 9000, b'true', b'link', b'../secret']


def seeds():
    good = [message('initialize', 1, protocolVersion='2025-03-26'), message('ping', 2), message('tools/list', 3), call(4, 'stages', top=2, stage=['f*'], input=['run']),
            call(5, 'ask', command='help', topic='terms'), call(6, 'ask', command='critical-path', nodes=True, **{'from': 0.1}), call(7, 'ask', command='stragglers', topology='run/rank0.json'),
            call(8, 'advise', **{'graph-capture': ['run/rank0.json']}), call(9, 'ops', offset=3, format='json'), [message('ping', 1), call(2, 'budget')],
            message('notifications/cancelled', requestId=4), call(10, 'ask', command='diff', gate=5, input=['run'], against=['run']),
            call(11, 'stages', input=['../secret', 'rank=0:secret', 'link/rank0.json'])]
    return [json.dumps(m).encode() for m in good] + [line for line, _, _ in test_mcp.BAD if len(line) < 2000]


def mutated(rng, line, others):
    line = bytearray(line)
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        at = rng.randrange(len(line) + 1)
        how = rng.randrange(5)
        if how == 0 and line:
            line[at % len(line)] = rng.randrange(256)
        elif how == 1:
            line[at:at] = rng.choice(PIECES)
        elif how == 2:
            del line[at:at + rng.randrange(1, 20)]
        elif how == 3:
            other, begin = rng.choice(others), rng.randrange(40)
            line[at:at] = other[begin:begin + rng.randrange(40)]
        else:
            line[at:at] = bytes(line[at:at + 30]) * rng.randrange(1, 5)
    return bytes(line).replace(b'\n', b' ')


@pytest.mark.soak
@pytest.mark.sanitized
def test_mutated_messages(tfanalyze_asan, tmp_path):
    """No message ends the server or a question, reads what lies outside, or writes a file; each answer is JSON."""
    run = test_mcp.trace(tmp_path / 'run')
    (run / 'link').symlink_to(test_mcp.trace(tmp_path / 'secret', name='SECRET_NAME'))
    before, lines = sorted(tmp_path.rglob('*')), seeds()
    rng = random.Random(int(os.environ.get('SOAK_SEED', '1')))
    for _ in range(200):
        with Server(built(tfanalyze_asan), 'run', cwd=tmp_path) as server:
            out, err = server.process.communicate(b'\n'.join(mutated(rng, rng.choice(lines), lines) for _ in range(60)))
        assert (server.process.returncode, err) == (0, b'')
        assert b'Sanitizer' not in out and b'SECRET_NAME' not in out and b'ended the question' not in out
        assert all(json.loads(line) for line in out.splitlines())
    assert sorted(tmp_path.rglob('*')) == before

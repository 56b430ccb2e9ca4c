"""test_foreign_servers - servers of others under load: the same answers with the library and without, and no line but the last.

`make soak` gets gunicorn, uvicorn, gevent and ray from PyPI and redis from the distribution's packages, into build/servers.
"""

import concurrent.futures
import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import scripted
from conftest import BUILD, CLOSING, COMMAND_TIMEOUT, clean_environment
from test_python import calls

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
SERVERS = BUILD / 'servers'
WHEELS = 'gunicorn==27.0.1 uvicorn==0.54.0 gevent==26.9.0 numpy==2.4.6 ray==2.60.0'.split()
DEBS = 'redis-server redis-tools liblzf1 liblua5.1-0 lua-bitop lua-cjson'.split()
REDIS = {'LD_LIBRARY_PATH': SERVERS / 'redis/usr/lib/x86_64-linux-gnu'}
REQUESTS, CLIENTS = 400, 8

APP = '''
import json, hashlib, os, threading
here = threading.local()
def answer(path):
    with open(__file__) as file:
        text = file.read()
    return json.dumps([path, hashlib.sha256((path + text).encode()).hexdigest()]).encode()
def app(environ, start_response):
    body = answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
async def asgi(scope, receive, send):
    if scope["type"] != "http":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": answer(scope["path"])})
'''


@pytest.fixture(scope='session')
def servers():
    """build/servers, with what it lacks."""
    if not (SERVERS / '.done').exists():
        subprocess.run([sys.executable, '-m', 'venv', SERVERS / 'venv'], check=True)
        subprocess.run([SERVERS / 'venv/bin/pip', '-q', '--disable-pip-version-check', 'install', *WHEELS], check=True)
        subprocess.run(['apt-get', '-q', 'download', *DEBS], cwd=SERVERS, check=True)
        for package in SERVERS.glob('*.deb'):
            subprocess.run(['dpkg', '-x', package, SERVERS / 'redis'], check=True)
        (SERVERS / '.done').touch()
    return SERVERS


@contextlib.contextmanager
def served(place, command, env, ready, preload):
    """Starts a server and waits for its line; yields what `ready` finds in it. Its end is in .rc, its lines in .err."""
    place.mkdir()
    (place / 'app.py').write_text(APP)
    full = {**clean_environment(), 'TFI_OUTPUT_DIR': place / 'run', **({'LD_PRELOAD': preload} if preload else {}), **env}
    server = SimpleNamespace(dir=place / 'run')
    with open(place / 'log', 'w') as log, subprocess.Popen(list(map(str, command)), cwd=place, env={k: str(v) for k, v in full.items()},
                                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True) as process:
        try:
            until = time.monotonic() + COMMAND_TIMEOUT
            while not (found := re.search(ready, (place / 'log').read_text())):
                assert process.poll() is None and time.monotonic() < until, (place / 'log').read_text()
                time.sleep(0.02)
            server.found = found.groups()
            yield server
            process.terminate()
            server.rc = process.wait(COMMAND_TIMEOUT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    server.err = CLOSING.sub('', (place / 'log').read_text())


def asked(port):
    """{path: answer} of the requests that some clients make at once, each over a connection of its own."""
    def client(number):
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=COMMAND_TIMEOUT)
        found = {}
        for i in range(number, REQUESTS, CLIENTS):
            connection.request('GET', f'/{i}')
            answer = connection.getresponse()
            found[f'/{i}'] = answer.status, answer.read()
        connection.close()
        return found
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        return {path: answer for found in pool.map(client, range(CLIENTS)) for path, answer in found.items()}


GUNICORN = ['-m', 'gunicorn', '-w', '2', '-b', '127.0.0.1:0', '--keep-alive', '30']
LISTENS = r'(?:Listening at|running on):? http://127\.0\.0\.1:(\d+)'
KINDS = {
    'gunicorn sync': [*GUNICORN, '-k', 'sync', 'app:app'], 'gunicorn gthread': [*GUNICORN, '-k', 'gthread', '--threads', '4', 'app:app'],
    'gunicorn gevent': [*GUNICORN, '-k', 'gevent', 'app:app'], 'gunicorn uvicorn': [*GUNICORN, '-k', 'uvicorn.workers.UvicornWorker', 'app:asgi'],
    'uvicorn': ['-m', 'uvicorn', 'app:asgi', '--port', '0'],
}


@pytest.mark.parametrize('kind', KINDS)
def test_web_servers(lib, servers, tmp_path, kind):
    """Each request is a call of a function that is a stage; pre-forked workers, threads, greenlets and tasks make it."""
    environment = {'TFI_STAGES': 'app:answer', 'TFI_ACTIVITIES': 'cpu,gpu,mem,nccl,ops,io,stack'}
    ends = []
    for preload in (None, lib):
        with served(tmp_path / str(bool(preload)), [servers / 'venv/bin/python', *KINDS[kind]], environment, LISTENS, preload) as server:
            server.answers = asked(int(server.found[0]))
        ends.append(server)
    bare, watched = ends
    assert len(bare.answers) == REQUESTS and {status for status, _ in bare.answers.values()} == {200}
    assert {k: v[1].replace(b'x', b'') for k, v in watched.answers.items()} == {k: v[1].replace(b'x', b'') for k, v in bare.answers.items()}
    assert watched.rc == bare.rc and len(watched.err.splitlines()) == len(bare.err.splitlines()), watched.err
    assert 'tfinject' not in watched.err
    assert calls(watched)['answer'] == REQUESTS


@pytest.mark.parametrize('activities', ['io', 'cpu,gpu,mem,nccl,ops,io,stack'])
def test_redis_under_load(lib, servers, tmp_path, activities):
    """A server with jemalloc and threads of its own, its blocks recorded too, as it saves its data in a child."""
    ours = f'{lib.with_name("libtfinject-alloc.so")} {lib}'
    tools, counts = servers / 'redis/usr/bin', []

    def ask(socket, *words):
        return subprocess.run([tools / 'redis-cli', '-s', socket, *words], env={**clean_environment(), **{k: str(v) for k, v in REDIS.items()}},
                              capture_output=True, text=True, check=True).stdout
    for preload in (None, ours):
        place = tmp_path / str(bool(preload))
        command = [tools / 'redis-server', '--port', '0', '--unixsocket', 's', '--save', '1 1', '--appendonly', 'yes', '--io-threads', '2']
        environment = {**REDIS, 'TFI_ACTIVITIES': activities, 'TFI_HOST_ALLOC_KB': '1'}
        with served(place, command, environment, 'ready to accept connections (unix)|The server is now ready', preload) as server:
            socket = place / 's'
            done = subprocess.run([tools / 'redis-benchmark', '-s', socket, '-n', '10000', '-r', '1000', '-q', '-t', 'set,get,incr,lpush,lrange_100,mset'],
                                  env={**clean_environment(), **{k: str(v) for k, v in REDIS.items()}}, capture_output=True, text=True, check=True)
            assert 'rror' not in done.stdout + done.stderr
            ask(socket, 'bgrewriteaof'), ask(socket, 'set', 'last', 'one')
            counts.append([ask(socket, 'llen', 'mylist'), ask(socket, 'get', 'last'), re.findall(r'^(?:errorstat.*|rdb_last_bgsave_status:.*)', ask(socket, 'info', 'all'), re.M)])
        assert server.rc == 0 and 'tfinject' not in server.err, server.err
    assert counts[0] == counts[1]
    assert sum(len(trace.records) for trace in scripted.traces(server.dir)) > 1000


RAY = '''
import ray, os, numpy, logging
ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=True)
@ray.remote
def square(x):
    return x * x
def helper(x):
    return x + 1
@ray.remote
class Counter:
    def __init__(self):
        self.n = 0
    def add(self, x):
        self.n += helper(x)
        return self.n
counter = Counter.remote()
print(ray.get([square.remote(i) for i in range(50)]))
print(ray.get([counter.add.remote(i) for i in range(20)])[-1])
block = ray.put(numpy.arange(100000))
print(ray.get(square.remote(block)).sum())
@ray.remote(max_retries=0)
def fails():
    raise ValueError("failed")
try:
    ray.get(fails.remote())
except ValueError as error:
    print(type(error).__name__)
ray.shutdown()
'''


def test_ray(run, servers, tmp_path):
    """Tasks and actors get functions by value, in workers that other processes start."""
    (tmp_path / 'script.py').write_text(RAY)
    environment = {'TFI_STAGES': '__main__:helper,__main__:square,__main__:Counter.add', 'TFI_ACTIVITIES': 'cpu,gpu,mem,nccl,ops,io',
                   'RAY_TMPDIR': '/tmp/ray-of-tfinject', 'RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO': '0', 'RAY_DEDUP_LOGS': '0', 'RAY_USAGE_STATS_ENABLED': '0'}
    bare, watched = (run([servers / 'venv/bin/python', 'script.py'], environment, preload=preload, timeout=400) for preload in (False, True))
    assert bare.rc == 0 and (watched.rc, watched.out) == (0, bare.out), watched.err
    assert 'tfinject' not in watched.err and len(watched.err.splitlines()) == len(bare.err.splitlines()), watched.err
    found = calls(watched)
    assert found['helper'] == 20 and found['square'] == 51, found

"""mcp_client - a server of `tfanalyze mcp` as tests drive it: a message a line, in whatever form the test gives it."""

import json
import subprocess

from conftest import clean_environment


def message(method, number=None, **params):
    return {'jsonrpc': '2.0', **({} if number is None else {'id': number}), 'method': method, 'params': params}


def call(number, tool, **arguments):
    return message('tools/call', number, name=tool, arguments=arguments)


class Server:
    """A running server; `with Server(tfanalyze, directory, ...) as server`. It is killed at the end of the block."""

    def __init__(self, program, *directories, cwd=None, env=None):
        self.process = subprocess.Popen([program, 'mcp', *directories], cwd=cwd, env={**clean_environment(), **(env or {})},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def send(self, *messages):
        """Sends all of them in one write, which the server reads at once if it is short."""
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        self.process.stdin.write(b''.join(line + b'\n' for line in lines))
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, tool, **arguments):
        """The result of a call, the only one that is not answered."""
        self.send(call('a', tool, **arguments))
        answer = self.receive()
        assert answer['id'] == 'a' and answer['jsonrpc'] == '2.0', answer
        return answer['result']

    def end(self):
        """Ends the input; returns what is still answered, the status and stderr."""
        out, err = self.process.communicate()
        return [json.loads(line) for line in out.splitlines()], self.process.returncode, err.decode()


def texts(result):
    return [part['text'] for part in result['content']]

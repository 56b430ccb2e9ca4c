"""packages - programs that use a public package whose release had a fault of speed: packages.py NAME.

Each has work of its own besides, in native code, so that little is left of the finding once the package is mended. Prints
the seconds of all.
"""

import hashlib
import io
import sys
import time
import zlib


def work(mib):
    block = bytes(1 << 20)
    for _ in range(mib):
        zlib.compress(block, 1)
        hashlib.sha256(block).digest()


def werkzeug():
    """A part without a line feed: each piece of it made the parser search all that it held."""
    from werkzeug.formparser import MultiPartParser
    head = b'--bound\r\nContent-Disposition: form-data; name="f"; filename="f.bin"\r\nContent-Type: application/octet-stream\r\n\r\n'
    body = head + b'\r' + b'a' * (10 << 20) + b'x\r\n--bound--\r\n'
    work(600)
    MultiPartParser().parse(io.BytesIO(body), b'bound', len(body))


def psutil():
    """Each process that was listed before was looked up again, by a file of /proc."""
    import psutil as ps
    for _ in range(200):
        for _ in ps.process_iter():
            pass
        work(2)


def dateutil():
    """A time zone was read from its file for each call."""
    from dateutil import tz
    for i in range(30_000):
        tz.gettz('Europe/Berlin')
        work(2 * (i % 75 == 0))


def docx():
    """The cells of a row were taken out of those of the whole table."""
    import docx as package
    table = package.Document().add_table(rows=70, cols=6)
    for row in table.rows:
        for cell in row.cells:
            cell.text
    work(300)


def networkx():
    """The search went through all edges, though it had found all nodes."""
    import networkx as nx
    graph = nx.complete_graph(1500)
    work(300)
    for _ in range(12):
        list(nx.connected_components(graph))


def torchmetrics():
    """The indexes of queries were read one by one, with .item()."""
    import torch
    from torchmetrics import RetrievalMAP
    torch.set_num_threads(1)
    torch.manual_seed(0)
    metric = RetrievalMAP()
    for _ in range(10):
        metric.update(torch.rand(10_000), torch.randint(0, 2, (10_000,)), indexes=torch.randint(0, 20, (10_000,)))
        work(20)
    metric.compute()


started = time.perf_counter()
globals()[sys.argv[1]]()
print(f'{time.perf_counter() - started:.4f}')

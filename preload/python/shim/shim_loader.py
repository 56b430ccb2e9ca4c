"""shim_loader.py - records the batches of torch's DataLoader: which one, when it was asked for, made and handed over.

Runs in the namespace of shim.py when torch.utils.data has been imported, and only does something if `io` is in
TFI_ACTIVITIES. The ranges are no stages, and their number is that of the batch in its epoch:

    DataLoader worker N                in a worker: from its index to the finished batch
    DataLoader batch of worker N pid P in the process of the loader: from the request to the hand-over
    DataLoader batch                   in a process that makes its batches itself: from the call to the batch

With the waits for batches, which libtorch names, they tell which batch was late. A range is recorded when it is over, and
its times are those of the counter when it began and ended: the thread may lose its processor before the record is made.
"""

import sys


def _batches_wanted():
    return _config["activities"] & _config["bits"]["io"]


def _stand_in(cls, name, function):
    """Puts `function` into the place of a method, and makes it look like that."""
    method = getattr(cls, name)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(function, attribute, getattr(method, attribute))
    function.__wrapped__ = method
    setattr(cls, name, function)


def _watch_workers(worker):
    """Records each batch that a worker makes. A worker's calls belong to stages of its parent, so that a selection of
    stages cannot be applied in the worker."""
    if not _batches_wanted():
        return
    fetchers = sys.modules["torch.utils.data._utils.fetch"]
    undecided = _guarded(_undecided)

    @_guarded
    def made(id, loop, begun, ended):
        number = loop.f_locals.get("idx")  # of torch's _worker_loop: a worker has the batch's number nowhere else
        _past("DataLoader worker %d" % id, 0, begun, ended, number if type(number) is int else None)

    def wrap(cls):
        fetch = cls.fetch

        def wrapper(self, possibly_batched_index):
            info = worker.get_worker_info()
            if info is None:
                return fetch(self, possibly_batched_index)
            undecided()
            begun = _ticks()
            try:
                batch = fetch(self, possibly_batched_index)
            except BaseException as error:
                _hide(error)
                if not isinstance(error, StopIteration):  # a failed batch arrives as well; the end of the data does not
                    made(info.id, _frame(), begun, _ticks())
                raise
            made(info.id, _frame(), begun, _ticks())
            return batch
        _stand_in(cls, "fetch", wrapper)
    wrap(fetchers._MapDatasetFetcher)
    wrap(fetchers._IterableDatasetFetcher)


def _watch_loaders(dataloader):
    """Records each batch that a loader hands over."""
    if not _batches_wanted():
        return
    _watch_workers_loader(dataloader._MultiProcessingDataLoaderIter)
    _watch_own_loader(dataloader._SingleProcessDataLoaderIter)


def _watch_workers_loader(cls):
    requests = _Weak()  # by iterator: {number of the batch: (worker, when)}, in the order of the requests

    @_guarded
    def requested(loader, number, when):
        known = requests.get(loader)
        if known is None:
            known = {}
            requests.set(loader, known)
        if not number:
            known.clear()  # another epoch of persistent workers
        if loader._send_idx > number:
            known[number] = loader._task_info[number][0], when

    @_guarded
    def handed(loader, worker):
        """torch does not say which batch it hands over: it is the one that its list of tasks has just lost."""
        known = requests.get(loader, {})
        for number, (of, when) in known.items():
            if number not in loader._task_info and worker in (of, None):
                del known[number]
                _past("DataLoader batch of worker %d pid %d" % (of, loader._workers[of].pid), 0, when, _ticks(), number)
                return

    request, process = cls._try_put_index, cls._process_data

    def _try_put_index(self):
        number, when = self._send_idx, _ticks()
        try:
            result = request(self)
        except BaseException as error:
            _hide(error)
            raise
        requested(self, number, when)
        return result

    def _process_data(self, data, *worker):  # torch before 2.6 does not give the worker
        handed(self, *worker or (None,))
        try:
            return process(self, data, *worker)
        except BaseException as error:
            _hide(error)
            raise
    _stand_in(cls, "_try_put_index", _try_put_index)
    _stand_in(cls, "_process_data", _process_data)


def _watch_own_loader(cls):
    next_data = cls._next_data

    @_guarded
    def made(loader, begun, ended):
        _past("DataLoader batch", 0, begun, ended, loader._num_yielded)

    def _next_data(self):
        begun = _ticks()
        try:
            batch = next_data(self)
        except BaseException as error:
            _hide(error)
            raise
        made(self, begun, _ticks())
        return batch
    _stand_in(cls, "_next_data", _next_data)

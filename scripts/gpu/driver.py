"""driver - programs on the CUDA driver alone, in Python without torch, which gpu-check runs plain and under the library.

    driver.py threads|soak|kinds|noise|hurry|end CASE

Each prints one line of JSON with the work that it gave the device. Kernels are PTX text: `tiny` and `tiny_too` do nothing,
`spin` runs for a given number of nanoseconds. On a simulated GPU, SIMGPU_SCRIPT sets their durations.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time

PTX = b'''
.version 6.0
.target sm_50
.address_size 64
.visible .entry tiny(.param .u64 n) { ret; }
.visible .entry tiny_too(.param .u64 n) { ret; }
.visible .entry spin(.param .u64 n) {
 .reg .pred %p<2>; .reg .b64 %a<5>;
 ld.param.u64 %a1, [n]; mov.u64 %a2, %globaltimer;
NEXT: mov.u64 %a3, %globaltimer; sub.u64 %a4, %a3, %a2; setp.lt.u64 %p1, %a4, %a1; @%p1 bra NEXT;
 ret;
}
'''
GLOBAL, NON_BLOCKING = 0, 1
FORKED, FROM_THREAD, AT_ONCE, FAILED = 7, 5, 6, 9  # exit codes of the ways to end
BEFORE = 100  # kernels that end() completes before the end
THREADS, LAUNCHES = 16, 200
NODES, SOAK_NODES = 500, 26_000_000


class Driver:
    """Calls the functions of libcuda.so.1 and checks each result; a kernel takes one number."""

    def __init__(self):
        self.library = ctypes.CDLL('libcuda.so.1')
        device, module = ctypes.c_int(), ctypes.c_void_p()
        self.context = ctypes.c_void_p()
        self('cuInit', 0)
        self('cuDeviceGet', ctypes.byref(device), 0)
        self('cuDevicePrimaryCtxRetain', ctypes.byref(self.context), device)
        self.here()
        self('cuModuleLoadData', ctypes.byref(module), PTX)
        self.kernels = {}
        for name in ('tiny', 'tiny_too', 'spin'):
            self.kernels[name] = ctypes.c_void_p()
            self('cuModuleGetFunction', ctypes.byref(self.kernels[name]), module, name.encode())

    def __call__(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            raise RuntimeError(f'{name}: error {result}')

    def here(self):
        self('cuCtxSetCurrent', self.context)

    def stream(self):
        stream = ctypes.c_void_p()
        self('cuStreamCreate', ctypes.byref(stream), NON_BLOCKING)
        return stream

    def launch(self, kernel, stream, number=0):
        value = ctypes.c_uint64(number)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        self('cuLaunchKernel', self.kernels[kernel], 1, 1, 1, 32, 1, 1, 0, stream, parameters, None)

    def synchronize(self, stream):
        self('cuStreamSynchronize', stream)

    def memory(self, size):
        address = ctypes.c_uint64()
        self('cuMemAlloc_v2', ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def graph(self, stream, kernels):
        """Makes an executable graph that launches these kernels in a row."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self('cuStreamBeginCapture_v2', stream, GLOBAL)
        for kernel in kernels:
            self.launch(kernel, stream)
        self('cuStreamEndCapture', stream, ctypes.byref(graph))
        self('cuGraphInstantiateWithFlags', ctypes.byref(ready), graph, ctypes.c_uint64(0))
        self('cuGraphDestroy', graph)
        return ready


def own_threads():
    """Returns {tid: name} of this process."""
    names = {}
    for tid in os.listdir('/proc/self/task'):
        with open(f'/proc/self/task/{tid}/comm') as file:
            names[tid] = file.read().strip()
    return names


def threads():
    """Runs threads, each with its own stream and its own number of kernels."""
    driver, asked, failed = Driver(), {}, []

    def work(number):
        try:
            driver.here()
            stream = driver.stream()
            for _ in range(LAUNCHES + number):
                driver.launch('tiny', stream)
            driver.synchronize(stream)
            asked[threading.get_native_id()] = LAUNCHES + number
        except RuntimeError as error:
            failed.append(str(error))
    all_of_them = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    if failed:
        raise RuntimeError('; '.join(failed))
    return {'asked_for': asked}


# ---- soak ----

def cpu_by_thread():
    """Returns the CPU seconds of each thread: [tid, name, seconds]."""
    out, tick = [], os.sysconf('SC_CLK_TCK')
    for tid in os.listdir('/proc/self/task'):
        try:
            with open(f'/proc/self/task/{tid}/stat') as file:
                name, _, rest = file.read().partition('(')[2].rpartition(')')
        except OSError:
            continue
        fields = rest.split()
        out.append([int(tid), name, (int(fields[11]) + int(fields[12])) / tick])
    return out


def memory_now(driver):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver('cuMemGetInfo_v2', ctypes.byref(free), ctypes.byref(total))
    with open('/proc/self/statm') as file:
        resident = int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
    return total.value - free.value, resident


def soak():
    """Replays a graph until SOAK_NODES nodes ran or SOAK_SECONDS passed; prints the cost in a line each second."""
    driver = Driver()
    stream = driver.stream()
    ready = driver.graph(stream, ['tiny'] * NODES)
    begin, limit = time.monotonic(), float(os.environ['SOAK_SECONDS'])
    most, nodes, said = int(os.environ.get('SOAK_NODES', SOAK_NODES)), 0, 0
    while nodes < most and time.monotonic() - begin < limit:
        for _ in range(20):
            driver('cuGraphLaunch', ready, stream)
        driver.synchronize(stream)
        nodes += 20 * NODES
        if time.monotonic() - begin >= said:
            said += 1
            device, resident = memory_now(driver)
            print(json.dumps({'seconds': round(time.monotonic() - begin, 2), 'nodes': nodes, 'device_bytes': device,
                              'resident_bytes': resident, 'cpu': cpu_by_thread()}), flush=True)
    device, resident = memory_now(driver)
    return {'nodes': nodes, 'seconds': time.monotonic() - begin, 'device_bytes': device, 'resident_bytes': resident,
            'main': os.getpid(), 'cpu': cpu_by_thread()}


# ---- one of each kind of work ----

def kinds():
    """Makes kernels, copies in each direction, sets, pool memory, a graph, events and waits; then waits for their records."""
    driver, size = Driver(), 1 << 16
    stream, host, event = driver.stream(), ctypes.create_string_buffer(size), ctypes.c_void_p()
    a, b = driver.memory(size), driver.memory(size)
    driver('cuEventCreate', ctypes.byref(event), 0)
    driver('cuMemcpyHtoDAsync_v2', a, host, ctypes.c_size_t(size), stream)
    driver('cuMemcpyDtoDAsync_v2', b, a, ctypes.c_size_t(size), stream)
    driver('cuMemcpyDtoHAsync_v2', host, b, ctypes.c_size_t(size), stream)
    driver('cuMemsetD32Async', a, 1, ctypes.c_size_t(size // 4), stream)
    for kernel in ('tiny', 'tiny_too'):
        driver.launch(kernel, stream)
    driver.launch('spin', stream, 1_000_000)
    pooled = ctypes.c_uint64()
    driver('cuMemAllocAsync', ctypes.byref(pooled), ctypes.c_size_t(size), stream)
    driver('cuMemFreeAsync', pooled, stream)
    driver('cuEventRecord', event, stream)
    driver('cuStreamWaitEvent', driver.stream(), event, 0)
    driver('cuEventSynchronize', event)
    ready = driver.graph(stream, ['tiny', 'tiny_too'] * 5)
    for _ in range(3):
        driver('cuGraphLaunch', ready, stream)
    driver.synchronize(stream)
    driver('cuCtxSynchronize')
    time.sleep(0.5)
    return {'kernels': 3 + 30, 'copies': 3, 'sets': 1}


def noise():
    """Does all kinds of work for two seconds; the program's own threads are those that existed before the device."""
    before = own_threads()
    driver = Driver()
    stream = driver.stream()
    ready = driver.graph(stream, ['tiny'] * 10)
    for _ in range(20):
        driver.launch('tiny', stream)
        driver('cuGraphLaunch', ready, stream)
        driver.synchronize(stream)
        time.sleep(0.05)
    return {'own': before, 'all': own_threads(), 'kernels': 20 * 11}


def hurry():
    """Launches without pause until the process is killed."""
    driver = Driver()
    stream = driver.stream()
    while True:
        driver.launch('tiny', stream)


# ---- ends ----

def from_a_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


def child_that_exits():
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).exit(FORKED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def captures(driver, stream):
    """Captures graphs in global mode, in which a forbidden call of any thread ends the capture with an error."""
    end, done = time.monotonic() + 1.0, 0
    while time.monotonic() < end:
        ready = driver.graph(stream, ['tiny'] * 50)
        driver('cuGraphLaunch', ready, stream)
        driver.synchronize(stream)
        driver('cuGraphExecDestroy', ready)
        done += 1
    return done


def end(case):
    """Ends the process after BEFORE completed kernels; `launched` counts the kernels that the trace must have. If the end
    gives the library no notice, the program first waits until the records are fetched."""
    driver = Driver()
    stream = driver.stream()
    for _ in range(BEFORE):
        driver.launch('tiny', stream)
    driver.synchronize(stream)
    if case in ('at-once', 'killed'):
        time.sleep(1)
    told = {'launched': BEFORE}
    if case == 'capture':
        told['launched'] += 50 * captures(driver, stream)
    elif case == 'fork':
        told['child'] = child_that_exits()
    print(json.dumps(told), flush=True)
    if case in ('mid-kernel', 'at-once', 'killed'):
        driver.launch('spin', stream, 300_000_000)
    if case == 'thread':
        from_a_thread(ctypes.CDLL(None).exit, FROM_THREAD)
    elif case == 'at-once':
        os._exit(AT_ONCE)
    elif case == 'killed':
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)


CASES = ('mid-kernel', 'thread', 'at-once', 'killed', 'fork', 'capture')


def main():
    try:
        told = end(sys.argv[2]) if sys.argv[1] == 'end' else \
            {'threads': threads, 'soak': soak, 'kinds': kinds, 'noise': noise, 'hurry': hurry}[sys.argv[1]]()
    except RuntimeError as error:
        print(json.dumps({'error': str(error)}), flush=True)
        return FAILED
    if told is not None:
        print(json.dumps(told), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())

"""stubs - libraries of CUDA without a device, so that PyPI's wheels of torch load where none of NVIDIA's packages is.

Each library that libtorch asks for and that is neither its own nor the C and C++ runtime's becomes one whose functions
return an error, whatever CUDA the machine has. The functions and their versions are those that the wheel's own libraries
ask for.
"""

import os
import re
import subprocess
from collections import defaultdict

NO_DEVICE = 100
RUNTIME = re.compile(r'(ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|z))\.so')
TEXTS = re.compile(r'(GetErrorString|GetErrorName|GetStatusString|GetLastError_str|getErrorString|getLastErrorString)$')


def _said(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def _asked(library):
    """Returns (names of the libraries it needs, [(function, version or '', library or '')])."""
    needed = re.findall(r'\(NEEDED\).*\[(.*)\]', _said('readelf', '-dW', library))
    owner = {}
    file = None
    for line in _said('readelf', '-VW', library).splitlines():
        found = re.search(r'File: (\S+)', line)
        if found:
            file = found.group(1)
        found = re.search(r'Name: (\S+) .*Flags:', line)
        if found and file:
            owner[found.group(1)] = file
    functions = [(name, version, owner.get(version, '')) for name, version in
                 re.findall(r' (?:GLOBAL|WEAK) +DEFAULT +UND ([^@\s]+)(?:@(\S+))?', _said('readelf', '--dyn-syms', '-W', library))]
    return needed, functions


def _source(functions):
    lines = ['static void *handle[64];', 'static const char text[] = "no CUDA-capable device is detected";']
    for name in sorted(functions):
        if name == 'cudaGetDeviceCount':
            lines.append(f'int {name}(int *n) {{ *n = 0; return {NO_DEVICE}; }}')
        elif name == '__cudaRegisterFatBinary':
            lines.append(f'void **{name}(void *p) {{ (void)p; return handle; }}')
        elif TEXTS.search(name):
            lines.append(f'const char *{name}(int e) {{ (void)e; return text; }}')
        else:
            code = NO_DEVICE if re.match('cu(da)?[A-Z]', name) and not name.startswith('cupti') else 0 if name.startswith('__') else 1
            lines.append(f'long {name}(void) {{ return {code}; }}')
    return '\n'.join(lines) + '\n'


def make(libraries, folder):
    """Writes the libraries that those of a wheel lack into a folder; returns their names."""
    os.makedirs(folder, exist_ok=True)
    own = {name for name in os.listdir(libraries) if '.so' in name}
    functions, missing, plain = defaultdict(lambda: defaultdict(set)), set(), set()
    for name in sorted(own):
        needed, asked = _asked(os.path.join(libraries, name))
        missing |= {soname for soname in needed if soname not in own and not RUNTIME.match(soname)}
        for function, version, owner in asked:
            if version:
                functions[owner][version].add(function)
            elif re.match(r'(__cuda|cu[A-Z]|cu[a-z]+[A-Z]|nccl|nvtx|nvrtc|nvshmem|nvJitLink|cudnn)', function):
                plain.add(function)
    for index, soname in enumerate(sorted(missing)):
        versions = functions.get(soname, {})
        names = set().union(*versions.values()) if versions else set()
        if index == 0:
            names = names | plain
        source, script, out = (os.path.join(folder, f'{soname}{end}') for end in ('.c', '.map', ''))
        with open(source, 'w') as f:
            f.write(_source(names))
        with open(script, 'w') as f:
            f.writelines(f'{version} {{ global: {" ".join(s + ";" for s in sorted(of))} }};\n' for version, of in versions.items())
        subprocess.run(['gcc', '-w', '-fno-builtin', '-shared', '-fPIC', '-nostdlib', f'-Wl,-soname,{soname}', '-o', out, source]
                       + ([f'-Wl,--version-script={script}'] if versions else []), check=True)
    return sorted(missing)

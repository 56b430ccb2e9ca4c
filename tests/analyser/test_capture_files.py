"""test_capture_files - traces of graph captures are found beside the traces of the replays, by the names and places of vLLM, SGLang and xDiT.

The pairs are made here: two graphs of two batch sizes, each with a launch. What is no capture must stay an input, and a list of
captures names no file to be opened.
"""

import gzip
import json
import shutil

import pytest

from growth_shapes import event, kineto
from test_graph_capture import Node, by_op, captured, counts, replayed

GRAPHS = [[Node(1, 'a'), Node(2, 'b')], [Node(3, 'c'), Node(4, '', 'gpu_memcpy'), Node(5, 'd')]]
OPERATORS = {f'op{i}': (1, i) for i in range(1, 6)}

# name of the replay's trace: names of the traces of the two captures
LAYOUTS = {
    'vllm': ('dp0_pp0_tp0_rank0.456.pt.trace.json.gz', 'capture_traces/graph_capture_rank_0.{}.pt.trace.json.gz'),
    'vllm-encoder': ('rank_0.456.pt.trace.json.gz', 'capture_traces/graph_capture_rank_0_encoder.{}.pt.trace.json.gz'),
    'sglang': ('1782841132.29-TP-0-DECODE.trace.json.gz', 'capture_traces/bs_{}_rank0.json.gz'),
    'sglang-folder': ('1782841132.29/1782841132.29-TP-0.trace.json.gz',
                      'capture_traces/DecodeCudaGraphRunner_bs_{}_dense_rank0.json.gz'),
    'sglang-beside': ('TP-0.trace.json.gz', 'EAGLEDraftCudaGraphRunner_bs_{}_rank0.json.gz'),
    'vllm-beside': ('rank_0.456.pt.trace.json.gz', 'graph_capture_rank_0.{}.pt.trace.json.gz'),
    'xdit': ('profile_trace_rank_0.json.gz', 'capture_traces/capture_trace_rank_0_{}.json.gz'),
    'xdit-split': ('split_traces/profile_trace_rank_0_annotation_iteration_0.json.gz', 'capture_traces/capture_rank_{}.json.gz'),
    'xdit-beside': ('profile_trace_rank_0.json.gz', 'capture_rank_{}.json.gz'),
}


def write(path, events, rank=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = kineto(path.parent, list(events), rank, world=9, name='plain.json')
    with open(plain, 'rb') as from_, gzip.open(path, 'wb') as to:
        shutil.copyfileobj(from_, to)
    plain.unlink()
    return path


def pair(folder, replay, captures, named=True, maker='hip'):
    """Writes the traces of a pair. Returns the one of the replays."""
    for i, graph in enumerate(GRAPHS):
        write(folder / captures.format(8 * 2 ** i), captured(graph, named=named, maker=maker), rank=i + 1)
    works = [e for i, graph in enumerate(GRAPHS)
             for e in replayed(graph, 1000 * i, i + 1, graph=0 if named else i + 5, maker=maker)]
    return write(folder / replay, works)


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('named', [True, False], ids=['rocm', 'cuda'])
def test_captures_are_found(analyze, tmp_path, layout, named):
    """The folder of the replay is asked. ROCm's captures are sure; those of CUDA have no names."""
    replay, captures = LAYOUTS[layout]
    main = pair(tmp_path, replay, captures, named, 'hip' if named else 'cuda')
    answer = analyze('breakdown', '--group-by', 'op', main.parent)
    assert by_op(answer) == OPERATORS
    assert counts(answer) == (5, 0, 0 if named else 5)
    assert [i['path'] for i in answer['inputs']] == [str(main)]


@pytest.mark.parametrize('command', ['timeline', 'info', 'breakdown'])
def test_a_capture_is_no_rank(analyze, tmp_path, command):
    """In a directory the trace of a capture is set aside by every command; that is said."""
    replay, captures = LAYOUTS['sglang-beside']
    main = pair(tmp_path, replay, captures)
    assert [i['path'] for i in analyze(command, tmp_path)['inputs']] == [str(main)]
    assert '2 traces of captures beside it are no inputs' in analyze(command, tmp_path, format=None).err


def test_captures_alone_are_inputs(analyze, tmp_path):
    """Who asks about the folder of the captures gets an answer, and a file that is named is an input."""
    replay, captures = LAYOUTS['vllm-beside']
    main = pair(tmp_path, replay, captures)
    main.unlink()
    assert len(analyze('info', tmp_path)['inputs']) == 2
    one = tmp_path / captures.format(8)
    assert [i['path'] for i in analyze('info', one)['inputs']] == [str(one)]


def test_a_list_of_captures(analyze, tmp_path):
    """The list names captures among the files of its folder. It opens none elsewhere, and its other entries are parts."""
    outside = tmp_path / 'outside'
    inside = tmp_path / 'run'
    main = pair(inside, 'replay.json.gz', 'of_{}.json.gz')
    elsewhere = write(outside / 'of_8.json.gz', captured([Node(7, 'a'), Node(8, 'b')]))
    assert len(analyze('info', inside)['inputs']) == 3
    entries = [{'file': f'of_{n}.json.gz', 'batch_size': n, 'mode': 'FULL'} for n in (8, 16)]
    entries += [{'file': str(elsewhere), 'batch_size': 8, 'mode': 'FULL'}, {'file': '../outside/of_8.json.gz', 'mode': 'FULL'},
                {'file': 'replay.json.gz', 'iteration': 0}, {'file': 7, 'mode': 'FULL'}, 'of_9.json.gz', None]
    (inside / 'execution_details.json').write_text(json.dumps(entries))
    answer = analyze('breakdown', '--group-by', 'op', inside)
    assert by_op(answer) == OPERATORS and counts(answer) == (5, 0, 0)
    assert [i['path'] for i in answer['inputs']] == [str(main)]


@pytest.mark.parametrize('text', ['', '{', '[[[', '{"file": "of_8.json.gz", "mode": "FULL"}', '[' * 5000, 'null'])
def test_a_broken_list(analyze, tmp_path, text):
    pair(tmp_path, 'replay.json.gz', 'of_{}.json.gz')
    (tmp_path / 'execution_details.json').write_text(text)
    inputs = analyze('info', tmp_path, rc=None)['inputs']
    assert len([i for i in inputs if i['kind'] == 'kineto']) == 3


def test_names_that_look_alike(analyze, tmp_path):
    """These are traces of ranks."""
    names = ['jobs_1_rank0.json.gz', 'bs_x_rank0.json.gz', 'bs_1_rank0.trace.json.gz', 'bs_1rank0.json.gz', 'capture.json.gz',
             'rank_0_graph_capture_rank.json.gz', 'bs_1_rank.json.gz']
    for i, name in enumerate(names):
        write(tmp_path / name, [event('cpu_op', f'op{i}', i, 1)], rank=i)
    assert len(analyze('info', tmp_path)['inputs']) == len(names)


def test_a_folder_with_the_name_of_a_capture(analyze, tfanalyze_asan, tmp_path):
    """It is no file, and nothing is said about damage."""
    main = pair(tmp_path, 'replay.json.gz', 'capture_rank_{}.json.gz')
    (tmp_path / 'graph_capture_rank_0.pt.trace.json').mkdir()
    answer = analyze('breakdown', '--group-by', 'op', tmp_path, program=tfanalyze_asan)
    assert [i['path'] for i in answer['inputs']] == [str(main)]

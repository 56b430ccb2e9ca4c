"""test_mutations - breaks chosen lines of library and reader one at a time; the test named for the line must fail.

Each worker has a copy of the built tree, so only the files with the changed line are compiled again. A mutation is
noticed if an assertion fails. A failed build, or a test that cannot start, does not count. A line that is not in its
file exactly once is a failure too, because the table is out of date.

Every run checks all rows against the sources and the collected tests. It breaks the lines of a few rows, other ones each
day; `make soak` breaks as many others, and all with SOAK_ALL=1.
"""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from conftest import BUILD, ROOT, clean_environment, execute

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]
BROKEN = 12  # rows of one run
GROUPS = 2  # the default number of workers that run at once
SOURCES = ('Makefile', 'include', 'preload', 'analysis', 'scripts', 'tests')
GENERATED = ('exports.map', *sorted(p.name for p in BUILD.glob('*.c')))
BUILT = ('flags', 'headers.mk', *GENERATED, 'libtfinject.so', 'libtfinject-alloc.so', 'tfanalyze', 'obj',
         'test', 'victims', 'simgpu', 'victims_gpu')
TARGETS = ('libtfinject.so', 'libtfinject-alloc.so', 'test/libtfinject.so', 'tfanalyze')
REMADE = (*GENERATED, 'libtfinject.so', 'libtfinject-alloc.so', 'tfanalyze', 'obj', 'test')


def row(name, test, file, line, broken):
    at, _, function = test.partition('::')
    where, = (ROOT / 'tests').glob(f'*/test_{at}')
    return SimpleNamespace(name=name, file=file, line=line, broken=broken, test=f'{where.relative_to(ROOT)}::{function}')


# The comment above a row is the user's symptom. Columns: name, the test that must fail, file, line, broken line.
ROWS = [
    # The program sees an errno that its own calls did not set.
    row('errno-after-waking', 'weather.py::test_errno_and_results', 'preload/record/enter.c',
        '    tfi_signals_on();\n    errno = error;\n    return t;',
        '    tfi_signals_on();\n    (void)error;\n    return t;'),
    # Result and errno of every call change places.
    row('columns-of-a-call-swapped', 'fixture.py::test_dump[now-whole]', 'preload/hooks/call_record.c',
        'rec->result = result;\n    rec->error = errno;',
        'rec->result = errno;\n    rec->error = (int32_t)result;'),
    # Repeated calls have the arguments of another call.
    row('changed-argument-forgotten', 'hooks.py::test_calls_like_earlier_ones[40-exit]', 'preload/record/encode.c',
        'call->args[i] = again->args[value++];',
        'call->args[i] = like->args[i] + 0 * again->args[value++];'),
    row('changed-argument-not-read', 'hooks.py::test_calls_like_earlier_ones[9000-kill]', 'analysis/read/decode.c',
        '        if (changed >> i & 1) {',
        '        if (i && changed >> i & 1) {'),
    # A chunk's packed columns carry the numbers of their neighbours.
    row('columns-swapped-in-the-encoder', 'fixture.py::test_dump[now-whole]', 'preload/record/encode.c',
        'struct tfi_column head = {index, f->codec, 0};',
        'struct tfi_column head = {index > 1 ? index ^ 1 : index, f->codec, 0};'),
    # After SIGKILL and without the live file, calls in the trace have no names.
    row('strings-not-before-chunk', 'fixture.py::test_a_trace_without_its_live_file[now-killed]', 'preload/record/writer.c',
        'if (!flush_strings() || !append(head, payload))',
        'if (!append(head, payload))'),
    # Damaged bytes are taken for records.
    row('checksum-ignored', 'reader_damage.py::test_damage_is_reported_with_its_place', 'analysis/read/chunks.c',
        'return tfi_crc(0, inflater->stored, piece->stored) == piece->crc;',
        'return true;'),
    # One damaged place costs everything behind it.
    row('no-search-after-damage', 'reader_damage.py::test_blocks_after_a_gap_are_found', 'analysis/read/tfr.c',
        '    uint64_t found = find_head(trace, from, trace->size);',
        '    uint64_t found = from < trace->size ? trace->size : from;'),
    # Records of a killed process count twice.
    row('chunk-in-both-files-counts-twice', 'reader_live.py::test_a_chunk_in_both_files_counts_once', 'analysis/read/chunks.c',
        'if (map_get(&trace->serials, piece->serial) != MAP_NONE || (copy',
        'if ((copy'),
    # An export of a stage lacks the operators that autograd runs for it later.
    row('part-without-backward-operators', 'long_runs.py::test_parts[5]', 'analysis/model/sweep/load_windows.c',
        '    if (by_stage) add_backward(&load, u);',
        '    if (by_stage && !u) add_backward(&load, u);'),
    # Dispatches of a long run belong to no stage.
    row('swept-operators-in-no-stage', 'long_runs.py::test_operators[0]', 'analysis/ask/ops/walk.c',
        'walk->attribution ? stage_at(&walk->attribution->finder, from->thread, from->start) : NO_PLACE;',
        'NO_PLACE;'),
    # A chunk gets the records of one before it that is in the file twice.
    row('skipped-chunk-kept', 'long_runs.py::test_threads[0]', 'analysis/read/ahead.c',
        'slot_at(a, a->held)->piece < piece',
        'slot_at(a, a->held)->piece > piece'),
    # A torn block is reported as a loss though the live file has all of it.
    row('torn-block-is-lost', 'reader_live.py::test_a_torn_block_whose_chunk_is_live_is_no_loss', 'analysis/read/chunks.c',
        '        if (piece->state == PIECE_DAMAGED && !read) {',
        '        if (piece->state == PIECE_DAMAGED) {'),
    # Records that a thread has not committed yet are read.
    row('committed-length-ignored', 'reader_live.py::test_live_chunks_complete_the_trace', 'analysis/read/live.c',
        '(uint32_t)MIN(le32toh(head.committed), room - sizeof head);',
        'le32toh(head.committed) ? (uint32_t)(room - sizeof head) : 0;'),
    # A stage that calls itself is longer than the run.
    row('recursion-counts-twice', 'fixture.py::test_stages[v1-whole]', 'analysis/ask/stages/stage_table.c',
        'int64_t host = MAX(end - MAX(start, r->covered), 0);',
        'int64_t host = end - start;'),
    row('recursion-counts-twice-in-timing', 'fixture.py::test_timing_json', 'preload/stage/stage.c',
        'open->ran + (open->outermost && !open->paused ?',
        'open->ran + (!open->paused ?'),
    # A backward operator's kernels go to the stage of any forward operator of its thread.
    row('forward-operator-of-another-number', 'operators_export.py::test_without_its_forward_operator_it_does_not[sequence]',
        'analysis/model/load/load_ops.c',
        'link->thread == before->thread && link->sequence == before->sequence;',
        'link->thread == before->thread;'),
    # A suspended coroutine gets its thread's work of that time.
    row('pauses-ignored', 'operators_export.py::test_a_coroutine_has_the_time_it_ran_and_the_time_from_entry_to_exit',
        'analysis/model/range_pieces.c',
        'cut->running = p->is_resume[pause];',
        'cut->running = true;'),
    # A coroutine that awaits itself takes longer than its outermost call.
    row('recursion-of-coroutines-counts-twice', 'operators_export.py::test_recursion_of_a_coroutine_counts_once',
        'analysis/ask/stages/stage_table.c',
        'return is_call && !row->open ?',
        'return is_call ?'),
    # A stage that worked on a device shows the host's peak.
    row('peaks-of-the-host', 'operators_export.py::test_peaks', 'analysis/ask/stages/stage_table.c',
        'if (row->has_peaks && !is_host && row->peaks_of_host)',
        'if (row->has_peaks && is_host && row->peaks_of_host)'),
    # Kernels in an exported trace belong to no operator.
    row('no-external-ids', 'operators_export.py::test_ids_lead_from_work_and_its_launch_to_the_operator',
        'analysis/write/export/export_device.c',
        'put_external_id(x, x->scope->attribution.op[i]);',
        'put_external_id(x, NO_PLACE);'),
    # Clocks of a window of time are those of the whole run.
    row('clocks-of-all-times', 'nvml.py::test_a_throttled_clock_beside_the_late_rank', 'analysis/commands/device/clocks.c',
        's->device == device && s->time >= from && s->time < to', 's->device == device && s->time < to'),
    # Operators have kernels twice, or memory of their neighbours, or none of the memory they freed last.
    row('kernels-of-an-only-child', 'ops.py::test_device_rows', 'analysis/ask/ops/open_events.c',
        'into->work = child->work;',
        'into->work.time += into->work.time;'),
    row('memory-at-the-end', 'ops.py::test_device_rows', 'analysis/ask/ops/open_events.h',
        'running->next_end < time)',
        'running->next_end <= time)'),
    # Shares of the device's time add up to more than its time.
    row('shadows-are-device-time', 'ops.py::test_device_columns', 'analysis/write/op_table.c',
        'row->on_device && !row->is_annotation ?',
        'row->on_device ?'),
    # Warm-up steps count.
    row('warm-up-counts', 'ops.py::test_warm_up_is_left_out_and_cycles_can_be_chosen', 'analysis/ask/choice.c',
        '(choice->by_step || choice->by_cycle || !is_in(&choice->warmup, time));',
        'true;'),
    # A child of Python's subprocess closes its parent's trace.
    row('vfork-child-closes-the-trace', 'weather.py::test_vfork_and_posix_spawn', 'preload/tfinject.c',
        'tfi_process->state != TFI_AWAKE || tfi_getpid() != tfi_trace_pid || tfi_inside',
        'tfi_process->state != TFI_AWAKE || tfi_inside'),
    # A child by fork goes on writing into its parent's files.
    row('state-survives-fork', 'weather.py::test_fork_without_exec', 'preload/base/process.c',
        'MADV_WIPEONFORK);',
        'MADV_NORMAL);'),
    # The last records of every thread are missing.
    row('open-chunks-forgotten-at-the-end', 'weather.py::test_ordinary_ends[_exit]', 'preload/record/writer.c',
        'if (chunk) whole &= finish_one(chunk);',
        'if (chunk && chunk->state == TFI_CHUNK_CLOSED) whole &= finish_one(chunk);'),
    # Short threads leave no trace.
    row('chunk-of-an-ended-thread', 'weather.py::test_ten_thousand_threads', 'preload/record/thread.c',
        '    if (at_end) at_end(t);\n    tfi_chunk_close(t);',
        '    if (at_end) at_end(t);'),
    # A chunk that is never marked open does not survive SIGKILL.
    row('chunk-not-opened', 'weather.py::test_sudden_ends[raw_exit-None]', 'preload/record/chunk.c',
        '    __atomic_store_n(&chunk->state, TFI_CHUNK_OPEN, __ATOMIC_RELEASE);\n',
        ''),
    # Records are dropped without a message.
    row('drops-not-counted', 'weather.py::test_cap', 'preload/record/writer.c',
        'tfi_count_drop(drop, head.records);',
        '(void)0;'),
    # Names go on beyond the cap.
    row('names-beyond-the-cap', 'little.py::test_names_count_for_the_cap', 'preload/record/writer.c',
        'if (!bytes || (over_cap(0) && trace.size + bytes + END_BYTES / 2 > cap_mb << 20)) return true;',
        'if (!bytes) return true;'),
    # Only the first part of a mapping is known to have a file.
    row('mapping-known-at-its-start', 'signals.py::test_a_large_mapping', 'preload/io/descriptors.c',
        'return parts < PARTS ? parts : PARTS;', 'return parts < 1 ? parts : 1;'),
    # The end of a range of one domain closes ranges of another domain.
    row('pop-ignores-the-domain', 'nvtx.py::test_push_and_pop', 'preload/stage/open_stack.c',
        '    if (place && !place->innermost) return -1;',
        '    if (t->nr_open) return t->nr_open - 1;'),
    # The kernel kills a program with a file size limit.
    row('size-limit-not-looked-at', 'fixture.py::test_no_room_for_a_live_file', 'preload/record/pool.c',
        'if (!tfi_file_has_room(TFI_POOL_BYTES)) return NULL;',
        ''),
    # exec ends the trace without its last records.
    row('exec-does-not-close-the-trace', 'weather.py::test_every_exec', 'preload/hooks/process_end.c',
        '    tfi_finish("exec");\n    return failed(real ? real(path, argv, env) : (int)syscall(SYS_execve, path, argv, env));',
        '    return failed(real ? real(path, argv, env) : (int)syscall(SYS_execve, path, argv, env));'),
    # Every time of a PyTorch trace is wrong by a factor of ten.
    row('nanoseconds-off-by-a-digit', 'kineto.py::test_times_are_fixed_point[1.5-0.001-1]', 'analysis/read/kineto_event.c',
        'json_number(p, 3, &number);',
        'json_number(p, 2, &number);'),
    # Only the first part of a trace that was packed in pieces is read.
    row('gzip-members-forgotten', 'kineto.py::test_gzip[trace.json.gz-two members]', 'analysis/read/stream/unpack.c',
        'if (c == 0x1f) {',
        'if (c == 0x1e) {'),
    # A damaged gzip file is answered as if it were whole.
    row('checksum-of-gzip-ignored', 'kineto_bad.py::test_wrong_checksum', 'analysis/read/stream/unpack.c',
        'crc != u->crc || size != u->size',
        'size != u->size'),
    # Characters outside the basic plane turn into others.
    row('surrogates-not-paired', 'kineto.py::test_names[escaped-pair]', 'analysis/read/json/json.c',
        'c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);',
        'c = 0x1000 + ((c - 0xd800) << 10) + (low - 0xdc00);'),
    # Times of different files are not on one axis.
    row('base-time-ignored', 'kineto.py::test_base_time[number]', 'analysis/model/load/load_kineto.c',
        'kineto_set_axis(p, load->info.base);',
        'kineto_set_axis(p, 0);'),
    # A damaged event is left out without a message.
    row('bad-event-is-no-loss', 'kineto_bad.py::test_content[plain-negative duration]', 'analysis/model/kineto/kineto_info.c',
        'process_lose(process, causes[i][0], faults->count[i], true);', 'process_lose(process, causes[i][0], faults->count[i], false);'),
    # A truncated trace passes for a whole one.
    row('cut-is-not-said', 'kineto_bad.py::test_a_cut_is_reported_with_its_place', 'analysis/read/kineto.c',
        '    r->damage->cut = true;\n',
        ''),
    # A whole category of calls is unknown: the work they launched is in no stage.
    row('category-forgotten', 'kineto.py::test_categories[cuda driver]', 'analysis/model/categories.def',
        'CATEGORY("cuda_driver", API)\n',
        ''),
    # Kernels are given to the stage of another launch.
    row('correlation-shifted', 'kineto.py::test_innermost_stage_at_the_launch', 'analysis/model/load/kineto_keep.c',
        's->id[at] = event_class == CLASS_API ? (event->has & HAS_CORRELATION ? event->correlation : NO_ID)',
        's->id[at] = event_class == CLASS_API ? (event->has & HAS_CORRELATION ? event->correlation + 1 : NO_ID)'),
    # All kernels belong to the outermost stage.
    row('outermost-stage', 'kineto.py::test_innermost_stage_at_the_launch', 'analysis/ask/attribute.c',
        'answer(context, p->of, open[depth - 1]);',
        'answer(context, p->of, open[0]);'),
    # A launch just after a stage's end counts in the stage.
    row('edges-closed', 'kineto.py::test_innermost_stage_at_the_launch', 'analysis/ask/attribute.c',
        'while (depth && s->end[open[depth - 1]] <= p->time)',
        'while (depth && s->end[open[depth - 1]] < p->time)'),
    # The backward pass belongs to no stage.
    row('backward-without-forward', 'kineto.py::test_backward_goes_to_its_forward_operators_stage',
        'analysis/ask/attribute.c',
        '    ask_forwards(a->process, stages, operators, points, belonging);\n',
        '    (void)operators;\n    (void)ask_forwards;\n'),
    # Work launched by a thread without stages goes to the thread that was busy last.
    row('last-thread-is-the-only-one', 'kineto.py::test_any_other_thread_takes_the_one_open_stage',
        'analysis/ask/stages/stage_at.c',
        'now.which ^= edge[i].thread;',
        'now.which = edge[i].thread;'),
    # Idle time counts busy time as well.
    row('idle-includes-busy', 'kineto.py::test_two_devices', 'analysis/ask/stages/stage_table.c',
        '- set->interval[0].start - total);',
        '- set->interval[0].start);'),
    # A stage that calls itself counts its kernels twice.
    row('device-time-of-recursion-twice', 'kineto.py::test_recursion_counts_once', 'analysis/ask/stages/stage_table.c',
        'if (row->seen == work->number) return;', ''),
    # The spread of a kernel's times is understated.
    row('deviation-of-a-population', 'kineto.py::test_spelling[compact]', 'analysis/base/statistics.c',
        'sqrt(squares / (double)(values->count - 1))',
        'sqrt(squares / (double)values->count)'),
    row('percentile-off', 'kineto.py::test_spelling[compact]', 'analysis/commands/breakdown.c',
        'values_percentile(values, 0.95)',
        'values_percentile(values, 0.90)'),
    # One rank's time counts twice.
    row('second-trace-of-a-rank-counts', 'kineto_bad.py::test_two_files_of_one_rank', 'analysis/model/inputs/copies.c',
        'if (p->has_time && at < kept->count && kept->input[at]->process.first <= p->last) {',
        'if (false && p->has_time && at < kept->count && kept->input[at]->process.first <= p->last) {'),
    # A guess displaces the rank that another trace states.
    row('a-guess-takes-a-rank', 'roles.py::test_a_coordinator_takes_no_rank[timeline]', 'analysis/model/inputs/rank_numbers.c',
        'leave_without(&open, others || open.count < unnamed);',
        'leave_without(&open, false && (others || open.count < unnamed));'),
    # The kernel's name decides what a collective is, though an annotation says it.
    row('annotations-say-nothing', 'communication.py::test_an_annotation_says_what_a_kernel_does[nccl:all_to_all-all_to_all]',
        'analysis/model/kineto/kineto_comm.c',
        'if (!round) continue;',
        'if (round || !round) continue;'),
    # A Python function outlives its caller.
    row('late-returns-stay', 'answers.py::test_a_function_that_returns_late', 'analysis/model/kineto/kineto_nesting.c',
        '*end = last;',
        '(void)last;'),
    # A wait whose record comes later passes.
    row('waits-on-the-future-pass', 'validator.py::test_each_rule', 'analysis/model/health/kineto_rules.c',
        'count += !record || record->key != wait->key || record->start > wait->start;',
        'count += !record || record->key != wait->key;'),
    # Communication that computation hides counts as exposed.
    row('exposed-is-all', 'kineto.py::test_timeline', 'analysis/commands/device/timeline.c',
        's.kind[WORK_COMMUNICATION] - intervals_overlap(&kind[WORK_COMMUNICATION], &kind[WORK_COMPUTATION]);',
        's.kind[WORK_COMMUNICATION];'),
    # Kernels with a reused id go to the first call that ever had the id.
    row('first-call-of-an-id', 'kineto_bad.py::test_duplicate_correlation_ids', 'analysis/ask/attribute.c',
        '    if (at && calls->call[at - 1].id == id) return',
        '    while (at > 1 && calls->call[at - 2].id == id) at--;\n    if (at && calls->call[at - 1].id == id) return'),
    # A CUDA call is missing, and the driver calls inside it appear instead.
    row('row-of-the-runtime-deleted', 'gpu_weather.py::test_errors_that_the_runtime_keeps[cudaNothing=1]',
        'preload/cuda/cudart.def',
        'HOOK_PTDS(SET, cudaError_t, cudaMemset, (void *devPtr, int value, size_t count), (devPtr, value, count),\n'
        '     "address:ADDRESS,value:INT,bytes:BYTES", (TFI_U(devPtr), TFI_U(value), count))\n',
        ''),
    # The grid dimensions of kernels are rotated.
    row('arguments-swapped', 'cuda_routes.py::test_dlsym_in_the_driver', 'preload/cuda/cuda.def',
        '(KERNEL(f), TFI_U(hStream), gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, '
        'TFI_U(f)))\nHOOK_PTSZ(LAUNCH, CUresult, cuLaunchKernelEx,',
        '(KERNEL(f), TFI_U(hStream), gridDimY, gridDimX, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, '
        'TFI_U(f)))\nHOOK_PTSZ(LAUNCH, CUresult, cuLaunchKernelEx,'),
    # The first call on a device leaves the library's errno behind.
    row('errno-after-cupti-begins', 'gpu_weather.py::test_cupti_too_old[17-libcupti.so.13-libcupti.so.13]',
        'preload/cupti/cupti.c',
        '    tfi_cancel_on(cancel);\n    errno = error;\n',
        '    tfi_cancel_on(cancel);\n    (void)error;\n'),
    # The last device records of every run are missing.
    row('last-flush-skipped', 'gpu_weather.py::test_fair_weather', 'preload/cupti/cupti.c',
        '    fetch(TFI_CUPTI_FLUSH_FORCED);\n',
        ''),
    # Kernels have the launch, and so the stage, of their neighbours.
    row('correlation-of-kernels-shifted', 'gpu_weather.py::test_fair_weather', 'preload/cupti/records.c',
        'uint32_t id = GET32(record, kernel, correlationId);',
        'uint32_t id = GET32(record, kernel, correlationId) + 1;'),
    row('join-with-the-next-launch', 'device_records.py::test_stages_have_their_device_time', 'analysis/model/load/device.c',
        'w->correlation[at] = from->correlation[i] ? from->correlation[i] : NO_ID;',
        'w->correlation[at] = from->correlation[i] ? from->correlation[i] + 1 : NO_ID;'),
    # Every recorded step is one step late.
    row('schedule-begins-late', 'schedule.py::test_cycles_are_numbered', 'preload/control/schedule.c',
        'tfi_plan_at(&now.plan, now.steps - 1, &is.cycle)',
        'tfi_plan_at(&now.plan, now.steps, &is.cycle)'),
    # The last step of a cycle is missing.
    row('warm-up-counts-as-active', 'schedule.py::test_schedule_defaults', 'preload/control/plan.c',
        'return step < (uint64_t)plan->wait + plan->warmup ?',
        'return step <= (uint64_t)plan->wait + plan->warmup ?'),
    # Kernels from before cudaProfilerStart are in the trace.
    row('device-records-of-any-time', 'schedule.py::test_between_profiler_start_and_stop', 'preload/cupti/select.c',
        'return word & TFI_ACTIVITY_GPU ? TFI_VERDICT_INSIDE : TFI_VERDICT_OUTSIDE;',
        'return TFI_VERDICT_INSIDE;'),
    # Recording never ends.
    row('duration-ignored', 'schedule.py::test_delay_and_duration', 'preload/control/schedule.c',
        'now.closes_ns = tfi_config.capture.length_ns ? now.opens_ns',
        'now.closes_ns = 0 ? now.opens_ns'),
    # The program's own signal handler is no longer called.
    row('signal-not-passed-on', 'schedule.py::test_the_programs_own_handler_is_called_too', 'preload/control/trigger.c',
        '        before.sa_handler(number);',
        '        (void)number;'),
    # A stage's script gets the inputs of the first call instead of the last.
    row('first-signature-instead-of-last', 'signature_files.py::test_the_last_call_that_was_described', 'analysis/commands/report/signature.c',
        'if (g->time >= s->time) {',
        'if (s->time == INT64_MIN) {'),
    # TeleFuser's own harness fails on the file.
    row('array-passes-for-a-tensor', 'signature_files.py::test_telefusers_own_reader', 'analysis/commands/report/signature.c',
        'return !json_member(value, "device").at ? ARRAY :',
        'return !json_member(value, "device").at ? TENSOR :'),
    # The next report overwrites a script that the user has changed.
    row('edited-script-overwritten', 'signature_files.py::test_an_edited_script_stays', 'analysis/commands/report/stage_script.c',
        '    free(text);\n    return whole;',
        '    free(text);\n    return whole || true;'),
    # A stage's script has other texts than the trace.
    row('texts-escaped-twice', 'signature_files.py::test_names_of_stages[.x-profile__x.py]', 'analysis/commands/report/python_value.c',
        'put_json_string(to, text, json_unescape(text, inside.at, inside.length));',
        'put_json_string(to, inside.at, inside.length);'),
    # A stage loses the peak of the stages inside it.
    row('inner-stage-keeps-the-peak', 'memory.py::test_peak_inside_an_inner_stage_is_the_outer_ones_too',
        'preload/stage/allocator_totals.c', '    before->peak_allocated = higher(before->peak_allocated, p->peak_allocated);\n', ''),
    # A stage starts with the peak of the time before it.
    row('peak-not-reset', 'memory.py::test_nested_stages_have_peaks_of_their_own', 'preload/stage/allocator_totals.c',
        '__atomic_exchange_n(&d->peak_allocated, allocated, __ATOMIC_RELAXED)',
        '__atomic_load_n(&d->peak_allocated, __ATOMIC_RELAXED)'),
    # Memory that was given back stays in use; a block is found under the address of another one.
    row('host-block-kept', 'host_memory.py::test_totals_peaks_and_leaks', 'preload/hooks/host_blocks.c',
        '    if (bytes) report((uintptr_t)block, -(int64_t)bytes);', '    if (bytes && !block) report((uintptr_t)block, -(int64_t)bytes);'),
    row('host-blocks-not-marked', 'host_memory.py::test_every_block[libc-1]', 'preload/alloc/alloc.c',
        'TFI_UNLIKELY(tfi_host_blocks.marks[tfi_block_mark(block)]);', 'TFI_UNLIKELY(tfi_host_blocks.marks[tfi_block_mark(block) ^ 1]);'),
    # The wake allocates memory.
    row('wake-allocates', 'signals.py::test_nothing_that_locks_is_called_inside[script-io]', 'preload/record/enter.c',
        '    if (tfi_wake(why)) {', '    if (tfi_wake(why) && __builtin_strdup("")) {'),
    # A refused realloc loses the block that it leaves.
    row('refused-realloc', 'host_memory.py::test_every_block[libc-6]', 'preload/alloc/alloc.c',
        'if (!moved && bytes && had)', 'if (moved && !bytes && had)'),
    # A host block that torch reports to the program's own profiler counts twice.
    row('host-blocks-counted-twice', 'memory.py::test_originals', 'preload/torch/c10.c',
        'else if (follows_host() && !tfi_block_known(&blocks, (uintptr_t)block)) report_host', 'else report_host'),
    # The host's blocks are followed where stages are only timed.
    row('blocks-of-timed-stages', 'torch_ops.py::test_selection[none]', 'preload/torch/c10.c',
        'return active() && __atomic_load_n(&tfi_config.select, __ATOMIC_RELAXED) != TFI_SELECT_NOTHING;', 'return active();'),
    # Only the newest level of the table of blocks is searched.
    row('older-blocks-are-lost', 'memory.py::test_many_blocks', 'preload/base/block_sizes.c',
        '; n-- > 0 && !p;) p = find_in(b, n, hash, address);', '; n > 0 && !p; n = 0) p = find_in(b, n - 1, hash, address);'),
    # Allocations of other threads go to the operators of the selected stage.
    row('blocks-of-other-stages', 'filters.py::test_operators_and_calls_without_device_records[False]', 'analysis/ask/ops/tally.c',
        'if (a->by_stage && !choice_in_stage(a->choice, at)) return;', '(void)at;'),
    # Calls without a device record are in no stage.
    row('calls-of-some-stages', 'left_out.py::test_no_part_counts_as_a_whole[io]', 'analysis/commands/io.c',
        'if (table.lacks_calls) emit_hide_all(&session->emit);', ''),
    row('hta-of-some-stages', 'left_out.py::test_no_part_counts_as_a_whole[kinds --rules hta]', 'analysis/compat/hta_answer.c',
        'if (left.any) emit_hide_all(&session->emit);', ''),
    row('left-out-in-units-of-rules', 'left_out.py::test_no_part_counts_as_a_whole[kinds --rules tracelens]', 'analysis/ask/ranks/rank_times.c',
        'left_out_of(scope_left_out(scope), t.ran, NO_PLACE)', 'left_out_of(scope_left_out(scope), (struct interval){t.first, t.last}, NO_PLACE)'),
    row('host-reserves-nothing', 'memory.py::test_telefusers_nested_peaks', 'preload/stage/allocator_totals.c',
        'host ? p->peak_allocated : p->peak_reserved', 'p->peak_reserved'),
    row('operators-of-half-a-stage', 'report_filters.py::test_a_breakdown_of_operators_is_whole_or_absent', 'analysis/ask/stages/stage_table.c',
        '!is_recorded_whole(&selected, c->order[i])', 'false'),
    row('operators-twice-in-nested-stages', 'report.py::test_a_trace_without_a_device', 'analysis/ask/stages/stage_table.c',
        'if (row->seen != work->number) add_kernel(row, work);', 'add_kernel(row, work);'),
    row('calls-in-no-stage', 'filters.py::test_operators_and_calls_without_device_records[True]', 'analysis/ask/ops/tally.c',
        'if (a->finds_stages) at.stage = stage_at(', 'if (false) at.stage = stage_at('),
    # What other stages hold counts as memory without a record.
    row('other-stages-are-unknown', 'memory_answers.py::test_refusals_by_stage', 'analysis/commands/memory/memory_holders.c',
        'a->choice->outside_wanted && (refusal->known', '(refusal->known'),
    # Nothing that a long run frees is freed.
    row('long-runs-free-nothing', 'long_runs.py::test_memory[1]', 'analysis/ask/memory/changes.c',
        'take_block(walk, swept.block);', 'if (swept.block->bytes > 0) take_block(walk, swept.block);'),
    # A part of a long run lacks siblings of its operators, or what they are in.
    row('part-without-open-stages', 'long_runs.py::test_operators_of_a_part[1]', 'analysis/ask/ops/needed_times.c',
        'if (latest->end >= begin) ', 'if (latest->end < begin) '),
    row('part-without-open-operators', 'long_runs.py::test_operators_of_a_part[1]', 'analysis/ask/ops/needed_times.c',
        'sweep_widen(events->process, &part);', ''),
    # A thread of a long run is read to the end of its chunk before the others.
    row('sweep-stays-in-one-chunk', 'long_runs.py::test_memory[1]', 'analysis/model/sweep/sweep.c',
        'for (size_t i = 1; i < MIN(s->open, 3); i++) first = MIN(first, s->heap[i]->time);\n', ''),
    # et_replay takes a group of all ranks for another one.
    row('whole-group-lists-its-ranks', 'execution_bad.py::test_process_groups[{"pg_config": [{"ranks": [0, 1]}], "world_size": 2}-groups7]',
        'analysis/write/execution/groups.c',
        'if (size == all) json_object_set_new', 'if (size > all) json_object_set_new'),
    # Functions behind an inner one hang below their thread.
    row('outer-function-forgotten', 'execution_bad.py::test_a_function_behind_an_inner_one_has_the_outer_one_as_parent',
        'analysis/write/execution/et.c',
        'open->below = et->thread[thread].top;', 'open->below = NO_PLACE;'),
    # Ids of nodes and tensors are not those of torch.
    row('ids-of-inputs-first', 'execution_bad.py::test_words[words6-values6-0]', 'analysis/write/execution/et.c',
        '    open->id = et->ids++;\n    number_objects(et, edge);', '    number_objects(et, edge);\n    open->id = et->ids++;'),
    # A snapshot lacks memory that is mapped and holds no block yet.
    row('mapping-without-a-user', 'memory_segments.py::test_a_mapping_without_a_block', 'analysis/ask/ops/grants.c',
        'if (grant->area > SEGMENT_MAPPED) user = ', 'if (false) user = '),
    # A snapshot shows memory of the program as memory of the allocator that had its addresses before.
    row('old-blocks-in-a-new-segment', 'memory_segments.py::test_addresses_are_given_again', 'analysis/ask/ops/grants.c',
        '    take_uses(f, address, bytes);\n    const struct grant', '    const struct grant'),
    # A snapshot says that memory in use was freed.
    row('pieces-in-use-are-freed', 'memory_segments.py::test_unmaps_are_missing[0-True]', 'analysis/ask/ops/segments.c',
        'if (is_in_use(s, segment)) set_aside', 'if (false) set_aside'),
    # A snapshot frees memory at other places than the framework if a large block has just ended.
    row('some-empty-pieces-are-missed', 'memory_segments.py::test_a_block_leaves_many_pieces', 'analysis/ask/ops/segments.c',
        '    tallies_zeros(&s->uses, look_at, &search);\n', ''),
    # A snapshot frees other segments than the one of the size that the total lost.
    row('smallest-segment-is-freed', 'memory_segments.py::test_unmaps_are_missing[0-False]', 'analysis/ask/ops/empties.c',
        '? fits->size : 0', '? 0 * fits->size : 0'),
    # Rows by modules have no modules as soon as there is a filter.
    row('modules-of-held-operators', 'modules.py::test_a_stage_filter_keeps_the_modules[kineto]', 'analysis/ask/ops/tally.c',
        '    if (wanted && group->modules && given) addition->modules = given->modules;\n', ''),
    # Rows by modules have no modules in a run of a CPU.
    row('modules-of-swept-operators', 'modules.py::test_rows_by_modules[tfr-1]', 'analysis/ask/ops/tally.c',
        '.op_modules = options->group_ops.modules,', '.op_modules = false,'),
    # An operator that begins when another one ends counts as a part of it.
    row('next-operator-is-inside', 'ops_random.py::test_rows_of_random_traces[2]', 'analysis/ask/ops/nests.c',
        '(start >= n->level', '(start > n->level'),
    # A broken libisal damages every compressed file.
    row('libisal-by-its-name', 'writing_on_cores.py::test_a_library_with_libisals_name_alone_is_not_used[wrong bytes]', 'analysis/base/gzip/deflater.c',
        'layout_is_known(&tried) && deflates(&tried);', 'layout_is_known(&tried);'),
    # Rows by modules have other names than torch.profiler's.
    row('modules-without-points', 'torchscript.py::test_hierarchies_are_torchs', 'preload/torch/hierarchy.c',
        '        tfi_text_bytes(text, ".", 1);\n', ''),
    # All segments of a snapshot are on the default stream.
    row('blocks-without-streams', 'memory_torch.py::test_the_snapshot_is_torchs[expandable-1]', 'preload/torch/streams.c',
        'stream.id ? torch.handle(&stream) : 0;', 'stream.id ? 0 * torch.handle(&stream) : 0;'),
    # Views of a storage all begin at its start in the execution trace.
    row('views-begin-at-zero', 'execution_trace.py::test_every_field_of_every_node', 'preload/torch/execution.c',
        '*to++ = word(impl, tfi_torch_at.offset);', '*to++ = 0;'),
    # Reserved memory of expandable segments never goes down.
    row('returned-memory-stays-reserved', 'memory_torch.py::test_peaks_and_leaks_are_torchs[expandable-None]', 'preload/stage/allocator_segments.c',
        'if (owner) tfi_allocator_totals_returned(', 'if (owner && 0) tfi_allocator_totals_returned('),
    # Kernels drift away from their launches during a run.
    row('drift-of-the-device-ignored', 'device_records.py::test_a_clock_that_drifts', 'analysis/model/clock.c',
        'ahead += nearest_whole(share', 'ahead += 0 * nearest_whole(share'),
    # The second trace of a rank adds no time.
    row('work-of-the-second-trace', 'kineto_bad.py::test_device_work_of_two_files_of_one_rank', 'analysis/ask/ranks/rank_times.c',
        'kind++) unite(&a->kind[kind], &b->kind[kind]);', 'kind++) unite(&a->kind[kind], &a->kind[kind]);'),
    # A short kernel beside a long one ends the busy time.
    row('short-kernel-ends-the-busy-time', 'steps.py::test_random_traces[1]', 'analysis/base/sets/intervals.c',
        '.end = MAX(set->interval[kept - 1].end, next.end);', '.end = next.end;'),
    # A stage that frees before it allocates has too low a peak.
    row('peak-before-the-stage', 'memory_cuda.py::test_peaks[1]', 'analysis/ask/memory/peaks.c',
        'larger(most(s, s->allocated, from, to), earlier->last_allocated)', 'most(s, s->allocated, from, to)'),
    # A step ends before the kernels that it launched.
    row('step-ends-on-the-host', 'steps.py::test_random_traces[4]', 'analysis/ask/steps/step_parts.c',
        'MAX(MAX(step->host_end, step->last), step->start)', 'MAX(step->host_end, step->start)'),
    # A stream is idle while its longest kernel runs.
    row('idle-beside-a-longer-kernel', 'device_streams.py::test_idle_by_hand', 'analysis/ask/device/idle_gaps.c',
        '        until = MAX(until, w->end);', '        until = w->end;'),
    # Each poll of an event is an error of `api`.
    row('not-ready-is-an-error', 'device_calls.py::test_a_call_and_its_id_are_one_call', 'analysis/ask/device/call_sums.c',
        'result != 0 && result != NOT_READY', 'result != 0'),
    # A row of `io` has the bytes of one process only.
    row('bytes-of-the-last-process', 'io.py::test_rows[1-function]', 'analysis/ask/io/io_reduction.c',
        '    row->bytes += from->bytes;', '    row->bytes = from->bytes;'),
    # Reads behind kernels count as time that nothing hides.
    row('overlapped-io-counts', 'io.py::test_rows[1-function]', 'analysis/ask/io/io_table.c',
        ' - measure_overlap(&u->rank->computing, when);', ';'),
    # Ranks are late by the wait of the last row, not by the shortest one.
    row('late-by-the-last-wait', 'stragglers.py::test_ranks_that_take_turns', 'analysis/ask/comm/late_ranks.c',
        '        else second = MIN(second, wait);', '        else second = wait;'),
    # Waiting for the last rank counts as transfer.
    row('transfer-too-long', 'comm.py::test_a_made_job[by-number]', 'analysis/ask/comm/comm_rows.c',
        'since(row->latest, slowest->end)', 'row->duration'),
    # A launch queue never gets shorter.
    row('queue-of-launches-only', 'gpu_answers.py::test_queue[1]', 'analysis/ask/device/queue_lengths.c',
        'now += change->by;', 'now += change->by > 0;'),
    # Only the work that a filter chooses waits in a launch queue.
    row('queue-of-chosen-work', 'device_streams.py::test_a_full_queue_of_two_stages', 'analysis/ask/device/queue_lengths.c',
        'if (!w->has_launch) continue;', 'if (!w->has_launch || !w->at_any_time) continue;'),
    # The name alone decides whether a kernel communicates.
    row('undescribed-kernel', 'comm_plans.py::test_a_kernel_that_the_trace_describes_as_a_collective_communicates', 'analysis/ask/work_kinds.c',
        'kinds->rules->by_description && map_get', '!kinds->rules->by_description && map_get'),
    # The fastest copy of a kind is the last one.
    row('last-copy-is-the-fastest', 'gpu_answers.py::test_bandwidth[1]', 'analysis/ask/device/copy_bandwidth.c',
        'row->has_max ? MAX(row->max, gbs) : gbs', 'gbs'),
    # `hang` does not say that neither side has a majority.
    row('no-word-of-a-draw', 'hang.py::test_two_ranks_that_differ_blame_nobody', 'analysis/ask/hang/verdict.c',
        'if (u->has_majority) return;', 'return;'),
    # One odd name makes an export unreadable for strict readers.
    row('lone-surrogate-passes', 'writing_on_cores.py::test_events_are_valid_json_on_any_number_of_cores[1]', 'analysis/read/json/strict.c',
        'if (code < 0xd800 || code > 0xdfff) return code > 0;', 'if (code < 0xd800 || code > 0xd8ff) return code > 0;'),
    # Times of dftracer are a thousandth of what they were.
    row('unit-of-dftracer-ignored', 'dftracer.py::test_times_are_nanoseconds_in_every_unit[MS-1000000-end last]', 'analysis/model/load/load_dftracer.c',
        'times[i] = from > to ? times[i] / by : MIN(times[i], LAST_NS / by) * by;',
        'times[i] = from > to ? times[i] / by : MIN(times[i], LAST_NS / by);'),
    # One lost collective moves the times of all later ones of its group.
    row('tensor-of-a-work-ignored', 'framework_collectives.py::test_a_lost_work[3]', 'analysis/model/load/framework.c',
        'return same != SIZE_MAX ? same : open', 'return open'),
    # A stage that has ended keeps its place among the stages that have sums.
    row('ended-stages-are-deep', 'growth.py::test_two_deep_nests_have_their_own_work', 'analysis/ask/stages/open_stages.c',
        'if (open[i].end > time) open[kept++]', 'open[kept++]'),
    # An answer depends on what is asked beside it.
    row('needs-of-the-last-question', 'questions.py::test_all_in_any_order[device-all]', 'analysis/ask/selection.c',
        'needs = needs_union(needs, definition_of(options->question[i], options)->needs(options));',
        'needs = definition_of(options->question[i], options)->needs(options);'),
    # A stage that calls itself is twice as long on the screen of a report.
    row('recursion-counts-twice-on-the-screen', 'report.py::test_nested_and_repeated_stages', 'analysis/ask/stages/stage_table.c',
        '(in_pieces ? start : MAX(start, row->done_covered))', 'start'),
    # timing.json has the time of the last rank, not of the slowest one.
    row('timing-of-the-last-rank', 'report.py::test_timing_of_two_ranks', 'analysis/commands/report/timing.c',
        'row[place].longest = MAX(row[place].longest, told->sums->last.time);', 'row[place].longest = told->sums->last.time;'),
    # Ranks on several hosts write into directories of their own.
    row('hosts-do-not-agree', 'rundir.py::test_hosts_agree[env0]', 'preload/control/rank.c',
        '    *slash = 0;\n    bool opened', '    return;\n    *slash = 0;\n    bool opened'),
    # A new run removes the live file of a process that runs.
    row('a-file-in-use-is-removed', 'little.py::test_what_killed_processes_leave_in_memory', 'preload/base/leftovers.c',
        'if (syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0) {', 'if (true) {'),
    # Holes in the live file kill the program.
    row('length-from-the-live-file', 'little.py::test_a_hole_in_the_live_file[the head and the names]', 'preload/record/pool.c',
        'return __atomic_load_n(&strings_used, __ATOMIC_ACQUIRE);', 'return __atomic_load_n(&tfi_live->strings_used, __ATOMIC_ACQUIRE);'),
    # Each process of a run says the same.
    row('said-by-each-process', 'messages.py::test_a_kind_of_message_is_said_once_a_run[chosen]', 'preload/control/once.c',
        'if (strtoul(line, &end, 16) != kind) return false;', 'if (strtoul(line, &end, 16) != kind || kind) return false;'),
    # A child says the end of the run.
    row('a-child-ends-the-run', 'messages.py::test_the_end_of_a_run_is_not_said[tfrun]', 'preload/control/rank.c',
        "return moved == process || (*token && strtoul(token, NULL, 10) == (unsigned long)process);", 'return *token || moved == process;'),
    # Marks of NVTX are stages.
    row('marks-are-stages', 'nvtx.py::test_marks', 'preload/nvtx/nvtx.c',
        'range.flags &= ~(uint32_t)TFI_RANGE_STAGE;\n    tfi_stage_mark', 'tfi_stage_mark'),
    # fread counts items as bytes.
    row('items-are-bytes', 'io_calls.py::test_each_function_once', 'preload/io/io.c',
        'value = result * (int64_t)io->item;', 'value = result;'),
    # `info` says a wrong end of the run.
    row('end-of-the-last-chunk', 'reader.py::test_info', 'analysis/model/load/load_tfr.c',
        '(int64_t)MAX((uint64_t)*last, to) : (int64_t)to;', '(int64_t)to : (int64_t)to;'),
    # A stage that was open at the end has no time.
    row('unfinished-stage-has-no-time', 'reader_stages.py::test_an_unfinished_stage_lasts_to_the_end', 'analysis/model/finish.c',
        '(int64_t)MAX((uint64_t)unfinished_until(process, from->thread[begin]), (uint64_t)from->time[begin]);', 'from->time[begin];'),
    # `--rank 5-2` finds nothing and does not say why.
    row('ranges-the-wrong-way', 'reader_usage.py::test_wrong_usage[line11---rank needs LIST]', 'analysis/base/opts.c',
        '&to) && from <= to;', '&to);'),
    # A name in csv becomes a formula in a spreadsheet.
    row('formula-in-csv', "hostile_text.py::test_formulas_in_csv[--'-]", 'analysis/write/emit.c',
        '!right && is_formula(text, length)', 'right && is_formula(text, length)'),
    # Of rows of equal value the last comes first.
    row('equal-rows-turned-round', 'sorted_rows.py::test_rows_are_sorted_by_each_key[breakdown]', 'analysis/write/rows/sorted_rows.c',
        '(x->place > y->place) - (x->place < y->place)', '(y->place > x->place) - (y->place < x->place)'),
    # An event with a control character of two bytes changes the terminal.
    row('escape-reaches-the-terminal', 'writing_on_cores.py::test_events_are_valid_json_on_any_number_of_cores[1]', 'analysis/base/escape.c',
        'c == 0xc2 || c == 0xd8 ||', 'c == 0xd8 ||'),
    # Activations are inputs in the categories of memory.
    row('first-output-only', 'memory_flow.py::test_random_runs[10]', 'analysis/ask/memory/assign.c',
        'i < node->outputs; i++) found(s, outputs_of(s->passes, node)[i]);',
        'i < node->outputs; i += node->outputs) found(s, outputs_of(s->passes, node)[i]);'),
    # Kernels that differ in their arguments have one short name.
    row('short-names-alike', 'short_names.py::test_arguments_that_tell_kernels_apart[numbers]', 'analysis/write/short_names.c',
        'if (classes > most || better) {', 'if (better) {'),
    # The critical path knows no event of another stream.
    row('events-of-streams-ignored', 'critical_path.py::test_two_streams_with_an_event', 'analysis/ask/critical/exact_follow.c',
        'later(f, point_of(f, lane), map_get(&f->event, event)));', 'point_of(f, lane));'),
    # A cut file of torch's memory rows passes for a whole one.
    row('rows-cut-in-silence', 'memory_rows.py::test_damaged_rows[text5-2-ends early]', 'analysis/read/torch/memory_rows.c',
        '    w->damage->cut = true;\n', '    (void)w;\n'),
    # A dump of a stranger takes all memory.
    row('values-without-end', 'hang_flight.py::test_hostile_pickles[four million values]', 'analysis/read/torch/pickle_machine.c',
        'return ++m->values <= m->most_values ||', 'return true ||'),
    # A list that a snapshot uses again and again fills all memory.
    row('events-count-twice', 'snapshots.py::test_hostile_files[one trace a thousand times]', 'analysis/read/torch/memory_snapshot.c',
        'if (!is_used_once(r->snapshot))', 'if (is_used_once(r->snapshot) && 0)'),
    # The totals of a ring lack the blocks that were in use before its first event.
    row('older-blocks-forgotten', 'snapshots.py::test_a_ring[50]', 'analysis/model/memory/snapshot_trace.c',
        'if (given == MAP_NONE && block->size) add_older', 'if (given == MAP_NONE && !block->size) add_older'),
    # A block is freed twice: when that is requested and when it is completed.
    row('frees-count-twice', 'snapshots.py::test_totals[True-2]', 'analysis/model/memory/snapshot_trace.c',
        'if (was_requested || ', 'if ((was_requested && 0) || '),
    # An event of wrong types vanishes in silence.
    row('wrong-types-in-silence', 'snapshots.py::test_wrong_types[addr-x]', 'analysis/read/torch/snapshot_build.c',
        'if (list->of) b->snapshot->bad += list->others;', ''),
    # A budget replaces a link that somebody left at its name.
    row('link-as-a-target', 'budget.py::test_where_a_budget_is_written', 'analysis/base/file_out.c',
        '== 0 && !S_ISREG(status.st_mode)) {\n        *why = occupied', '== 0 && S_ISDIR(status.st_mode)) {\n        *why = occupied'),
    # Copies count as kernels of an annotation.
    row('copies-are-kernels', 'gpu_answers.py::test_annotations[2]', 'analysis/ask/device/annotation_rows.c',
        'w->event_class[i] == CLASS_KERNEL;', 'w->event_class[i] != CLASS_MEMSET;'),
    # Collectives behind a restart of the numbers are matched with those before it.
    row('restart-ignored', 'comm.py::test_a_sequence_that_restarts', 'analysis/ask/comm/parts.c',
        'epoch += restart;', 'epoch += 0;'),
    # Clocks of two hosts drift apart in `comm`.
    row('drift-of-clocks-ignored', 'comm.py::test_clocks_of_several_hosts[times-of-day]', 'analysis/ask/comm/comm_clock.c',
        'fit->shift.drift = likely_drift(fit->shift.drift + slope);', 'fit->shift.drift = 0;'),
    # A counter in Perfetto has an older value at a moment with several changes.
    row('older-value-of-a-counter', 'export_pftrace.py::test_a_trace_of_ours', 'analysis/write/pftrace/arrows.c',
        '                pf->sample[track->sample - 1].value = sample->value;\n', ''),
    # device_sum_ms of a stage is the time of its last records.
    row('sum-of-the-last-records', 'gpu_pipeline.py::test_device_sums[nvtx]', 'preload/cupti/stage_sums.c',
        'sums.node[node].ns += ns;', 'sums.node[node].ns = ns;'),
    # A wide NVTX message with half a character becomes invalid text.
    row('half-a-character', 'nvtx.py::test_attributes_out_of_the_ordinary', 'preload/nvtx/names.c',
        '(c >= 0xd800 && c < 0xe000) ? 0xfffd : c', '(c >= 0xd800 && c < 0xe000 && !c) ? 0xfffd : c'),
    # A program whose ranges end on other threads than they began on grows without end.
    row('ended-elsewhere-is-lost', 'torch_ranges.py::test_ranges_ended_elsewhere_are_reused', 'preload/torch/torch.c',
        '    own->free = __atomic_exchange_n(&own->returned, NULL, __ATOMIC_ACQUIRE);\n', ''),
    # A launch has the call stack of another place that launches the same kernel.
    row('stack-of-an-earlier-call', 'callstack.py::test_calls', 'preload/hooks/call_record.c',
        ' ||\n        row->stack != call->stack)', ')'),
    # Python frames have the lines of other instructions.
    row('line-table-misread', 'callstack.py::test_python_frames[newest]', 'preload/python/frames.c',
        'address += ((*p & 7) + 1) * 2;', 'address += (*p & 7) + 1;'),
    # Operators have the shapes of others.
    row('sizes-not-in-the-key', 'torch_ops.py::test_fork_after_import', 'preload/torch/inputs.c',
        'mix_two(key, (uint64_t)t.sizes[i], ', 'mix_two(key, i ? (uint64_t)t.sizes[i] : 0, '),
    row('strides-not-in-the-key', 'torch_ops.py::test_operators_are_the_profilers', 'preload/torch/inputs.c',
        't.strides ? (uint64_t)t.strides[i] : 0', '0'),
    # An autograd node has the name of an earlier one at the same address.
    row('name-by-its-address', 'torch_ops.py::test_operators_are_the_profilers', 'preload/torch/torch.c',
        ' && strcmp(set[i].text, name) == 0', ''),
    # The library reads a libtorch whose structures it does not know.
    row('structures-not-tried', 'torch_ops.py::test_structures_that_do_not_match[sizes]', 'preload/python/shim/shim_torch.py',
        '        if found[:parts] != expected[:parts]:', '        if found[:1] != expected[:1]:'),
    # A record_function in one task takes the operators of other tasks while it waits.
    row('range-of-a-task-not-paused', 'torch_ranges.py::test_a_range_in_a_task_rests_while_the_task_waits[asyncio]', 'preload/python/shim/shim_stages.py',
        '    for range_id in reversed(ids):\n        _pause(range_id)\n', ''),
    # Native frames that Python calls appear before all Python frames.
    row('stacks-not-joined', 'callstack.py::test_joined[newest]', 'preload/python/callstack.c',
        '        if (f->first) break;\n', ''),
    # After fork a child's call stacks have frames from the parent's string table.
    row('stacks-of-the-parent', 'callstack.py::test_fork_of_python', 'preload/python/callstack.c',
        '    __atomic_store_n(&chains,', '    if (!chains) __atomic_store_n(&chains,'),
    # A stack names frames that do not exist, without a message.
    row('damaged-stack-not-said', 'operators_export.py::test_damaged_stacks[not there]', 'analysis/model/frames.c',
        '            good = false;\n', ''),
    # A stage's harness gets the object as its first argument.
    row('self-goes-in', 'signature.py::test_names_are_those_of_the_parameters', 'preload/python/shim/shim_signature.py',
        '        names, args = names[1:], args[1:]', '        names, args = names, args'),
    # A trace repeats one signature at every call.
    row('signature-at-each-call', 'signature.py::test_said_once_until_types_or_lengths_change', 'preload/python/shim/shim_signature.py',
        '    if key in seen:\n', '    if key in ():\n'),
    # Native functions are recorded while operators are switched off; builtins of extension modules are not counted.
    row('native-without-operators', 'dispatches.py::test_builtins_are_operators[ops--ops-False]', 'preload/python/torch_builtins.c',
        'if (tfi_call_wanted(t) && tfi_recording(TFI_ACTIVITY_OPS)) {', 'if (tfi_call_wanted(t)) {'),
    row('builtins-not-counted', 'dispatches.py::test_builtins_by_stage[newest-None]', 'analysis/ask/ops/dispatches.c',
        'return scope == TFI_SCOPE_NATIVE || known;', 'return known;'),
    # A TeleFuser stage inside a compiled function breaks its graph, which fullgraph=True refuses.
    row('marker-breaks-the-graph', 'pipelines.py::test_markers_break_no_graph[telefuser_stages]', 'preload/python/shim/shim_telefuser.py',
        'if not _is_compiling():\n                _telefuser_names.set(', 'if True:\n                _telefuser_names.set('),
    # All steps of a pipeline have the first step's number.
    row('step-not-counted', 'pipelines.py::test_detail_of_a_part[diffusion]', 'preload/python/shim/shim_auto.py',
        '_auto_local.pipelines[-1] += 1', '_auto_local.pipelines[-1] += 0'),
    # Arguments of dftracer's events are lost.
    row('events-without-arguments', 'dftracer_python.py::test_equal_to_dftracers_own[off]', 'preload/python/shim/shim_dftracer.py',
        '            _details(stage.id, name, text)\n', '            _debug(text)\n'),
    # dftracer writes nothing.
    row('dftracer-does-not-write', 'dftracer_python.py::test_nothing_is_taken_from_the_program[on]', 'preload/python/shim/shim_dftracer.py',
        '                result = theirs(*args, **kwargs)\n                given =', '                result = None if "cat" in kwargs else theirs(*args, **kwargs)\n                given ='),
    # The Chrome trace has stages without dftracer's arguments.
    row('export-without-details', 'dftracer_python.py::test_exports', 'analysis/write/export/export_ops.c',
        'if (p->signature[i].direction == SIGNATURE_DETAILS)', 'if (p->signature[i].direction == SIGNATURE_MEMORY)'),
    # Nothing is recorded after a cache-dit profile.
    row('schedule-without-end', 'pipelines.py::test_cache_dit[cachedit_profile]', 'preload/python/shim/shim_markers.py',
        "_schedule('', step) == 0", '_schedule(step, step) == 0'),
    # cache-dit's own profiler does not run where it can.
    row('cache-dit-refused', 'cache_dit_gpu.py::test_what_a_program_finds_afterwards', 'preload/python/shim/shim_markers.py',
        '            theirs(self)\n            opened(self, module)\n', '            opened(self, module)\n'),
    # cache-dit's --profile-activities, --profile-with-stack and --profile-record-shapes have no effect.
    row('nobody-asks', 'cache_dit.py::test_nothing_else_is_recorded', 'preload/control/schedule.c',
        'return (word & (asked | fixed)) | (asked & ~fixed & TFI_ACTIVITY_STACK);', 'return word | (asked & fixed & 0);'),
    # The end of an inner context also ends the operators of the outer one.
    row('one-end-for-all', 'cache_dit.py::test_nothing_else_is_recorded', 'preload/control/schedule.c',
        'else if (now.askers[i]) now.askers[i]--;', 'else now.askers[i] = 0;'),
    # The user's environment has no effect inside cache-dit's contexts.
    row('environment-not-first', 'cache_dit.py::test_the_users_environment_goes_first[TFI_ACTIVITIES-]', 'preload/control/config.c',
        'if (tfi_value_parse(v->type, value, (char *)&tfi_config + v->field)) fix(v);',
        'if (tfi_value_parse(v->type, value, (char *)&tfi_config + v->field)) (void)fix;'),
    # A trace requested for the device alone has operators.
    row('operators-unasked', 'cache_dit.py::test_processors[gpu-]', 'analysis/write/export/export_ops.c',
        's->table.count && !(x->asked->without & WITHOUT_CPU); i++) {\n        if (s->event_class[i]', 's->table.count; i++) {\n        if (s->event_class[i]'),
    # A report on another machine's run writes into a directory of this machine.
    row('directory-of-elsewhere', 'cache_dit.py::test_processors[cpu-]', 'analysis/commands/report/cache_dit_requests.c',
        'if (!p->is_of_reader) {', 'if (!p->host) {'),
    # A task gets the work of other tasks.
    row('task-keeps-its-stages', 'functions.py::test_asyncio[newest]', 'preload/python/shim/shim_stages.py',
        '    for range_id in reversed(ids):\n        _pause(range_id)\n',
        '    for range_id in reversed(ids):\n        _debug(str(range_id))\n'),
    # Tasks of uvloop are invisible.
    row('uvloop-not-seen', 'torch_ranges.py::test_a_range_in_a_task_rests_while_the_task_waits[uvloop]', 'preload/python/shim/shim_stages.py',
        'callback if _task_of(callback) is None else _Step(callback)', 'callback'),
    # A coroutine that waits for a second counts a second of host time.
    row('pause-counts-as-run', 'functions.py::test_asyncio[newest]', 'preload/stage/stage.c',
        'entry->range.since = now;',
        'entry->range.since = entry->range.start;'),
    # A forked child that leaves its parent's stages reports a loss.
    row('stages-of-the-parent', 'functions.py::test_fork[newest]', 'preload/stage/stage.c',
        'MAX_STARTED <= started.before;', 'MAX_STARTED < 0 * started.before;'),
    # A pipeline stopped by Ctrl-C has no stage times.
    row('interrupt-leaves-no-timing', 'functions.py::test_keyboard_interrupt[newest]', 'preload/hooks/process_end.c',
        'pid == tfi_getpid() && finish_by(number);', 'pid == tfi_getpid() && number < 0 && finish_by(number);'),
    # Python with -X dev aborts at its end.
    row('entry-freed-by-another', 'python.py::test_modes[newest-development]', 'preload/python/python.c',
        "event[0] == 'c'", "event[0] == '-'"),
    # A time limit that the program sets no longer raises.
    row('exception-of-a-handler-swallowed', 'python_weather.py::test_exceptions_of_signal_handlers_are_the_programs[newest]',
        'preload/python/shim/shim_functions.py', '        if _is_handlers(error):\n            raise\n        _fail(error)', '        _fail(error)'),
    # A model that the program deletes keeps its memory.
    row('last-model-kept', 'python_weather.py::test_modules_are_not_kept_alive', 'preload/python/shim/shim_torch.py',
        'local.root = None  #', 'pass  #'),
    # A module that the shim waits for keeps our class as its spec.
    row('spec-keeps-our-class', 'python.py::test_imports_look_the_same[newest]', 'preload/python/shim/shim.py',
        '        spec.__class__ = _ModuleSpec\n', ''),
    # Launch delays are off by the difference between the clocks of host and device.
    row('launch-by-the-other-clock', 'device_calls.py::test_clocks_that_differ[-9]', 'analysis/model/join.c',
        'p->spans.start[span->place] = best->start;',
        '(void)best;'),
    # A budget passes while the process still runs.
    row('cut-trace-keeps-a-budget', 'budget.py::test_a_process_that_has_not_ended', 'analysis/ask/budget/judge.c',
        'if (!whole) return TRACE_INCOMPLETE;',
        '(void)whole;'),
    # A budget passes for a stage whose calls were never recorded.
    row('unrecorded-stage-keeps-a-budget', 'budget.py::test_stages_that_were_not_recorded[steps left one out]', 'analysis/ask/budget/counts.c',
        'row->recorded |= is_kept && (outside || is_recorded(choice, range));',
        'row->recorded = true;'),
    # A budget passes with the calls of some entries of a stage.
    row('half-a-stage-keeps-a-budget', 'budget.py::test_a_stage_that_is_selected_in_places', 'analysis/ask/budget/counts.c',
        'row->partly |= !is_kept || (',
        'row->partly |= ('),
    # A rank that only one run has makes the other one look faster.
    row('ranks-of-one-run-compared', 'diff.py::test_common_ranks', 'analysis/ask/diff/diff_rows.c',
        'return has_rank(ranks, side, rank) && (ranks->one_each || has_rank(ranks, 1 - side, rank));',
        'return has_rank(ranks, side, rank);'),
    # A comparison with a timing.json takes the first call of a stage for its last one.
    row('first-call-for-the-last', 'diff.py::test_timing_of_a_report', 'analysis/ask/stages/stage_table.c',
        'if (!row->last.process || end >= row->last.end)', 'if (!row->last.process)'),
    # Work launched by an ended thread, or by no thread, goes to the last thread.
    row('thread-lives-for-ever', 'device_calls.py::test_threads_that_are_not_known_at_that_moment', 'analysis/model/load/threads.c',
        'l->life[i].end = end == MAP_NONE ? UINT64_MAX : l->end[end];',
        'l->life[i].end = end == MAP_NONE ? UINT64_MAX : UINT64_MAX;'),
    row('last-thread-of-a-number', 'device_calls.py::test_threads_with_the_same_pthread_self', 'analysis/model/load/threads.c',
        '(life->pthread == pthread && life->start <= time)',
        'life->pthread == pthread'),
    # Waits appear on a device that does not exist.
    row('wait-without-device', 'device_export.py::test_copies_sets_and_waits', 'analysis/model/load/device.c',
        'device == MAP_NONE ? -1 : (int64_t)device, sync->stream',
        'device == MAP_NONE ? -1 : -1, sync->stream'),
    # Arrows lead from one rank's calls to another's work.
    row('arrows-of-ranks-collide', 'device_export.py::test_several_processes_in_one_file', 'analysis/write/export/export_tfr.c',
        'file->ids = 1 + MAX(', 'file->ids = 1 + 0 * MAX('),
    # A graph launch is as late as its last node.
    row('delay-to-the-last-work', 'device_calls.py::test_a_replayed_graph_belongs_to_its_launch', 'analysis/ask/device/launch_sums.c',
        's->first = s->works ? MIN(s->first, w->start[i])',
        's->first = s->works ? MAX(s->first, w->start[i])'),
    # Kernels have as many threads as blocks.
    row('block-is-grid', 'device_export.py::test_kernels', 'analysis/model/load/device.c',
        'detail->block[k] = (uint32_t)from->block[k][i];',
        'detail->block[k] = (uint32_t)from->grid[k][i];'),
    # A C function is shown under another name.
    row('plain-names-demangled', 'device_export.py::test_names_that_are_no_mangled_ones', 'analysis/base/kernel_names.c',
        'strncmp(name, "_Z", 2) != 0 || ',
        ''),
    # A program that looks for a driver finds one that it must not see.
    row('driver-opened-for-others', 'cuda_routes.py::test_asking_at_large_for_a_local_library[RTLD_DEFAULT-RTLD_LOCAL|RTLD_NODELETE]',
        'preload/hooks/dl.c',
        'return dl_iterate_phdr(look_at_object, &s) && s.before < at_start;',
        'return dl_iterate_phdr(look_at_object, &s) && s.before < at_start && false;'),
    # Nsight Compute measures another launch of the kernel, or another kernel.
    row('skip-one-too-few', 'ncu.py::test_the_right_launch_is_measured[ours]', 'analysis/ask/ncu/ncu_launches.c',
        'l[i].before = number == MAP_NONE ? 0 : number;',
        'l[i].before = number == MAP_NONE ? 0 : number - 1;'),
    row('skip-in-order-of-starts', 'ncu.py::test_the_right_launch_is_measured[torch]', 'analysis/ask/ncu/ncu_launches.c',
        'int64_t time = a->launch[i] == NO_PLACE ? w->start[i] : p->spans.start[a->launch[i]];',
        'int64_t time = w->start[i];'),
    # A number of another locale is a thousand times as large.
    row('ncu-decimals', 'ncu.py::test_every_form_has_the_same_numbers[German]', 'analysis/read/ncu/ncu_number.c',
        "decimal = locale->commas > locale->points ? ',' : '.';",
        "decimal = locale->commas > locale->points + 1000 ? ',' : '.';"),
    # One percentage decides what bounds a kernel.
    row('one-percentage', 'ncu.py::test_what_bounds_a_kernel[values8-None-compute]', 'analysis/ask/ncu/ncu_judge.c',
        'if (facts) return BOUND_LATENCY;',
        'if (facts || true) return BOUND_LATENCY;'),
    # A kernel gets the share of another one with the same function.
    row('any-of-several', 'ncu.py::test_kernels_have_their_share_of_the_stage', 'analysis/ask/ncu/ncu_names.c',
        'map_put(map, text, known == MAP_NONE || known == name ? name : SEVERAL);',
        'map_put(map, text, known == MAP_NONE || known == name ? name : known);'),
    # A word of the command line is run by the shell.
    row('unquoted-quote', 'ncu.py::test_the_text_is_a_script', 'analysis/commands/ncu/ncu_plan.c',
        "if (*p == '\\'') text_puts(line, \"'\\\\''\");",
        "if (*p == '\\'') text_puts(line, \"'\");"),

    # A program that forks once is not sampled any more.
    row('no-sampler-after-a-fork', 'samples.py::test_samples_after_a_fork[newest]', 'preload/sample/sample_records.c',
        '.again = tfi_sampler_start}', '}'),
    # A parent that only computes after os.fork() is not watched.
    row('caller-of-fork-starts-nothing', 'samples.py::test_samples_after_a_fork[newest]', 'preload/python/python.c',
        'if (tfi_python.PyEval_GetFrame() == forking.frame || !is_in_fork()) {',
        'if (!forking.frame) {'),
    # From 3.12 on os.fork() warns of a thread that is ours.
    row('thread-starts-in-os-fork', 'forks.py::test_no_thread_of_ours_in_os_fork[newest-silence]', 'preload/record/worker.c',
        'tfi_monotonic_ms() < until;',
        'tfi_monotonic_ms() > until;'),
    # A script that never imports torch leaves no trace.
    row('plain-script-not-woken', 'plain_scripts.py::test_a_plain_script[newest]', 'preload/sample/thread_sampler.c',
        'if (asleep && script >= longest && is_first(WAKES)) tfi_enter_awake();',
        'if (asleep && !longest && is_first(WAKES)) tfi_enter_awake();'),
    # `import torch` alone leaves a file.
    row('imports-taken-for-the-script', 'plain_scripts.py::test_scripts_that_leave_no_file[newest]', 'preload/sample/thread_sampler.c',
        'if (!ran || !s->period.stack || s->period.flags & TFI_SAMPLED_IMPORT) return;',
        'if (!ran || !s->period.stack) return;'),
    # The samples of a script from before it was woken are missing.
    row('samples-before-waking-lost', 'plain_scripts.py::test_imports_before_a_script_ran[newest]', 'preload/sample/thread_sampler.c',
        'if (slept && tfi_recording_switched) return;',
        'if (slept) return;'),
    # The waiting server of multiprocessing leaves a file.
    row('server-of-forks-recorded', 'plain_scripts.py::test_processes_of_multiprocessing[forkserver-newest]', 'preload/control/helper.c',
        'helpers[i].kind == SERVER && kind == CODE && !is_child',
        'helpers[i].kind == SERVER && kind == CODE && is_child'),
]


class Tree:
    """A copy of the built tree, with build/venv and build/nvidia as links."""

    def __init__(self, directory):
        self.root = directory
        (directory / 'build').mkdir()
        for source, names, target in ((ROOT, SOURCES, directory), (BUILD, BUILT, directory / 'build')):
            subprocess.run(['cp', '-a', *(source / n for n in names), target], check=True)
        for name in ('venv', 'nvidia'):
            if (BUILD / name).exists():
                (directory / 'build' / name).symlink_to(BUILD / name)
        # Another compiler or version than the build's would compile everything again.
        cc, cxx, flags = (BUILD / 'flags').read_text().split(' ', 2)
        version = re.search("TFI_VERSION='\"(.*?)\"'", flags).group(1)
        self.make = ['make', '-j2', f'VERSION={version}', f'CC={cc}', f'CXX={cxx}', *(f'build/{t}' for t in TARGETS)]

    @contextlib.contextmanager
    def breaks(self, path, text):
        """Puts this text into the file; afterwards restores the file and everything built from it, with times."""
        kept = self.root / 'kept'
        if not kept.exists():
            self.build()
            kept.mkdir()
            subprocess.run(['cp', '-a', *(self.root / 'build' / name for name in REMADE), kept], check=True)
        before, times = path.read_text(), path.stat()
        try:
            path.write_text(text)
            yield
        finally:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            for old in (p for p in kept.rglob('*') if p.is_file()):
                new = self.root / 'build' / old.relative_to(kept)
                if not new.exists() or new.stat().st_mtime_ns != old.stat().st_mtime_ns:
                    new.unlink(missing_ok=True)
                    shutil.copy2(old, new)

    def build(self):
        result = execute(self.make, clean_environment(), self.root, 600)
        assert result.rc == 0, f'the broken line does not compile, so no test runs\n{result.out}{result.err}'
        return set(re.findall(r'^  CC\w* +(\S+)', result.out, re.M))

    def test(self, name):
        """The assertion message of a test, or None if it passes."""
        report = self.root / 'report.xml'
        report.unlink(missing_ok=True)
        command = ['build/venv/bin/python', '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-p', 'no:xdist',
                   f'--junit-xml={report}', f'--basetemp={self.root}/tmp', name]
        result = execute(command, {**clean_environment(), 'PYTHONDONTWRITEBYTECODE': '1'}, self.root, 300)
        assert result.rc in (0, 1) and report.exists(), result.out[-3000:] + result.err
        cases = ElementTree.parse(report).getroot().findall('.//testcase')
        ran = [c for c in cases if c.find('error') is None and c.find('skipped') is None]
        assert len(ran) == len(cases) == 1, f'a row names several tests, or none\n{result.out[-3000:]}'
        failure = cases[0].find('failure')
        assert (failure is not None) == (result.rc == 1)
        return None if failure is None else failure.get('message')


@pytest.fixture(scope='session')
def tree(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp('mutations'))
    assert tree.build() == set(), 'the copy is not built'
    yield tree
    assert tree.build() == set(), 'the copy differs from its state before the mutation'
    shutil.rmtree(tree.root, ignore_errors=True)


def test_the_table_is_up_to_date(request):
    """Each row's line is in its file exactly once, and its test is one of this run's if the run has all tests."""
    assert [r.name for r in ROWS if (ROOT / r.file).read_text().count(r.line) != 1] == []
    option = request.config.option
    if not option.markexpr and not option.keyword and [Path(a).resolve() for a in request.config.args] == [ROOT / 'tests']:
        collected = {item.nodeid.partition('@')[0] for item in request.session.items}
        assert [r.name for r in ROWS if r.test not in collected] == []


@pytest.mark.rotating(BROKEN)
@pytest.mark.parametrize('mutation', [pytest.param(r, id=r.name, marks=pytest.mark.xdist_group(f'mutations-{i % GROUPS}'))
                                      for i, r in enumerate(ROWS)])
def test_broken(tree, mutation):
    """The test passes in the copy, and fails by an assertion when the line is broken."""
    assert tree.test(mutation.test) is None
    path = tree.root / mutation.file
    text = path.read_text()
    with tree.breaks(path, text.replace(mutation.line, mutation.broken)):
        assert tree.build(), 'no file was compiled again'
        said = tree.test(mutation.test)
    assert said, f'{mutation.test} passes in spite of: {mutation.broken}'
    assert re.match(r'(AssertionError|assert )', said), said

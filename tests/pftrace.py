"""pftrace - reads Perfetto traces with the package perfetto of PyPI, and checks the rules of the format.

It shares no code with the analyser: packets are decoded by perfetto_trace_pb2, and slices, flows and counters follow
from them as trace_processor forms them.
"""

import gzip
from types import SimpleNamespace

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

CLEARED, NEEDS_STATE = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
REAL, BOOT = 1, 6


class Sequence:
    """The state of one packet sequence: its clock and its interned texts."""

    def __init__(self):
        self.clock = self.time = None
        self.texts = {'event_categories': {}, 'event_names': {}, 'debug_annotation_names': {}, 'debug_annotation_string_values': {}}

    def intern(self, data):
        for table, texts in self.texts.items():
            for entry in getattr(data, table):
                text = entry.str.decode() if table == 'debug_annotation_string_values' else entry.name
                assert texts.setdefault(entry.iid, text) == text and entry.iid > 0

    def value(self, a):
        """The Python value of an annotation; None if it has none."""
        kind = a.WhichOneof('value')
        if a.dict_entries:
            return {self.texts['debug_annotation_names'][e.name_iid]: self.value(e) for e in a.dict_entries}
        if a.array_values:
            return [self.value(e) for e in a.array_values]
        if kind == 'string_value_iid':
            return self.texts['debug_annotation_string_values'][a.string_value_iid]
        return getattr(a, kind) if kind else None

    def args(self, event):
        return {self.texts['debug_annotation_names'][a.name_iid]: self.value(a) for a in event.debug_annotations}


def read(path):
    """tracks {uuid: descriptor}, slices, instants, counters {name of the track: [(time, value)]}, flows [(from, to)]."""
    data = path.read_bytes()
    packets = pb.Trace()
    packets.ParseFromString(gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data)
    found = SimpleNamespace(tracks={}, slices=[], instants=[], counters={}, flows=[], sequences={})
    stacks, flows = {}, {}
    for packet in packets.packet:
        take(found, packet, stacks, flows)
    assert not any(stacks.values()), 'a slice has no end'
    assert all(ends[1] for ends in flows.values())
    found.flows = [tuple(ends) for ends in flows.values()]
    for track in found.tracks.values():
        assert not track.parent_uuid or track.parent_uuid in found.tracks
    return found


def take(found, packet, stacks, flows):
    number = packet.trusted_packet_sequence_id
    assert number > 0
    if packet.sequence_flags & CLEARED:
        assert number not in found.sequences and packet.trace_packet_defaults.timestamp_clock_id == 64
        found.sequences[number] = Sequence()
    state = found.sequences[number]
    state.intern(packet.interned_data)
    if packet.HasField('clock_snapshot'):
        clocks = {c.clock_id: c for c in packet.clock_snapshot.clocks}
        assert packet.clock_snapshot.primary_trace_clock == BOOT and clocks[64].is_incremental
        assert clocks[REAL].timestamp == clocks[BOOT].timestamp == clocks[64].timestamp
        state.time = clocks[64].timestamp
    elif packet.HasField('track_descriptor'):
        assert found.tracks.setdefault(packet.track_descriptor.uuid, packet.track_descriptor) is packet.track_descriptor \
            and packet.track_descriptor.uuid
    elif packet.HasField('track_event'):
        assert packet.sequence_flags == NEEDS_STATE
        state.time += packet.timestamp
        take_event(found, state, packet.track_event, stacks, flows)


def take_event(found, state, event, stacks, flows):
    stack = stacks.setdefault(event.track_uuid, [])
    assert event.track_uuid in found.tracks
    if event.type == END:
        stack.pop().end = state.time
        return
    if event.type == COUNTER:
        track = found.tracks[event.track_uuid]
        assert track.HasField('counter')
        value = event.counter_value if event.HasField('counter_value') else event.double_counter_value
        found.counters.setdefault(track.name, []).append((state.time, value))
        return
    s = SimpleNamespace(name=state.texts['event_names'][event.name_iid], start=state.time, end=None,
                        category=''.join(state.texts['event_categories'][i] for i in event.category_iids),
                        args=state.args(event), track=found.tracks[event.track_uuid], around=stack[-1] if stack else None)
    for flow in event.flow_ids:
        assert flow not in flows
        flows[flow] = [s, None]
    for flow in event.terminating_flow_ids:
        assert flows.setdefault(flow, [None, None])[1] is None
        flows[flow][1] = s
    if event.type == BEGIN:
        stack.append(s)
        found.slices.append(s)
    else:
        assert event.type == INSTANT
        found.instants.append(s)


def row(found, track):
    """(process, device, row) names of a track; the device is None for a thread."""
    parent = found.tracks[track.parent_uuid]
    name = track.thread.tid if track.HasField('thread') else track.name
    if parent.HasField('process'):
        return parent.process.process_name, None, name
    return found.tracks[parent.parent_uuid].process.process_name, parent.name, name

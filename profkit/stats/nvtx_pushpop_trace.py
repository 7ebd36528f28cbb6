"""Every NVTX push/pop range in order of its start, with its place in the tree of its thread."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.arrays import key_of, numbered
from profkit.model import Trace
from profkit.stats import Arguments, Column, Listing, Report
from profkit.stats._kernels import threads
from profkit.stats._ranges import PUSH_POP, Ranges, Tree, find_ranges, numbers, stacks, tree
from profkit.stats._summary import known, words


def build(trace: Trace, arguments: Arguments) -> Listing:
    ranges = find_ranges(trace, PUSH_POP)
    found = tree(ranges)
    pid, tid = threads(trace, ranges.track)
    ids = numbers(ranges)
    of_children = found.sum_children(ranges.dur)
    columns = [
        (Column("Start (ns)", "start_ns"), pa.array(ranges.start)),
        (Column("End (ns)", "end_ns"), pa.array(ranges.end)),
        (Column("Duration (ns)", "duration_ns"), pa.array(ranges.dur)),
        (Column("DurChild (ns)", "dur_child_ns"), pa.array(of_children)),
        (Column("DurNonChild (ns)", "dur_non_child_ns"), pa.array(ranges.dur - of_children)),
        (Column("Name", "name"), words(ranges.name, ranges.names)),
        (Column("PID", "pid"), known(pid)),
        (Column("TID", "tid"), known(tid)),
        (Column("Lvl", "level"), pa.array(found.level)),
        (Column("NumChild", "num_child"), pa.array(found.children(np.ones(len(ranges), bool)))),
        (Column("RangeId", "range_id"), pa.array(ids)),
        (Column("ParentId", "parent_id"), pa.array(ids[found.parent], mask=found.parent < 0)),
        (Column("RangeStack", "range_stack"), stacks(ids, found)),
        (Column("NameTree", "name_tree"), _name_tree(ranges, found)),
    ]
    order = pa.array(np.lexsort((ranges.dur, ranges.start)))
    return Listing(
        tuple(column for column, _ in columns), tuple(values.take(order) for _, values in columns), ranges.remarks
    )


def _name_tree(ranges: Ranges, found: Tree) -> pa.Array:
    """Names indented by two dashes a level."""
    _, first, codes = numbered(key_of(found.level, ranges.name))
    pairs = zip(found.level[first].tolist(), ranges.name[first].tolist(), strict=True)
    return words(codes, ["--" * level + ranges.names[name] for level, name in pairs])


REPORT = Report(
    name="nvtx_pushpop_trace",
    former_name="nvtxpptrace",
    title="NVTX Push/Pop Range Trace",
    what="NVTX push/pop ranges",
    tables=("spans",),
    build=build,
)

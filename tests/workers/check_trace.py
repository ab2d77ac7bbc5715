"""Checks a merged trace: valid JSON, the phases of every replica, nested spans, collectives that overlap in time.

    check_trace.py FILE --workers N --replicas N --steps FIRST-LAST
"""

import argparse
import collections
import json


def check_nesting(spans):
    """Spans of a thread are inside each other or apart, as viewers require."""
    open_ends = []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        end = span["ts"] + span["dur"]
        while open_ends and open_ends[-1] <= span["ts"] + 0.0005:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 0.0015, f"crosses the end of another span: {span}"
        open_ends.append(end)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--steps", required=True)
    told = parser.parse_args()
    first, last = map(int, told.steps.split("-"))
    with open(told.file, encoding="utf-8") as file:
        events = json.load(file)
    spans = [event for event in events if event["ph"] == "X"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {event["pid"] for event in spans} == set(range(told.workers))
    assert all(first <= span["args"]["step"] <= last for span in spans)
    by_thread = collections.defaultdict(list)
    for span in spans:
        by_thread[span["pid"], span["tid"]].append(span)
    for of_thread in by_thread.values():
        check_nesting(of_thread)
    for worker in range(told.workers):
        for local in range(told.replicas):
            name = f"replica {worker * told.replicas + local}"
            threads = [thread for thread, own in names.items() if own == name and thread[0] == worker]
            assert len(threads) == 1, (name, names)
            found = collections.Counter(span["name"] for span in by_thread[threads[0]])
            for phase in ("forward", "backward", "update", "run"):
                assert found[phase] == last - first + 1, (name, phase, found)

    # A collective of all workers begins on each of them before it ends on any. With messages the workers meet in
    # buckets, with shared memory in the update.
    shared = "bucket" if any(span["name"] == "bucket" for span in spans) else "optimizer step"
    collectives = collections.defaultdict(list)
    counts = collections.Counter()
    for span in sorted(spans, key=lambda s: s["ts"]):
        if span["name"] != shared:
            continue
        key = span["name"], span["args"]["step"]
        number = counts[key, span["pid"], span["tid"]]
        counts[key, span["pid"], span["tid"]] += 1
        collectives[key, number].append(span)
    checked = 0
    for key, of_all in collectives.items():
        if {span["pid"] for span in of_all} != set(range(told.workers)):
            continue
        begin = max(span["ts"] for span in of_all)
        end = min(span["ts"] + span["dur"] for span in of_all)
        assert begin <= end, (key, of_all)
        assert all(span["args"]["bytes"] > 0 for span in of_all), (key, of_all)
        checked += 1
    assert checked >= last - first + 1, collectives.keys()
    print(f"trace: {len(spans)} spans, {len(names)} threads, {checked} collectives overlap on all workers")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""The bound of an all-reduce, by a solver that is not ours (scipy's HiGHS).

Reads a JSON dump (control/balance/scenario_json.hpp) from a file or standard input; several dumps, one a line, give
one answer a line. Prints {"bound_ns_per_byte": T or null, "feasible": bool}.

Independent of control/balance on purpose: every lane of every trunk direction is a variable of its own, flow
conservation is an equality, and T is the variable that is minimised. Nothing here is fast.

Unknowns: q[j,h], the fraction of the bytes with column j and home domain h; f[lane, direction], bytes; T, time.
"""
import json
import sys

import numpy
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

FULL = 0.999  # a link at this fraction of nominal is whole
DEAD_GBPS = 1e-6  # below this a link carries nothing


def capacity(links, link, direction):
    return links[link]["bwd_GBps" if direction else "fwd_GBps"]


def path(lane, direction):
    """Link directions that data crosses; direction 0 is a -> b."""
    return [(link, d ^ direction) for link, d in lane["near"] + lane["far"]]


def path_alive(links, lane, direction):
    hops = path(lane, direction)
    if not hops:
        return lane.get("limit_GBps", 0) > DEAD_GBPS
    return all(capacity(links, link, d) > DEAD_GBPS for link, d in hops)


def alive(links, lane, direction):
    if lane["addressable"]:
        return path_alive(links, lane, direction)
    return path_alive(links, lane, 0) and path_alive(links, lane, 1)


def eligible(links, lanes, direction):
    """Of one trunk's lanes, those that may carry in this direction."""
    living = [lane for lane in lanes if alive(links, lane, direction)]
    for lane in living:
        if lane["kind"] == "nvlink" and all(
            capacity(links, link, d) >= FULL * links[link]["nominal_GBps"] for link, d in path(lane, direction)
        ):
            return [lane]
    better = [lane for lane in living if lane["kind"] not in ("host", "tcp")]
    return better or living


def demands(gpus, members):
    """{(from, to): {(j, h): times the part crosses}} and the numbers of columns and homes."""
    domains = {}
    for member in members:
        domains.setdefault(gpus[member]["domain"], []).append(member)
    domains = [domains[key] for key in sorted(domains)]
    columns = max(len(domain) for domain in domains)
    table = {}

    def send(source, target, part):
        if source != target:
            parts = table.setdefault((source, target), {})
            parts[part] = parts.get(part, 0) + 1

    for j in range(columns):
        owners = [domain[j % len(domain)] for domain in domains]
        for h in range(len(domains)):
            for d, domain in enumerate(domains):
                for member in domain:
                    send(member, owners[d], (j, h))  # reduce-scatter
                    send(owners[d], member, (j, h))  # all-gather
                if d != h:
                    send(owners[d], owners[h], (j, h))
                    send(owners[h], owners[d], (j, h))
    return table, columns, len(domains)


class Rows:
    def __init__(self):
        self.rows, self.columns, self.values, self.count = [], [], [], 0

    def add(self, terms):
        for column, value in terms:
            self.rows.append(self.count)
            self.columns.append(column)
            self.values.append(value)
        self.count += 1

    def matrix(self, width):
        return coo_matrix((self.values, (self.rows, self.columns)), shape=(self.count, width)).tocsr()


def bound(dump):
    links, gpus = dump["links"], dump["gpus"]
    of_pair = {}
    for lane in dump["lanes"]:
        of_pair.setdefault((lane["a"], lane["b"]), []).append(lane)
    table, columns, homes = demands(gpus, dump["members"])
    if not table:
        return {"bound_ns_per_byte": 0.0, "feasible": True}

    width = columns * homes + 1  # q, then T, then flows
    time = columns * homes
    equal, loads, limits = Rows(), {}, []
    for (source, target), parts in table.items():
        direction = 0 if source < target else 1
        lanes = of_pair.get((min(source, target), max(source, target)), [])
        terms = [(j * homes + h, -float(times)) for (j, h), times in parts.items()]
        for lane in eligible(links, lanes, direction):
            flow = width
            width += 1
            terms.append((flow, 1.0))
            for hop in path(lane, direction):
                loads.setdefault(hop, []).append((flow, 1.0))
            if "limit_GBps" in lane:
                limits.append([(flow, 1.0), (time, -lane["limit_GBps"])])
        equal.add(terms)
    right = [0.0] * equal.count + [1.0]
    equal.add([(part, 1.0) for part in range(time)])
    below = Rows()
    for (link, direction), flows in loads.items():
        below.add(flows + [(time, -capacity(links, link, direction))])
    for terms in limits:
        below.add(terms)

    cost = numpy.zeros(width)
    cost[time] = 1.0
    answer = linprog(
        cost,
        A_ub=below.matrix(width) if below.count else None,
        b_ub=numpy.zeros(below.count) if below.count else None,
        A_eq=equal.matrix(width),
        b_eq=right,
        bounds=(0, None),
        method="highs",
    )
    if answer.status == 2:
        return {"bound_ns_per_byte": None, "feasible": False}
    if answer.status != 0:
        raise SystemExit(f"bound.py: HiGHS ended with status {answer.status}: {answer.message}")
    return {"bound_ns_per_byte": float(answer.x[time]), "feasible": True}


def main():
    with open(sys.argv[1], encoding="utf-8") if len(sys.argv) > 1 else sys.stdin as source:
        text = source.read()
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        dump, end = decoder.raw_decode(text, at)
        print(json.dumps(bound(dump)), flush=True)
        at = end
        while at < len(text) and text[at].isspace():
            at += 1


if __name__ == "__main__":
    main()

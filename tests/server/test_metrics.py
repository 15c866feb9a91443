#!/usr/bin/env python3
"""Every name that packaging/grafana.json asks for is in /metrics, and of the type that the question
needs; /metrics is what Prometheus reads. Prints TAP."""
import json
import re

from serving import Server, finish, verdict, without_encoder

without_encoder()
FUNCTIONS = {"rate", "increase", "histogram_quantile"}
with open("packaging/grafana.json", encoding="utf-8") as f:
    DASHBOARD = json.load(f)
QUERIES = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]]


def base(name):
    return re.sub(r"_(bucket|sum|count)$", "", name)


with Server() as s:
    s.chat("Hello")
    text = s.ask("GET", "/metrics")[2].decode()
types = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
samples = re.findall(r"(?m)^([a-z_0-9]+)(?:\{[^}]*\})? (\S+)$", text)
verdict("every line is a comment or a sample", len(samples) + text.count("# TYPE") ==
        len(text.splitlines()) and all(float(v) >= 0 for _, v in samples))
verdict("every sample has a type", all(n in types or types.get(base(n)) == "histogram"
                                       for n, _ in samples), types)
verdict("there are panels", len(QUERIES) > 10 and len({p["id"] for p in DASHBOARD["panels"]}) ==
        len(DASHBOARD["panels"]))
for query in QUERIES:
    names = set(re.findall(r"ruvllm_[a-z_0-9]+", query))
    words = set(re.findall(r"([a-z_]+)\(", query))
    rated = set(re.findall(r"(?:rate|increase)\((ruvllm_[a-z_0-9]+)\[", query))
    good = names and names <= {n for n, _ in samples} and words <= FUNCTIONS
    for name in names:
        if types.get(name) == "gauge":
            good = good and name not in rated
        else:  # a counter, or part of a histogram, means something by how fast it grows
            good = good and name in rated
    if "histogram_quantile" in words:
        good = good and all(n.endswith("_bucket") for n in names)
    verdict(query, good and query.count("(") == query.count(")"), types)
finish()

#!/usr/bin/env python3
"""Every name that packaging/grafana.json asks for is in /metrics, and of the type that the question
needs; /metrics is what Prometheus reads, and docs/SERVER.md has all of it. Prints TAP."""
import json
import re
import tempfile

from peft import write_adapter
from serving import Server, finish, verdict, without_encoder

without_encoder()
FUNCTIONS = {"rate", "increase", "histogram_quantile"}
with open("packaging/grafana.json", encoding="utf-8") as f:
    DASHBOARD = json.load(f)
QUERIES = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]]


def base(name):
    return re.sub(r"_(bucket|sum|count)$", "", name)


with tempfile.TemporaryDirectory() as folder:
    write_adapter(folder + "/one", 1)
    write_adapter(folder + "/two", 2)
    with Server("--adapters", folder, "--memory", "1G", "--witness", folder + "/witness") as s:
        answer = s.chat("Hello", n=3)
        said = answer["usage"]["completion_tokens"]
        s.post("/v1/feedback", {"response_id": answer["id"], "score": 0.5})  # computes it again
        counted = s.metric("generation_tokens_total")
        for _ in range(2):
            s.chat("Hello", model="one")
        for i in range(12):  # one that was submitted in time, and took too long
            s.chat("Hello", max_tokens=400, ignore_eos=True, n=16, timeout=0.005 * 2 ** i)
            if s.metric("requests_timed_out_total"):
                break
        text = s.ask("GET", "/metrics")[2].decode()
types = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
samples = re.findall(r"(?m)^([a-z_0-9]+)(?:\{[^}]*\})? (\S+)$", text)
helped = re.findall(r"(?m)^# HELP (\S+) \S.*\.$", text)
verdict("every line is a comment or a sample", len(samples) + len(types) + len(helped) ==
        len(text.splitlines()) and all(float(v) >= 0 for _, v in samples))
verdict("every name is explained", sorted(helped) == sorted(types), set(types) ^ set(helped))
verdict("every sample has a type", all(n in types or types.get(base(n)) == "histogram"
                                       for n, _ in samples), types)
values = dict(re.findall(r"(?m)^ruvllm_(\S+) (\S+)$", text))
verdict("adapters are counted, and how they came", [values[x] for x in (
    "adapters_known", "adapters_open", "adapters_ready",
    'adapter_load_seconds_count{from="disk"}', 'adapter_load_seconds_count{from="ready"}')] ==
        ["2", "1", "1", "1", "1"], values)
verdict("every token of an answer counts once", counted == said > 3, (counted, said))
verdict("pages that are merely cached are told", int(values["kv_pages_kept"]) > 0)
verdict("and what the budget has", values['budget_limit_bytes{pool="all"}'] == str(1 << 30) and
        0 < int(values['budget_used_bytes{pool="kv"}']) <
        int(values['budget_used_bytes{pool="all"}']) < 1 << 30 and
        values['budget_limit_bytes{pool="kv"}'] == values["budget_refused_total"] == "0", values)
verdict("and requests that took too long", int(values["requests_timed_out_total"]) > 0 and
        {"recomputed_tokens_total", "spilled_tokens_total"} <= set(values), values)
with open("docs/SERVER.md", encoding="utf-8") as f:
    told = set(re.findall(r"`([a-z0-9_]+)`", re.search(r"(?s)\n## Figures\n.*?\n## ", f.read())[0]))
verdict("the guide has every name", {n[7:] for n in types} <= told, {n[7:] for n in types} - told)
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

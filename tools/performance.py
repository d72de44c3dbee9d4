#!/usr/bin/env python3
"""Measures Adze beside llama.cpp on the models of docs/performance.md, and writes that page's tables.

    performance.py --peer LLAMA-BENCH [--models REGEX] [--rounds N] [--cpu SET] [--folder DIR] [--threads N]
    performance.py --write-only

Each model is one line in bench/results/performance.jsonl: figures, commit, processor, settings; the tables are made from the
latest line of each model and kernel set. Models of random weights are made in DIR (default build/performance) with `adze
synth` and `adze quantize` and kept there. Run it under `chrt -r 1` on a machine that is not quiet. llama-batched-bench and
llama-completion are used where they lie beside llama-bench. Only the standard library is used.
"""
import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADZE = ROOT / "build/release/bin/adze"
RESULTS = ROOT / "bench/results/performance.jsonl"
PAGE = ROOT / "docs/performance.md"
BEGIN, END = "<!-- tables: begin (tools/performance.py) -->", "<!-- tables: end -->"

ALONE = ["--prompt-tokens", "512", "--generate-tokens", "32"]
TOGETHER = ["--prompt-tokens", "0", "--generate-tokens", "32", "--batch", "8,16"]
DEEP = ["--prompt-tokens", "0", "--generate-tokens", "32", "--depth", "4096"]
LONG = ["--prompt-tokens", "512,2048", "--generate-tokens", "64"]
# Name, shape that `adze synth` makes (none: a pulled model), type, and the runs of `adze bench model`.
MODELS = [
    ("SmolLM2-135M Q4_1", None, None, [LONG, DEEP, TOGETHER]),
    ("SmolLM2-135M Q8_0", None, "Q8_0", [LONG, DEEP, TOGETHER]),
    ("Qwen3-0.6B Q4_0", "qwen3-0.6b", "Q4_0", [ALONE, TOGETHER]),
    ("Qwen3-0.6B Q8_0", "qwen3-0.6b", "Q8_0", [ALONE]),
    ("Qwen3-0.6B Q4_K_M", "qwen3-0.6b", "Q4_K_M", [ALONE]),
    ("Qwen3-0.6B Q6_K", "qwen3-0.6b", "Q6_K", [ALONE]),
    ("Llama-3.2-1B Q4_0", "llama-3.2-1b", "Q4_0", [ALONE]),
    ("Llama-3.2-1B Q8_0", "llama-3.2-1b", "Q8_0", [ALONE]),
    ("Llama-3.2-1B Q4_K_M", "llama-3.2-1b", "Q4_K_M", [ALONE]),
    ("Llama-3.2-1B Q6_K", "llama-3.2-1b", "Q6_K", [ALONE]),
    ("Qwen3.5-0.8B Q4_K_M", "qwen3.5-0.8b", "Q4_K_M", [ALONE]),
    ("Gemma-4-E2B Q4_K_M", "gemma-4-e2b", "Q4_K_M", [ALONE]),
]


def run(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"performance: '{' '.join(map(str, words))}' failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def model_file(shape, kind, folder):
    pulled = Path(run([ADZE, "list", "smollm2", "--path"]).strip()) if shape is None else None
    if kind is None:
        return pulled
    path = folder / f"{shape or 'smollm2'}-{kind}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"making {path.name}", file=sys.stderr)
        if shape is None:
            run([ADZE, "quantize", pulled, path, kind, "--allow-requantize"])
        else:
            run([ADZE, "synth", shape, path, "--type", kind])
    return path


def first_token_ms(words):
    begin = time.monotonic()
    run(words, stdin=subprocess.DEVNULL)
    return 1e3 * (time.monotonic() - begin)


def start_case(model, completion, options):
    """From starting the program to its end after one token, in turn; the better is the shorter."""
    ours, theirs = [], []
    for index in range(options.rounds + 1):
        a = first_token_ms([ADZE, "generate", model, "Hi", "-n", "1", "-t", options.threads, "--cpu", options.cpu,
                            "--quiet"])
        b = first_token_ms([completion, "-m", model, "-p", "Hi", "-n", "1", "-t", options.threads, "-no-cnv"])
        if index:  # the first fills the page cache
            ours.append(a)
            theirs.append(b)
    return {"case": "start to the end of one token, ms", "milliseconds": ours, "peer_milliseconds": theirs,
            "ratio": statistics.median(theirs) / statistics.median(ours)}


def measure(name, shape, kind, runs, options):
    path = model_file(shape, kind, options.folder)
    result = None
    for words in runs:
        one = json.loads(run([ADZE, "bench", "model", path, "-t", options.threads, "--cpu", options.cpu, "--peer",
                              options.peer, "--rounds", options.rounds, "--json", *words]))
        if result is None:
            result = one
        else:
            result["cases"] += one["cases"]
    completion = options.peer.parent / "llama-completion"
    if shape is None and completion.exists():
        result["cases"].append(start_case(path, completion, options))
    commit = run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip()
    dirty = "+" if run(["git", "-C", ROOT, "status", "--porcelain", "-uno"]).strip() else ""
    return {"name": name, "commit": commit + dirty, "date": datetime.date.today().isoformat(), **result}


def spread(values, digits):
    values = sorted(values)
    return " / ".join(f"{v:.{digits}f}" for v in (values[0], statistics.median(values), values[-1]))


def rounds_of(result):
    rounds = min(len(c.get("tokens_per_second") or c["milliseconds"]) for c in result["cases"])
    return "one round" if rounds == 1 else f"{rounds} rounds"


def table(result):
    head = (f"### {result['name']}\n\n{result['processor']}, {result['threads']} threads, {result['kernel_set']}; commit "
            f"{result['commit']}, {result['date']}; peer {result['peer']}; {rounds_of(result)}.\n\n"
            "| case | Adze | of the limit | llama.cpp | ik, recorded and scaled | ratio to the better |\n|---|---|---|---|---|---|\n")
    rows = []
    for case in result["cases"]:
        if "milliseconds" in case:
            ours, limit, theirs = spread(case["milliseconds"], 0), "", spread(case["peer_milliseconds"], 0)
        else:
            ours, theirs = spread(case["tokens_per_second"], 1), ""
            limit = f"{100 * case['share_of_limit']:.0f} % ({case['bound']})"
            if "peer_tokens_per_second" in case:
                theirs = spread(case["peer_tokens_per_second"], 1)
        recorded = f"{case['recorded_tokens_per_second']:.1f}" if "recorded_tokens_per_second" in case else ""
        ratio = f"**{case['ratio']:.2f}**" if "ratio" in case else ""
        rows.append(f"| {case['case']} | {ours} | {limit} | {theirs} | {recorded} | {ratio} |\n")
    return head + "".join(rows)


def write_page():
    latest = {}
    for line in RESULTS.read_text().splitlines():
        result = json.loads(line)
        latest[result["name"], result["kernel_set"]] = result
    order = {name: index for index, (name, *_) in enumerate(MODELS)}
    found = sorted(latest.values(), key=lambda r: (r["kernel_set"] == "avx2", order.get(r["name"], len(order))))
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(table(result) for result in found) + "\n" + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, metavar="LLAMA-BENCH")
    parser.add_argument("--models", default="", metavar="REGEX", help="only models whose name matches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", default="auto", help="kernel set; the peer should be built for the same")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/performance")
    parser.add_argument("--write-only", action="store_true", help="make the tables of what was measured before")
    options = parser.parse_args()
    if not options.write_only:
        if options.peer is None:
            parser.error("--peer is needed: the path of llama.cpp's llama-bench")
        options.peer = options.peer.resolve()
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        for name, shape, kind, runs in MODELS:
            if not re.search(options.models, name):
                continue
            print(name, file=sys.stderr)
            result = measure(name, shape, kind, runs, options)
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")
    write_page()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Two builds of adze on the same benchmark, in turn: what a change does to speed on a machine whose speed drifts.

    bench_against.py BASE NEW [--pairs N] [ARGS of adze bench]

Runs BASE and NEW N times each (default 5), A B A B ..., with one measured round each, and prints the ratio of the medians
and of each pair. ARGS: `model smollm2` when there are none. Only the standard library is used.
"""
import json
import statistics
import subprocess
import sys


def rates(program, arguments):
    """{case: rate} of one run; any unit in which more is better."""
    run = subprocess.run([program, "bench", *arguments, "--json"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"bench_against: '{program} bench {' '.join(arguments)}' failed: {run.stderr.strip()}")
    try:
        result = json.loads(run.stdout)
        if "kernels" in result:
            return {f"{row['what']}, {row['rows']} rows": 1 / row["seconds"] for row in result["kernels"]}
        return {row["case"]: statistics.median(row["tokens_per_second"]) for row in result["cases"]}
    except (ValueError, KeyError):
        sys.exit(f"bench_against: '{program}' prints its figures in another form; choose a later commit to compare with")


def main(words):
    pairs = 5
    if "--pairs" in words:
        at = words.index("--pairs")
        pairs = int(words[at + 1])
        del words[at : at + 2]
    if len(words) < 2 or pairs < 1:
        sys.exit(__doc__)
    base, new, *arguments = words
    arguments = arguments or ["model", "smollm2"]
    if arguments[0] == "model" and not {"-r", "--rounds"} & set(arguments):
        arguments += ["--rounds", "1"]
    measured = {base: [], new: []}
    for pair in range(pairs):
        for program in (base, new):
            measured[program].append(rates(program, arguments))
        print(f"\rpair {pair + 1} of {pairs}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(f"{'case':<30} {'base':>10} {'new':>10}   new / base   (each pair)")
    for case in measured[new][0]:
        old, now = ([run[case] for run in measured[program] if case in run] for program in (base, new))
        if not old:
            print(f"{case:<30} {'':>10} {statistics.median(now):>10.1f}")
            continue
        each = " ".join(f"{b / a:.2f}" for a, b in zip(old, now))
        a, b = statistics.median(old), statistics.median(now)
        print(f"{case:<30} {a:>10.1f} {b:>10.1f} {b / a:>12.3f}   ({each})")


if __name__ == "__main__":
    main(sys.argv[1:])

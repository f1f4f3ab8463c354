#!/usr/bin/env python3
"""Records the bounds that the PyPI package MLRsearch finds on noisy targets, for tests/package_oracle.rs.

    python3 -m venv venv && venv/bin/pip install MLRsearch==1.2.1
    venv/bin/python mlrsearch.py draw 240 > drawn.json        draws scenarios
    venv/bin/python mlrsearch.py find drawn.json > mlrsearch.json   runs the package on them

A trial's outcome depends on the scenario, the load and how often that load was measured before, and on
nothing else. It is computed from whole numbers and the four operations, so that Rust gets the same.
"""

import json
import random
import sys
from importlib.metadata import version

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

MASK = 2**64 - 1
COUNT = 10**9


def splitmix(state):
    """Next output of SplitMix64 (Steele, Lea, Flood 2014) for this state."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def uniforms(seed, load, index, count):
    """Random numbers from 0 to below 1 for one trial."""
    state = splitmix(splitmix(splitmix(seed) ^ round(load * 1024)) ^ index)
    drawn = []
    for _ in range(count):
        state = splitmix(state)
        drawn.append((state >> 11) / 2**53)
    return drawn


class Target(AbstractMeasurer):
    """A target that loses the load above its capacity, which varies between trials."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.measured = {}
        self.trials = 0
        self.seconds = 0.0

    def loss_count(self, load):
        """The number of lost requests of COUNT."""
        s = self.scenario
        key = round(load * 1024)
        index = self.measured.get(key, 0)
        self.measured[key] = index + 1
        near, far, bad, drop = uniforms(s["seed"], load, index, 4)
        capacity = s["capacity"] * (1.0 + (near + far - 1.0) * s["noise"])
        if bad < s["bad_share"]:
            capacity = capacity * (1.0 - s["bad_depth"])
        for low, high, depth in s["dips"]:
            if low <= load < high:
                capacity = capacity * (1.0 - depth)
        loss = 1.0 - capacity / load if load > capacity else 0.0
        if drop < s["drop_share"]:
            loss = loss + (1.0 - loss) * s["drop_loss"]
        return int(loss * COUNT)

    def measure(self, intended_duration, intended_load):
        self.trials += 1
        effective = intended_duration + self.scenario["overhead_s"]
        self.seconds += effective
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=COUNT,
            loss_count=self.loss_count(intended_load),
            duration_with_overheads=effective,
        )


def find(scenario):
    """The result of the package, in the form of the golden file."""
    goals = [
        SearchGoal(
            loss_ratio=goal["loss_ratio"],
            exceed_ratio=goal["exceed_ratio"],
            relative_width=goal["width"],
            initial_trial_duration=goal["initial_s"],
            final_trial_duration=goal["final_s"],
            duration_sum=goal["sum_s"],
            preceding_targets=goal["preceding"],
            expansion_coefficient=goal["expansion"],
            fail_fast=False,
        )
        for goal in scenario["goals"]
    ]
    config = Config(
        goals=goals,
        min_load=scenario["min"],
        max_load=scenario["max"],
        search_duration_max=600.0,
        warmup_duration=scenario["warm_up_s"],
    )
    target = Target(scenario)
    try:
        found = MultipleLossRatioSearch(config=config).search(target, debug=lambda _: None)
    except RuntimeError as error:
        return {"error": str(error).split(":")[0], "trials": target.trials}
    return {
        "trials": target.trials,
        "seconds": round(target.seconds, 6),
        "goals": [bounds(found[goal]) for goal in goals],
    }


def bounds(result):
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
    through = result.conditional_throughput
    return [
        float(lower) if lower else None,
        float(upper) if upper else None,
        float(through) if through is not None else None,
    ]


def draw(index):
    """A random scenario: some have every kind of disturbance, others none."""
    rng = random.Random(20_000 + index)
    least = rng.choice([1.0, 10.0, 1000.0, 9001.0])
    largest = least * rng.choice([20.0, 1e3, 1e5])
    capacity = least * (largest / least) ** rng.uniform(-0.05, 1.05)
    dips = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        low = capacity * rng.uniform(0.3, 1.1)
        dips.append([round(low, 3), round(low * rng.uniform(1.01, 1.3), 3), round(rng.uniform(0.01, 0.6), 3)])
    goals = []
    while len(goals) < rng.choice([1, 1, 2, 2, 3]):
        final = rng.choice([1.0, 1.0, 2.0, 5.0])
        total = final * rng.choice([1, 3, 7, 21])
        goal = {
            "loss_ratio": rng.choice([0.0, 0.001, 0.005, 0.05]),
            "exceed_ratio": rng.choice([0.0, 0.005, 0.2, 0.5, 0.5]),
            "width": rng.choice([0.005, 0.01, 0.03, 0.05, 0.1]),
            "initial_s": rng.choice([final, min(final, 1.0)]),
            "final_s": final,
            "sum_s": total,
            "preceding": rng.choice([1, 2, 2, 3]),
            "expansion": rng.choice([2, 2, 2, 4]),
        }
        if goal not in goals:
            goals.append(goal)
    noisy = rng.random() < 0.8
    return {
        "seed": rng.getrandbits(53),
        "min": least,
        "max": largest,
        "capacity": round(capacity, 3),
        "noise": round(rng.choice([0.005, 0.02, 0.05, 0.2]) if noisy else 0.0, 3),
        "bad_share": round(rng.choice([0.0, 0.02, 0.1]) if noisy else 0.0, 3),
        "bad_depth": round(rng.uniform(0.05, 0.8), 3),
        "drop_share": round(rng.choice([0.0, 0.0, 0.05, 0.3]) if noisy else 0.0, 3),
        "drop_loss": rng.choice([1e-4, 2e-3, 0.02]),
        "dips": dips,
        "overhead_s": rng.choice([0.0, 0.0, 0.5]),
        "warm_up_s": rng.choice([0.0, 1.0]),
        "goals": goals,
    }


def write(head, scenarios):
    lines = ",\n".join(json.dumps(scenario, separators=(",", ":")) for scenario in scenarios)
    print(f'{{{json.dumps(head)[1:-1]},"scenarios":[\n{lines}\n]}}')


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "draw":
        write({"drawn": int(sys.argv[2])}, [draw(index) for index in range(int(sys.argv[2]))])
    elif len(sys.argv) == 3 and sys.argv[1] == "find":
        with open(sys.argv[2], encoding="utf-8") as file:
            scenarios = json.load(file)["scenarios"]
        for scenario in scenarios:
            scenario["found"] = find(scenario)
        write({"package": "MLRsearch", "version": version("MLRsearch")}, scenarios)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

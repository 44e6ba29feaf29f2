#!/usr/bin/env python3
"""Prints records.txt from the files of Sailor's artifact (github.com/eth-easl/sailor, SOSP 2025): python3 derive.py DIRECTORY > records.txt

DIRECTORY holds profiles_tmp.json, llm_info.json, multizone_bandwidths_het.json, intra_node_bandwidths.json, configs/, validation/ and
SAILOR_SIM_OUTPUT.txt, what their own simulator prints for each plan.
"""
import glob
import json
import os
import re
import sys

ZONE = "us-central1-a"
CONFIG = {"OPT-350": "training_config_opt_350.json", "GPT-Neo-2.7": "training_config_gpt_neo27.json"}
# A copy of another plan's measurement, a repetition of N3_D1's, and a step of one sequence over two stages.
BAD = {("clariden/GPT-NEO", "N4_D4"), ("mit", "N6_D2"), ("clariden/GPT-NEO", "N2_D1")}


def main(directory):
    def load(name):
        with open(os.path.join(directory, name)) as file:
            return json.load(file)

    def numbers(values):
        return " ".join(repr(value) for value in values)

    profiles, info = load("profiles_tmp.json"), load("llm_info.json")
    between, inside = load("multizone_bandwidths_het.json")[ZONE], load("intra_node_bandwidths.json")
    theirs = {}
    with open(os.path.join(directory, "SAILOR_SIM_OUTPUT.txt")) as file:
        for line in file:
            found = re.match(r"plan_config_(\S+)\.json\s+(\S+)\s.*sailor_est=(\S+)", line)
            theirs[found[2], found[1]] = found[3]
    plans, wanted, pairs, nodes = [], set(), set(), set()
    for path in sorted(glob.glob(os.path.join(directory, "validation", "**", "*.json"), recursive=True)):
        plan, parts = load(os.path.relpath(path, directory)), os.path.relpath(path, directory).split(os.sep)
        group = "mit" if parts[1] == "mit" else "/".join(parts[1:3])
        name = parts[-1][len("plan_config_"):-len(".json")]
        model = "GPT-Neo-2.7" if group.endswith("GPT-NEO") else "OPT-350"
        if (group, name) in BAD:
            continue
        pipeline, = plan["pipeline_list"]
        stages, grid = [], []
        for layers, replicas in zip(pipeline["layers_per_stage"], pipeline["tmp_per_stage"]):
            row = []
            for machines, tensor in replicas:
                (gpu, gpus, _), = machines
                assert gpus == tensor and len(layers) == layers[-1] + 1 - layers[0] # some files have 29 in place of 19
                row.append((gpu, gpus))
                wanted.add((model, gpu, plan["mbs"], tensor))
                nodes.add((gpu, gpus))
            grid.append(row)
            stages.append("%d %d %s" % (layers[0], layers[-1] + 1, " ".join("%s/%d" % cell for cell in row)))
        flat = [cell for row in grid for cell in row]
        pairs.update((a, b) for a in flat for b in flat)
        plans.append("plan %s %s %s %d %d %r %s %d %d %s" % (group, name, model, plan["mbs"], plan["gbs"], plan["real"], theirs[group, name],
                                                        len(grid), len(grid[0]), " ".join(stages)))
    for model, config in CONFIG.items():
        c, layers = load(os.path.join("configs", config)), info[model]["1"]
        print("model", model, len(layers), c["sequence_length"], c["hidden_size"],
              numbers(layers[i]["params_floats"] for i in ("0", "1", str(len(layers) - 1))))
    for model, gpu, size, tensor in sorted(wanted):
        layers = profiles[model][gpu][str(size)][str(tensor)]
        last = len(layers) - 1
        assert len({tuple(layers[str(i)]) for i in range(2, last)}) == 1
        print("profile", model, gpu, size, tensor, " ".join(numbers(layers[i]) for i in ("0", "1", "2", str(last))))
    for gpu, gpus in sorted(nodes):
        (coefficients, most) = inside[gpu][str(gpus)]
        print("inside", gpu, gpus, numbers(coefficients), most)
    for (gpu, gpus), (other, others) in sorted(pairs):
        found = between.get(gpu, {}).get(str(gpus), {}).get(ZONE, {}).get(other, {}).get(str(others))
        if found is not None:
            print("between", gpu, gpus, other, others, numbers(found[0]), found[1])
    print("\n".join(plans))


main(sys.argv[1])

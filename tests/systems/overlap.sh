#!/bin/bash
# Data parallelism over a slow link: what of a step's reductions runs while the backward pass still does.
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=6,width=128,heads=4,context=128,vocab=256 --sequences 8 --micro-batches 4 --steps 5 --quiet --hash)
does two train "${T[@]}" --devices cpu:1@0.4,cpu:1@0.4 --links 0-1:1ms:40M --plan dp --trace trace.json --log log.jsonl
does one train "${T[@]}" --devices cpu:2
[ "$(hash_of one)" = "$(hash_of two)" ] || short 'other weights'
# of rank 0, in us: end of its last backward, and of each reduction begin and end
tr '}' '\n' < trace.json | awk '
    function number(key) { return match($0, "\"" key "\":[0-9.]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1 }
    /"ph":"X"/ && number("pid") == 0 && match($0, /"name":"[A-Z0-9@]*/) {
        name = substr($0, RSTART + 8, RLENGTH - 8); begin = number("ts"); end = begin + number("dur")
        if (name ~ /^[0-9]+B/) { passes++; if (end > last) last = end }
        if (name ~ /^REDUCE/) { n++; from[n] = begin; to[n] = end }
    }
    END {
        first = last
        for (i = 1; i <= n; i++) {
            all += to[i] - from[i]
            if (from[i] < first) first = from[i]
            if (from[i] < last) hidden += (to[i] < last ? to[i] : last) - from[i]
        }
        printf "%d %d %.1f %.1f %.3f\n", n, passes, (last - first) / 1000, all / 1000, (all > 0 ? hidden / all : 0)
    }' > told
read -r reductions passes before all hidden < told
[ "$passes" = 2 ] && [ "$reductions" = 14 ] || short "$reductions reductions behind $passes backward passes, not 14 behind 2"
is "$before > 0 && $hidden > 0.5" || short "the first reduction began $before ms before the backward pass ended; $hidden of $all ms hidden"
works "14 reductions, one a block, for 2 micro-batches a rank; the first began $before ms before the last backward pass ended, which hid $hidden of $all ms"

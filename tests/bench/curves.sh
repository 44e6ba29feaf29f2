#!/bin/bash
# Validation loss against time, with updates that wait for nobody: two virtual workers of two ranks each, of which one rank is twice as fast as the
# others (emulated, so that times mean something on two cores). Writes a picture (SVG).
# usage: tests/bench/curves.sh DATA OUT.svg [build/train]      Bounds: UPDATES, SEED, MODEL
data=${1:?usage: tests/bench/curves.sh DATA OUT.svg [build/train]} out=${2:?a picture to write}
program=${3:-build/train}
updates=${UPDATES:-400} seed=${SEED:-1} model=${MODEL:-llama:layers=4,width=64,heads=4,context=64}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plan='{"pipelines":[{"share":3,"stages":[{"rank":0,"units":[0,7]},{"rank":1,"units":[7,10]}]},
                    {"share":2,"stages":[{"rank":2,"units":[0,5]},{"rank":3,"units":[5,10]}]}]}'

# MODE: its options. D = 0 is the synchronous run: an update of 5 micro-batches, then the pipelines are empty. The others: 8 updates a step, or each
# worker its own 8.
options() {
    local many="--steps $((updates / 8)) --warmup 4 --micro-batches 40 --evaluate-every $((updates / 200))"
    case $1 in
    synchronous) echo "--steps $updates --warmup 32 --micro-batches 5 --evaluate-every $((updates / 25)) --schedule 1f1b" ;;
    wsp-*) echo "$many --updates 8 --schedule 1f1b --staleness ${1#wsp-}" ;;
    hogbatch) echo "$many --updates 16 --schedule hogbatch --staleness 3" ;;
    esac
}

for mode in synchronous wsp-1 wsp-2 wsp-3 hogbatch; do
    # shellcheck disable=SC2046
    "$program" --data "$data" --model "$model" --sequences 2 --granule 2 --clip 0 --seed "$seed" --log "$work/log" --quiet \
        --devices cpu:1@0.2,cpu:1@0.1,cpu:1@0.1,cpu:1@0.1 --plan "$plan" $(options $mode) > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    awk -v mode=$mode '
        /"step_ms"/ { sub(/.*"step_ms":/, ""); seconds += $0 / 1000 }
        /"val_loss"/ { sub(/.*"val_loss":/, ""); print mode, seconds, $0 + 0 }' "$work/log" | tee "$work/$mode" | tail -n 1
    cat "$work/$mode" >> "$work/all"
done

awk '
    function x(seconds) { return 60 + 600 * seconds / longest }
    function y(loss) { return 20 + 340 * (high - loss) / (high - low) }
    { mode[NR] = $1; seconds[NR] = $2; loss[NR] = $3 }
    NR == 1 { low = high = $3 }
    { if ($2 > longest) longest = $2; if ($3 > high) high = $3; if ($3 < low) low = $3 }
    END {
        split("#000000 #0072b2 #009e73 #e69f00 #cc79a7", colour, " ") # told apart by those who see few colours
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 420\" font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"680\" height=\"420\" fill=\"#ffffff\"/>"
        for (i = 0; i <= 5; i++) {
            at = low + (high - low) * i / 5
            printf "<line x1=\"60\" x2=\"660\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/><text x=\"52\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", y(at), y(at), y(at) + 4, at
            printf "<text x=\"%.1f\" y=\"378\" text-anchor=\"middle\">%.0f</text>\n", x(longest * i / 5), longest * i / 5
        }
        print "<text x=\"360\" y=\"400\" text-anchor=\"middle\">seconds of training</text><text x=\"66\" y=\"14\">validation loss</text>"
        for (i = 1; i <= NR; i++) {
            if (mode[i] != mode[i - 1]) {
                if (i > 1) print "\"/>"
                n++
                printf "<text x=\"520\" y=\"%d\" fill=\"%s\">%s</text>\n<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", 22 + 16 * n, colour[n], mode[i], colour[n]
            }
            printf "%.1f,%.1f ", x(seconds[i]), y(loss[i])
        }
        print "\"/>\n</svg>"
    }' "$work/all" > "$out"

#!/bin/bash
# What --plan auto and --adapt are worth, in wall time: tests/bench/auto.sh [build/train]. Wants two quiet cores: ranks that are slowed down sleep, so
# that two are enough for four ranks too. Prints every measurement and, at the end, a line a claim; exit status 1 where one does not hold.
# Runs of what is compared are interleaved, RUNS of each (5); a time is the median over runs of a run's median step behind the first five.
program=${1:-build/train}
runs=${RUNS:-5}
steps=${STEPS:-25}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
cat hetrain.h > "$work/text"
base=(--data "$work/text" --model gpt2:layers=6,width=128,heads=4,context=128 --sequences 4 --micro-batches 8 --granule 1 --evaluate-every 0 --evaluate-batches 1 --seed 1 --hash --quiet)

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
# log FROM TO: median step_ms of steps FROM to TO
log_median() { sed -n 's/^{"step":\([0-9]*\),"loss".*"step_ms":\([0-9.]*\).*/\1 \2/p' "$1" | awk -v a="$2" -v b="$3" '$1 >= a && $1 <= b { print $2 }' | median; }

# run NAME STEPS OPTION...: adds a time to times.NAME, keeps the hash in hash.NAME
run() {
    local name=$1 count=$2
    shift 2
    if ! "$program" "${base[@]}" --steps "$count" --log "$work/log" "$@" > "$work/out" 2>&1; then
        echo "$name: $(tail -n 1 "$work/out")"
        failures=$((failures + 1))
        return 1
    fi
    log_median "$work/log" 6 "$count" >> "$work/times.$name"
    grep '^weights' "$work/out" > "$work/hash.$name"
    cp "$work/log" "$work/log.$name"
}
time_of() { median < "$work/times.$1"; }
claim() { # claim TEXT HOLDS
    echo "$([ "$2" = 1 ] && echo holds || echo 'DOES NOT HOLD'): $1"
    [ "$2" = 1 ] || failures=$((failures + 1))
}
at_least() { awk -v x="$1" -v y="$2" 'BEGIN { print (x >= y) }'; }
ratio() { awk -v x="$1" -v y="$2" 'BEGIN { printf "%.2f", x / y }'; }

# ---- two ranks, 1 and 1/3 ----
for _ in $(seq "$runs"); do
    run dp "$steps" --devices cpu:1,cpu:1@0.3333 --plan dp
    run pp "$steps" --devices cpu:1,cpu:1@0.3333 --plan pp
    run auto "$steps" --devices cpu:1,cpu:1@0.3333 --plan auto
done
echo "speeds 1 and 1/3: dp $(time_of dp) ms, pp $(time_of pp) ms, auto $(time_of auto) ms a step"
uniform=$(printf '%s\n%s\n' "$(time_of dp)" "$(time_of pp)" | sort -g | head -n 1)
x=$(ratio "$uniform" "$(time_of auto)")
claim "auto is $x times as fast as the best uniform split (goal 1.8)" "$(at_least "$x" 1.8)"
claim 'the weights are the same' "$(cmp -s "$work/hash.dp" "$work/hash.auto" && cmp -s "$work/hash.pp" "$work/hash.auto" && echo 1)"

# ---- the same with memory that lets no rank hold everything ----
"$program" "${base[@]/--quiet/--hash}" --steps 1 --devices cpu:1,cpu:1 --plan dp > "$work/out"
whole=$(sed -n 's/^rank 0 .*, \([0-9.]*\) MB$/\1/p' "$work/out")
"$program" "${base[@]/--quiet/--hash}" --steps 1 --devices cpu:1,cpu:1 --plan pp > "$work/out"
half=$(sed -n 's/^rank [01] .*, \([0-9.]*\) MB$/\1/p' "$work/out" | sort -g | tail -n 1)
cap=$(awk -v m="$whole" -v h="$half" 'BEGIN { printf "%dK", (m + h) / 2 * 1e6 / 1024 }')
"$program" "${base[@]}" --steps 1 --devices "cpu:1/$cap,cpu:1@0.3333/$cap" --plan dp > "$work/out" 2>&1
claim "with $cap a rank the whole model fits nowhere" "$(grep -q memory_limit "$work/out" && echo 1)"
for _ in $(seq "$runs"); do
    run capped_pp "$steps" --devices "cpu:1/$cap,cpu:1@0.3333/$cap" --plan pp
    run capped_auto "$steps" --devices "cpu:1/$cap,cpu:1@0.3333/$cap" --plan auto
done
echo "capped: pp $(time_of capped_pp) ms, auto $(time_of capped_auto) ms a step"
x=$(ratio "$(time_of capped_pp)" "$(time_of capped_auto)")
claim "under caps auto is $x times as fast as the uniform pipeline (goal 1.5)" "$(at_least "$x" 1.5)"

# ---- two pairs, 50 ms between them: the pipeline crosses that link, reductions do not ----
links=0-2:50ms,0-3:50ms,1-2:50ms,1-3:50ms
"$program" "${base[@]/--quiet/--hash}" --steps 1 --devices cpu:1@0.4,cpu:1@0.4,cpu:1@0.4,cpu:1@0.4 --links $links --plan auto > "$work/out" 2>&1
sed -n '/simulated:/,/^model /p' "$work/out" | grep -v '^model'
crossing=$(awk '/^ +[0-9]+ cpu:1@/ { rows++; for (i = 5; $(i + 1) != "of"; i++) { split($i, e, /[-,r]/); last = e[2] == "" ? e[1] : e[2];
        for (k = e[1] + 0; k <= last + 0; k++) side[k] = side[k] (side[k] == "" || index(side[k], int($1 / 2)) ? "" : "x") int($1 / 2) } }
    END { for (k in side) if (index(side[k], "x")) bad = 1; print (bad || rows < 2) ? 0 : 1 }' "$work/out")
claim 'no unit has holders on both sides of the 50 ms link' "$crossing"

# ---- a rank becomes three times slower ----
for _ in $(seq "$runs"); do
    run new 50 --devices cpu:1,cpu:1@0.3333 --plan auto
    run slowed 50 --devices cpu:1,cpu:1 --plan auto --adapt --slow 21:1@0.3333
    log_median "$work/log.slowed" 31 50 >> "$work/times.recovered"
done
grep '"event"' "$work/log.slowed"
echo "planned for the new speeds $(time_of new) ms; from ten steps behind the change on $(time_of recovered) ms a step"
x=$(ratio "$(time_of new)" "$(time_of recovered)")
claim "ten steps later the throughput is $x of a plan made for the new speeds (goal 0.90)" "$(at_least "$x" 0.9)"
claim 'the weights are the same' "$(cmp -s "$work/hash.new" "$work/hash.slowed" && echo 1)"
exit $((failures > 0))

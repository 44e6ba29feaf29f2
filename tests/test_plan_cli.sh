#!/bin/bash
# build/plan as a user meets it: numbers known beforehand, files that other programs read, and bad options and files, which give exit status 2 and
# one line that names the option, file, line or value. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
plan=$PWD/${BUILD:-build}/checked/plan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# refuses WORDS ARGUMENTS...   WORDS: what the line must hold, separated by |
refuses() {
    local words=$1 status bad= line
    shift
    "$plan" "$@" > out 2> err < /dev/null
    status=$?
    line=$(cat err)
    [ $status = 2 ] || bad="exit status $status, not 2"
    [ "$(wc -l < err)" = 1 ] || bad="$bad; $(wc -l < err) lines on standard error, not 1"
    [ -s out ] && bad="$bad; something on standard output"
    LC_ALL=C grep -q '[^[:print:][:space:]]' err && bad="$bad; unprintable bytes"
    local IFS='|' word
    for word in $words; do
        case $line in *"$word"*) ;; *) bad="$bad; does not name $word" ;; esac
    done
    report "$([ -z "$bad" ] && echo 0 || echo 1)" "refuses $words" "$*" "$bad" "$line"
}

# gives TEXT ARGUMENTS...   succeeds, and its JSON starts so; *TEXT: has it somewhere
gives() {
    local text=$1 out
    shift
    out=$("$plan" "$@" --json 2> err < /dev/null)
    local status=$?
    case $out in "$text"*) ;; *"${text#\*}"*) [ "${text:0:1}" = '*' ] || status="$status, other output" ;; *) status="$status, other output" ;; esac
    report "$status" "$*" "wanted $text" "got    $out" "$(cat err)"
}

cd "$work" || exit 2
base=(--ranks 4 --micro-batches 8 --cost F=2,B=3)
cat > two.csv <<'LISTS'
0F0,0F1,0B0,0B1
1F0,1B0,1F1,1B1
LISTS
printf '0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n' > crlf.csv
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n' > missing.csv
printf '0F0,1F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' > twice.csv
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1X1\n' > letter.csv
printf '0F0,0F1,0B0,0B1\n2F0,2B0,2F1,2B1\n' > gap.csv
printf '0F0,99999F1\n' > large.csv
printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' > circle.csv
: > empty.csv
LC_ALL=C awk 'BEGIN { for (i = 0; i < 3000; i++) printf "%c", (i * i * 7 + i * 131) % 255 + 1 }' > noise.csv
{ printf '0F0,'; cat noise.csv; } > tail.csv
printf 'stage,F,B,W\n0,4,2,3\n1,1,1,1\n' > costs.csv
printf '0,4,5\n1,1,2\n' > fused.csv
printf '0,4,2,3\n' > short.csv
printf '0,4,2,3\n0,4,2,3\n' > again.csv
printf '0,4,2,3\n2,4,2,3\n' > third.csv
printf '0,4,2,3\n1,4,x,3\n' > word.csv
printf '0,4,2,3\n1,4\n' > few.csv
printf '0,4,2,3\n1,4,2,3,1,7\n' > many.csv
printf '0,4,2,3,10\n1,4,2,3,20\n' > activations.csv

cat > alike.json <<'CLUSTER'
{ "link": { "latency": 0.5 }, "members": [ { "device": "a", "count": 8 } ] }
CLUSTER
cat > slow.json <<'CLUSTER'
{ "link": { "latency": "2us", "bandwidth": "4M" }, "members": [ { "device": "a" }, { "device": "a", "speed": 0.5 } ] }
CLUSTER
cat > pairs.json <<'CLUSTER'
{ "link": { "latency": 3 }, "members": [ { "name": "left", "uplink": 8, "members": [ { "device": "a", "count": 2 } ] },
  { "name": "right", "members": [ { "device": "a", "count": 2 } ] } ] }
CLUSTER
printf '{ "members": [ { "device": "a", "sped": 2 } ] }' > unknown.json
printf '{ "members": [ { "device": "a" }' > cut.json

# ---- numbers ----
# (m + p - 1)(F + B) without links, idle (p - 1)(F + B) each
gives '{"makespan":55,"span":55,"bubble":0.2727272727272727,"span_bubble":0.2727272727272727,"idle":[15,15,15,15],"peak":[8,8,8,8]' --simulate gpipe "${base[@]}"
gives '{"makespan":55,"span":55,"bubble":0.2727272727272727,"span_bubble":0.2727272727272727,"idle":[15,15,15,15],"peak":[4,3,2,1]' --simulate 1f1b "${base[@]}"
gives '{"makespan":55,"span":55,"bubble":0.2727272727272727,"span_bubble":0.2727272727272727,"idle":[15,15,15,15],"peak":[4,3,2,1]' --plan pp "${base[@]}"
gives '{"makespan":275,"span":275,' --simulate 1f1b --ranks 8 --micro-batches 64 --cost F=1,B=1,W=1,link=.5
gives '{"makespan":275,"span":275,' --simulate 1f1b --ranks 8 --micro-batches 64 --cost F=1,B=2 --link 0.5
gives '{"makespan":275,"span":275,' --simulate 1f1b --cluster alike.json --unit s --micro-batches 64 --cost F=1,B=1,W=1
# stage s of 4 uses what it has made: gradient m is min(m, 3 - s) late
gives '*"late_most":3,"late":1.1875}' --simulate pipedream --ranks 4 --micro-batches 8 --updates 8 --cost F=1,B=2,W=1,link=0
# a message takes 2 + 8 / 4 (M is 1,000,000); the second device works for 10 on each micro-batch: 2 + 4 + 20 + 4 + 3
gives '{"makespan":33,' --simulate gpipe --cluster slow.json --micro-batches 2 --cost F=2,B=3,bytes=8
# of a team each has half of 24: the second device takes 24 for it; a third of it 16
gives '{"makespan":24,' --simulate gpipe --cluster slow.json --plan cp2 --micro-batches 1 --cost F=8,B=16
gives '{"makespan":16,' --simulate gpipe --cluster slow.json --plan cp:2,1 --micro-batches 1 --cost F=8,B=16
# 16 of F, and once out of the left pair and once back into it: 64 / 8 + 3 each
gives '{"makespan":38,' --simulate gpipe --cluster pairs.json --unit s --micro-batches 1 --cost F=4,B=0,bytes=64
# the bubble published for these numbers is 0.2431
gives '{"makespan":1456749,"span":1456749,"bubble":0.2430542255391972,' --simulate=1f1b --ranks=8 --micro-batches=24 --cost=F=18522,B=18086,W=9337,link=601
gives '{"makespan":50,"span":50,"bubble":0,' --simulate 1f1b --ranks 1 --micro-batches 10 --cost F=2,B=3
# the second micro-batch half as large; messages of 8 bytes at 4 bytes a unit of time
gives '{"makespan":7.5,"span":7.5,"bubble":0,' --simulate gpipe --ranks 1 --micro-batches 2 --cost F=2,B=3 --micro-batch-scale 1,.5
gives '{"makespan":14,"span":14,' --simulate gpipe --ranks 2 --micro-batches 1 --cost F=2,B=3,bytes=8,bandwidth=4
gives '{"makespan":15,"span":15,' --simulate two.csv --cost F=2,B=3
gives '{"makespan":15,"span":15,' --simulate crlf.csv --cost F=2,B=3
gives '{"makespan":18,"span":18,' --simulate two.csv --cost costs.csv
gives '{"makespan":18,"span":18,' --simulate two.csv --cost fused.csv
gives '{"makespan":27,"span":27,"bubble":0.3333333333333333' --simulate two.csv --cost activations.csv
report "$("$plan" --simulate two.csv --cost activations.csv --json | grep -q '"peak":\[20,20\]'; echo $?)" 'activations of a file'
for schedule in interleaved zb-h1 zb-h2 zb-v v-half v-min greedy timed bidirectional bitpipe dualpipev terapipe sliced-1f1b; do
    slices=1
    case $schedule in terapipe | sliced*) slices=4 ;; esac
    "$plan" --simulate $schedule --ranks 4 --micro-batches 16 --slices $slices --cost F=4,B=4,W=4,link=1 --json > out 2> err
    report $? "$schedule" "$(cat err)"
done
# Zero-bubble's table of bubbles (arXiv 2401.10241), measured by the longest span of a rank: ranks, micro-batches, times, ZB-H1, ZB-H2
while read -r ranks micro_batches f b w link h1 h2; do
    for published in zb-h1:$h1 zb-h2:$h2; do
        got=$("$plan" --simulate ${published%:*} --ranks $ranks --micro-batches $micro_batches --cost F=$f,B=$b,W=$w,link=$link --json | sed 's/.*"span_bubble":\([^,]*\),.*/\1/')
        report "$(awk -v a="$got" -v b="${published#*:}" 'BEGIN { exit !(a - b < 5.1e-5 && b - a < 5.1e-5) }'; echo $?)" "$ranks ranks, $micro_batches micro-batches: $published" "got $got"
    done
done << 'TABLE'
8 24 18522 18086 9337 601 0.1585 0.1083
8 32 18513 18086 9331 626 0.1242 0.0837
8 64 18546 18097 9321 762 0.0674 0.0444
8 24 29718 29444 19927 527 0.1323 0.0698
8 32 29802 29428 19530 577 0.1045 0.0559
8 64 29935 29621 19388 535 0.0554 0.0294
16 48 11347 11248 8132 377 0.1397 0.0672
16 64 11307 11254 8101 379 0.1088 0.0516
TABLE
# two copies, 4 (2 + 3) each; half of 1000 bytes at 100 a unit of time, 5; half of the step, 10; half of 500 bytes, 2.5
gives '{"makespan":37.5,"span":35,' --simulate 1f1b --plan dp2 --units 1 --ranks 2 --micro-batches 8 --cost F=2,B=3,bandwidth=100,reduce=1000,gather=500,step=20 --complete
"$plan" --simulate 1f1b "${base[@]}" > out
report "$(grep -q '^ *3 ' out && grep -q 'bubble 27.27 %' out; echo $?)" 'a table' "$(cat out)"

# ---- files ----
"$plan" --simulate interleaved --chunks 3 --ranks 4 --micro-batches 8 --cost F=3,B=6,link=1 --trace t.json --svg p.svg --unit ms --dark > /dev/null 2> err
report $? 'trace and picture' "$(cat err)"
if command -v python3 > /dev/null; then
    python3 -c '
import json
t = json.load(open("t.json"))["traceEvents"]
assert sum(e["ph"] == "X" and e["cat"] == "forward" for e in t) == 96
assert sum(e["ph"] == "s" for e in t) == sum(e["ph"] == "f" for e in t) == 2 * 8 * 11
import xml.dom.minidom
assert xml.dom.minidom.parse("p.svg").documentElement.tagName == "svg"' 2> err
    report $? 'python3 reads both' "$(cat err)"
fi
"$plan" --simulate 1f1b "${base[@]}" --json > one
"$plan" --simulate 1f1b "${base[@]}" --json > two
report "$(cmp -s one two; echo $?)" 'the same twice'

# ---- refused ----
cp costs.csv costs.txt
refuses "--cost costs.txt: costs.txt: not F=|; a file's name ends in .csv" --simulate 1f1b --ranks 2 --micro-batches 3 --cost costs.txt
refuses "--simulate costs.txt: unknown schedule|; a file's name ends in .csv" --simulate costs.txt --ranks 2 --micro-batches 3 --cost F=1,B=1
refuses '--cluster|nowhere.json' --simulate 1f1b --cost F=1,B=1 --micro-batches 3 --cluster nowhere.json
refuses '--cluster|unknown.json|byte 40|sped|no such key' --simulate 1f1b --cost F=1,B=1 --micro-batches 3 --cluster unknown.json
refuses '--cluster|cut.json|byte 32|members' --simulate 1f1b --cost F=1,B=1 --micro-batches 3 --cluster cut.json
refuses '--ranks|3|8 devices' --simulate 1f1b --cost F=1,B=1 --micro-batches 3 --ranks 3 --cluster alike.json
refuses '--link|--cluster' --simulate 1f1b --cost F=1,B=1 --micro-batches 3 --link 2 --cluster alike.json
refuses '--trials|where no plan is looked for' --simulate 1f1b --ranks 4 --micro-batches 8 --cost F=1,B=2 --trials 4
refuses '--memory-limit|schedule 1f1b of --plan pp' --plan pp --ranks 4 --micro-batches 8 --cost F=1,B=2 --memory-limit 1
refuses '--chunks|--simulate interleaved' --plan pp --ranks 4 --micro-batches 8 --cost F=1,B=2 --chunks 4
refuses '--cost|reduce= has no effect without --complete' --simulate 1f1b --ranks 2 --micro-batches 4 --cost F=1,B=2,bytes=5,bandwidth=5,reduce=7
refuses '--cost|--cluster' --simulate 1f1b --cost F=1,B=1,link=2 --micro-batches 3 --cluster alike.json
refuses '--simulate'
refuses '--cost' --simulate 1f1b
refuses '--ranks' --simulate 1f1b --cost F=1,B=1 --micro-batches 3
refuses '--micro-batches' --simulate 1f1b --cost F=1,B=1 --ranks 3
refuses '--simulate|2f2b|zb-h1' --simulate 2f2b "${base[@]}"
refuses '--ranks|0' --simulate 1f1b --ranks 0 --micro-batches 8 --cost F=1,B=1
refuses '--ranks|many' --simulate 1f1b --ranks many --micro-batches 8 --cost F=1,B=1
refuses '--micro-batches|-1' --simulate 1f1b --ranks 4 --micro-batches -1 --cost F=1,B=1
refuses '--slices|0' --simulate 1f1b "${base[@]}" --slices 0
refuses '--chunks|x' --simulate 1f1b "${base[@]}" --chunks x
refuses '--memory-limit|nan' --simulate greedy "${base[@]}" --memory-limit nan
refuses '--frobnicate' --simulate 1f1b "${base[@]}" --frobnicate
refuses '--json' --simulate 1f1b "${base[@]}" --json=1
refuses '--unit|hours' --simulate 1f1b "${base[@]}" --unit hours
for bad in F=1 B=1 F=x,B=1 F=1,B=1,G=1 F=-1,B=1 F=1,B=inf F=1,B=1, ,F=1,B=1 F=1B=1 F=,B=1 F F=1,B=1,link= 1,2,3; do
    refuses "--cost|$bad" --simulate 1f1b --ranks 2 --micro-batches 2 --cost "$bad"
done
refuses '--cost|none.csv|No such file' --simulate two.csv --cost none.csv
refuses '--cost|short.csv|stage 1' --simulate two.csv --cost short.csv
refuses '--cost|again.csv|line 2|stage 0|twice' --simulate two.csv --cost again.csv
refuses '--cost|third.csv|line 2|stage 2' --simulate two.csv --cost third.csv
refuses '--cost|word.csv|line 2|value 3' --simulate two.csv --cost word.csv
refuses '--cost|few.csv|line 2|2 values' --simulate two.csv --cost few.csv
refuses '--cost|many.csv|line 2|more' --simulate two.csv --cost many.csv
refuses '--cost|empty.csv|stage 0' --simulate two.csv --cost empty.csv
refuses '--link|fast' --simulate 1f1b "${base[@]}" --link fast
refuses '--link|1:2:3' --simulate 1f1b "${base[@]}" --link 1:2:3
refuses '--micro-batch-scale|3 values|8' --simulate 1f1b "${base[@]}" --micro-batch-scale 1,2,3
refuses '--micro-batch-scale|value 2' --simulate 1f1b "${base[@]}" --micro-batch-scale 1,x,3
refuses '--simulate|none.csv|No such file' --simulate none.csv --cost F=1,B=1
head -c 1048577 /dev/zero | tr '\0' ' ' > wide.csv
refuses '--simulate wide.csv: more than 1048576 bytes' --simulate wide.csv --cost F=1,B=1
refuses '--simulate|empty.csv' --simulate empty.csv --cost F=1,B=1
refuses '--simulate|noise.csv' --simulate noise.csv --cost F=1,B=1
refuses '--simulate|tail.csv' --simulate tail.csv --cost F=1,B=1
refuses '--simulate|missing.csv' --simulate missing.csv --cost F=1,B=1
refuses '--simulate|twice.csv|1F0|line 1' --simulate twice.csv --cost F=1,B=1
refuses '--simulate|letter.csv|1X1' --simulate letter.csv --cost F=1,B=1
refuses '--simulate|gap.csv|stage 1' --simulate gap.csv --cost F=1,B=1
refuses '--simulate|large.csv|line 1|99999F1' --simulate large.csv --cost F=1,B=1
refuses '--simulate|circle.csv|rank' --simulate circle.csv --cost F=1,B=1
refuses '--ranks 3|two.csv|2' --simulate two.csv --ranks 3 --cost F=1,B=1
refuses '--micro-batches 3|two.csv|2' --simulate two.csv --micro-batches 3 --cost F=1,B=1
refuses '--plan|3|4' --simulate 1f1b "${base[@]}" --plan dp3xpp5
refuses '--trace|no/such/place' --simulate 1f1b "${base[@]}" --trace no/such/place --json
refuses '--svg|/dev/full' --simulate 1f1b "${base[@]}" --svg /dev/full --json
refuses '--svg two.csv: is the file of --simulate' --simulate two.csv --cost F=1,B=1 --svg two.csv
refuses '--svg both: is the file of --trace' --simulate two.csv --cost F=1,B=1 --trace both --svg both

# ---- a model on a profile ----
# Four units: embed, attention, MLP, head; two kinds of devices, the second three times slower; step 6 ms for one micro-batch of 128 tokens.
cat > profile.json <<'END'
{"hetrain_profile": 1, "model": "tiny", "bytes": {"weight": 4, "gradient": 8, "state": 8, "reduce": 8, "gather": 4, "token": 28, "sequence": 16},
 "kinds": [{"name": "embed", "output": 256}, {"name": "attention", "input": 256, "output": 256, "keep_weight": 1024},
  {"name": "mlp", "input": 256, "output": 256, "keep_weight": 2048}, {"name": "head", "input": 256, "loss": true}],
 "units": ["embed", "attention", "mlp", "head"],
 "blocks": [{"elements": 16384, "units": [0]}, {"elements": 16384, "units": [1]}, {"elements": 49152, "units": [2]}, {"elements": 16384, "units": [3]}],
 "devices": [
  {"name": "fast", "alone": {"embed": {}, "attention": {"forward": [0.001, 0, 0], "backward": [0.001, 0, 0]},
    "mlp": {"forward": [0.001, 0, 0], "backward": [0.001, 0, 0]}, "head": {"backward": [0.002, 0, 0]}}},
  {"name": "slow", "alone": {"embed": {}, "attention": {"forward": [0.003, 0, 0], "backward": [0.003, 0, 0]},
    "mlp": {"forward": [0.003, 0, 0], "backward": [0.003, 0, 0]}, "head": {"backward": [0.006, 0, 0]}}}],
 "links": [{"name": "wire", "latency": 0.001, "bandwidth": 0}]}
END
sed 's/"fast"/"third"/; s/"slow"/"fourth"/' profile.json > more.json
sed 's/"tiny"/"other"/' profile.json > other.json
sed 's/0.003, 0, 0/-0.003, 0, 0/' profile.json > negative.json
model='--model llama:layers=1,width=64,context=128'
priced() { # priced NAME MAKESPAN ARGUMENTS...
    local name=$1 expected=$2 got
    shift 2
    got=$("$plan" $model "$@" --json 2>&1 | sed -n 's/^{"makespan":\([^,]*\),.*/\1/p')
    report "$([ "$(printf '%.9g' "$got")" = "$expected" ] && echo 0 || echo 1)" "$name" "makespan $got, expected $expected" "$("$plan" $model "$@" 2>&1 | head -n 3)"
}
priced 'a profile, one rank' 0.048 --profile profile.json --devices fast --plan dp --simulate 1f1b --micro-batches 8
priced 'three times slower' 0.144 --profile profile.json --devices slow --plan dp --simulate 1f1b --micro-batches 8
priced 'a speed on the command line' 0.096 --profile profile.json --devices fast@0.5 --plan dp --simulate 1f1b --micro-batches 8
# embed and attention take 1 + 1, MLP and head 1 + 3: 0.034; 0.001 there and back for the first and the last micro-batch, and for the verdict
priced 'two stages and their link' 0.038 --profile profile.json --devices fast,fast --plan pp --simulate 1f1b --micro-batches 8
priced 'a device of another file' 0.048 --profile profile.json,more.json --devices third --plan dp --simulate 1f1b --micro-batches 8
"$plan" $model --profile profile.json --devices fast,slow/1M --plan dp --simulate 1f1b --micro-batches 2 > out 2>&1
report "$(grep -q 'does not fit' out && grep -q '^   1 slow' out && echo 0 || echo 1)" 'memory beside its limit' "$(cat out)"
refuses '--model|--profile' $model --simulate 1f1b --micro-batches 8
refuses '--profile|--model' --profile profile.json --simulate 1f1b --micro-batches 8
refuses '--cost F=1,B=1|--profile' $model --profile profile.json --cost F=1,B=1 --simulate 1f1b --micro-batches 8
refuses '--profile none.json|No such file' $model --profile none.json --simulate 1f1b --micro-batches 8
refuses 'negative.json|byte|"forward" is -3e-3' $model --profile negative.json --devices fast --simulate 1f1b --micro-batches 8
refuses 'other.json|model "tiny"|"other"' $model --profile profile.json,other.json --devices fast --simulate 1f1b --micro-batches 8
refuses '4 units|--model llama:layers=2|has 6' --model llama:layers=2 --profile profile.json --devices fast --simulate 1f1b --micro-batches 8
refuses '--devices: which' $model --profile profile.json --simulate 1f1b --micro-batches 8
refuses '--micro-batches: how many' $model --profile profile.json --devices fast --simulate 1f1b
refuses 'rank 1|"h100"' $model --profile profile.json --devices fast,h100 --simulate 1f1b --micro-batches 8
refuses '--devices|@0' $model --profile profile.json --devices fast@0 --simulate 1f1b --micro-batches 8
refuses '--devices|/lots' $model --profile profile.json --devices fast/lots --simulate 1f1b --micro-batches 8
refuses '--devices|#0: the most tokens' $model --profile profile.json --devices fast#0 --simulate 1f1b --micro-batches 8
refuses 'micro-batch 1: 128 tokens|rank 1 there is 64' $model --profile profile.json --devices fast,slow@2/1G#64 --plan dp --simulate 1f1b --micro-batches 2
refuses '--length 129|128' $model --profile profile.json --devices fast --simulate 1f1b --micro-batches 8 --length 129

# ---- the best plan ----
# Times of tokens: 128 tokens take the fast device 6.4 ms, the slow one three times that; 8 x 4 sequences are 8 granules, 6 for one and 2 for the other.
sed 's/\[0.00\([0-9]\), 0, 0\]/[0, 0.0000\1, 0]/g; s/"latency": 0.001/"latency": 1e-6/' profile.json > tokens.json
cat > pairs.json <<'END'
{"name": "two pairs", "link": {"latency": "50ms"}, "members": [{"count": 2, "name": "pair", "members": [{"device": "fast", "count": 2, "memory": "4600K"}]}]}
END
best=($model --profile tokens.json --micro-batches 8 --sequences 4 --length 128)
"$plan" "${best[@]}" --schedules 1f1b,interleaved --devices fast,slow --out best.json --svg best.svg --trace best.trace > out 2> err < /dev/null
report "$([ $? = 0 ] && grep -q '6 of 8' out && grep -q '2 of 8' out && grep -q 'which is all there are' out && echo 0 || echo 1)" \
    'shares by speed, as a table' "$(cat out err)"
report "$(grep -q '"share": 6' best.json && [ -s best.svg ] && [ -s best.trace ] && echo 0 || echo 1)" 'the plan, its picture and its trace are written' "$(cat best.json)"
sed 's/"schedule": "[^"]*"/"schedule": "2f2b"/' best.json > odd.json
sed 's/"schedule": "[^"]*"/"schedule": "bidirectional"/' best.json > alone.json
refuses '--plan odd.json: unknown schedule' $model --profile tokens.json --devices fast,slow --plan odd.json
refuses '--plan odd.json: unknown schedule' $model --profile tokens.json --devices fast,slow --plan odd.json --simulate 1f1b --micro-batches 8
refuses '--plan alone.json: bidirectional needs pipelines in twos' $model --profile tokens.json --devices fast,slow --plan alone.json
refuses '--sequences 1000000: of 1000000 tokens|2147483647' --profile tokens.json --devices fast --micro-batches 4 --sequences 1000000 --length 1000000
"$plan" "${best[@]}" --devices fast,slow --json --schedules 1f1b --seed 3 --out best.json > found 2> err
"$plan" "${best[@]}" --devices fast,slow --plan best.json --simulate 1f1b --json > again 2>> err
report "$(python3 - again found 2>> err <<'END'
import json, sys
again, found = (json.load(open(name)) for name in sys.argv[1:3])
assert found["exhaustive"] and found["ranks"][0]["micro_batches"] == 6
assert abs(again["makespan"] / found["seconds"] - 1) < 1e-6, (again["makespan"], found["seconds"])
assert found["bound"] <= found["seconds"] * (1 + 1e-9)
END
echo $?)" 'what is found takes as long when it is simulated' "$(cat err again found)"
"$plan" "${best[@]}" --cluster pairs.json --seconds 1 > out 2> err
report "$([ $? = 0 ] && grep -q 'two pairs' out && echo 0 || echo 1)" 'a cluster with limits' "$(cat out err)"
echo '{"members":[{"device":"fast"},{"device":"slow","memory":"1K"}]}' > idle.json
"$plan" "${best[@]}" --cluster idle.json --json > out 2> err
report "$([ $? = 0 ] && grep -q '"pipeline":-1.*"state":0,' out && grep -q '"state":1,.*"state":0,' out; echo $?)" 'a device without work has no share of the state' "$(cat out err)"
echo '{"members":[{"device":"fast"},{"device":"slow","speed":1e-30}]}' > idle.json
refuses '--cluster idle.json|speed|1e-30|from 1e-6 to 1e6' "${best[@]}" --cluster idle.json
refuses '--micro-batches: how many' $model --profile tokens.json --devices fast
refuses "'2f2b'|1f1b" "${best[@]}" --devices fast --schedules 1f1b,2f2b
refuses 'smallest|of 512 tokens|device 0 (fast)|takes 64' "${best[@]}" --devices fast#64
refuses '--out no/such/place|No such file' "${best[@]}" --devices fast --out no/such/place
refuses '--devices|MB more than the 1 MB|device 0 (fast)' "${best[@]}" --devices fast/1M
refuses "device 1 (h100)|'h100'" "${best[@]}" --devices fast,h100
refuses "'head'|apart" "${best[@]}" --devices fast --schedules zb-h1
refuses '--seconds 0' "${best[@]}" --devices fast --seconds 0

# One sequence of four granules: alone it keeps one device at work, in slices two.
long=(--model llama:layers=1,width=64,context=2048 --profile tokens.json --devices fast,fast --micro-batches 1 --sequences 1 --length 2048 --schedules 1f1b --json)
for slices in 1 4; do "$plan" "${long[@]}" --slices $slices --out long$slices.json > long$slices.out 2>> err < /dev/null; done
"$plan" "${long[@]:2:4}" --plan long4.json --json > again 2>> err
refuses '--slices|--trials' "${long[@]:0:14}" --slices 4 --trials 5
report "$(python3 - again long1.out long4.out 2>> err <<'END'
import json, sys
again, whole, cut = (json.load(open(name)) for name in sys.argv[1:4])
assert whole["found"][0]["slices"] == 1 and cut["found"][0]["slices"] == 4
assert cut["seconds"] < 0.76 * whole["seconds"] and cut["bound"] <= cut["seconds"]
assert abs(again["makespan"] / cut["seconds"] - 1) < 1e-6, (again["makespan"], cut["seconds"])
END
echo $?)" 'a long micro-batch is cut into slices where they may be' "$(cat err again long1.out long4.out)"

# ---- step time against memory ----
# Activations are most of the memory, and recomputing takes as long as the backward pass.
sed 's/"keep_weight": \([0-9]*\)/"keep_weight": \10/g; s/"backward": \(\[[^]]*\]\)/"backward": \1, "recompute": \1/g' tokens.json > front.json
front=($model --profile front.json --micro-batches 8 --sequences 4 --length 128 --schedules gpipe,1f1b --seconds 60)
"$plan" "${front[@]}" --devices fast,slow --front 8 --json > out 2> err
report "$(python3 - "$plan" "${front[@]}" 2>> err <<'END'
import json, subprocess, sys
def search(limits):
    devices = ",".join(name + ("/%d" % limit if limit > 0 else "") for name, limit in zip(("fast", "slow"), limits))
    return subprocess.run(sys.argv[1:] + ["--devices", devices, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
front = json.load(open("out"))["front"]
assert len(front) >= 3
for larger, smaller in zip(front, front[1:]):
    assert larger["bytes"] > smaller["bytes"] and larger["seconds"] < smaller["seconds"]
for point in front:
    found = json.loads(search(point["limits"]).stdout)
    assert found["exhaustive"]
    assert max(rank["memory"] for rank in found["ranks"]) == point["bytes"]
    assert sum(rank["units"].lower().count("r") for rank in found["ranks"]) == point["recompute"]
    for key in ("seconds", "schedule", "pipelines", "stages", "shard"):
        assert found["found"][0][key] == point[key], (key, found, point)
least = front[-1]
assert search([least["bytes"] / 1.03] * 2).returncode == 2 # the least limit is found within 2 %
END
echo $?)" 'plans that none beats in both, each the best within its limits' "$(cat err out)"
"$plan" "${front[@]}" --devices fast,slow --front 1 --json > one 2> err
"$plan" "${front[@]}" --devices fast,slow --json > two 2>> err
report "$([ "$(grep -c . one)" = 1 ] && [ "$(grep -o '"seconds":[^,]*' one)" = "$(grep -om1 '"seconds":[^,]*' two | head -n 1)" ]; echo $?)" \
    'a front of one plan is the best plan' "$(cat err one two)"
"$plan" "${front[@]}" --devices fast/30M,slow/20M --front 4 --json > out 2> err
report "$(grep -q '"front":.{"bytes":[0-9]*,.*"limits":.30000000,20000000.}' out; echo $?)" 'from the limits that were given' "$(cat err out)"
"$plan" "${front[@]}" --devices fast,fast --front 4 > out 2> err
report "$(grep -q '^  *memory  *limit  *ms a step  *pipelines  *stages  *recompute  *schedule$' out &&
    [ "$(grep -c ' MB  *[-0-9].*\(1f1b\|gpipe\)' out)" -ge 2 ]; echo $?)" 'as a table' "$(cat err out)"
for bad in 0 33 x; do refuses "--front $bad: not an integer from 1 to 32" "${front[@]}" --devices fast --front $bad; done
for idle in '--out x.json' '--trace x.json' '--svg x.svg'; do refuses "${idle%% *}|with --front" "${front[@]}" --devices fast --front 2 $idle; done
refuses '--devices|MB more than the 1 MB|device 0 (fast)' "${front[@]}" --devices fast/1M --front 3

# ---- a plan that says for which step it is ----
cat > step.json <<'END'
{"pipelines": [{"share": 2, "stages": [{"rank": 0, "units": [0, 4]}]}, {"share": 1, "stages": [{"rank": 1, "units": [0, 4]}]}],
 "schedule": "gpipe", "slices": [1], "step": {"granules": 8, "sequences": 4, "length": 128, "micro_batch": 3}}
END
gives '{"makespan":6,"span":6,' --plan step.json --cost F=1,B=2
# 32 sequences in micro-batches of 12, 12 and 8: two for the first device, 24 x 7.68 ms, and the last for the second, 8 x 23.04 ms
stepped() { "$plan" --profile tokens.json --devices fast,slow --json "$@" 2>&1 | sed -n 's/^{"makespan":\([^,]*\),.*/\1/p'; }
report "$([ "$(printf '%.4g' "$(stepped --plan step.json)")" = 0.1843 ]; echo $?)" 'a plan alone is simulated on its step' "$(stepped --plan step.json)"
"$plan" --profile tokens.json --devices fast,slow --plan step.json > out 2> err
report "$(grep -q '^tiny, gpipe, 3 x 12 x 128 tokens a step (the last of 8 x 128): 184' out; echo $?)" 'which is said' "$(cat out err)"
report "$([ "$(printf '%.4g' "$(stepped --plan step.json --micro-batches 3 --sequences 2 --length 64 --simulate 1f1b)")" = 0.02304 ]; echo $?)" 'or on another' \
    "$(stepped --plan step.json --micro-batches 3 --sequences 2 --length 64 --simulate 1f1b)"

for slices in 3 4 5; do sed "s/\[1\]/$slices/" step.json > sliced$slices.json; done
stepped --plan sliced3.json > out
report "$([ -s out ]; echo $?)" 'as many slices as granules' "$(cat out)"
refuses '--plan: 4 slices of a micro-batch of 3 granules|own step' --profile tokens.json --devices fast,slow --plan sliced4.json
refuses '--plan: 5 slices of a micro-batch of 4 granules|--sequences' --profile tokens.json --devices fast,slow --plan sliced5.json --micro-batches 2 --sequences 4 --length 128
refuses '--slices: 5 slices of a micro-batch of 4 granules' --profile tokens.json --devices fast,slow --simulate gpipe --slices 5 --micro-batches 2 --sequences 4 --length 64
printf '{"link":{"latency":"1ms"},"members":[{"device":"fast"},{"device":"slow","speed":0.7},{"device":"fast","speed":0.4}]}' > three.json
# the same with micro-batches of unequal size, as they were found: 10 sequences are no multiple of most numbers
"$plan" $model --profile tokens.json --cluster three.json --micro-batches 1 --sequences 10 --length 50 --granule 1 --schedules 1f1b,gpipe --seconds 0.5 --out own.json \
    --json > found 2> err
"$plan" --profile tokens.json --cluster three.json --plan own.json --json > again 2>> err
report "$([ -s found ] && [ "$(sed 's/^{"seconds":\([^,]*\),.*/\1/' found | xargs printf '%.9g')" = "$(sed 's/^{"makespan":\([^,]*\),.*/\1/' again | xargs printf '%.9g')" ]
    echo $?)" 'a plan that was found is simulated again' "$(cut -c1-200 found again err)" "$(tail -n 2 own.json)"

# ---- matrices of links ----
echo '{"members":[{"device":"x","count":3}],"latencies":[[0,2,9],[3,0,"7s"],[9,4,0]]}' > matrix.json
gives '{"makespan":22' --simulate gpipe --ranks 3 --micro-batches 1 --cost F=1,B=1 --cluster matrix.json --unit s
sed 's/latencies/bandwidths/; s/"7s"/0.5/' matrix.json > widths.json
gives '{"makespan":15.25,' --simulate gpipe --ranks 3 --micro-batches 1 --cost F=1,B=1,bytes=3 --cluster widths.json --unit s
echo '{"members":[{"device":"x","count":3}],"latencies":[[0,2],[3,0]]}' > bad.json
refuses '--cluster bad.json|byte|latencies|fewer numbers in a row' --simulate gpipe --ranks 3 --micro-batches 1 --cost F=1,B=1 --cluster bad.json

# ---- hardware files: figures in place of measured times ----
one='{"name":"one","f32":"10T","bandwidth":"1T","memory":"80G"}'
echo "{\"devices\":[$one,{\"name\":\"two\",\"f32\":\"20T\",\"bandwidth\":\"2T\",\"memory\":\"80G\"},{\"name\":\"tiny\",\"f32\":1,\"bandwidth\":1,\"memory\":\"1M\"},
    {\"name\":\"wide\",\"f32\":\"1000T\",\"bandwidth\":\"1T\"},{\"name\":\"small\",\"f32\":1,\"bandwidth\":1,\"max_tokens\":512}]}" > hardware.json
hardware=(--hardware hardware.json --model gpt2:124m --micro-batches 4)
for device in one two one,two; do
    "$plan" "${hardware[@]}" --devices "$device" --plan dp --simulate 1f1b --json > "$device.out" 2> err
    "$plan" "${hardware[@]}" --devices "$device" --seconds 0.3 --json --out "$device.json" > "$device.best" 2>> err
done
seconds_of() { sed -n 's/.*"makespan":\([0-9.e+-]*\),.*/\1/p' "$1"; }
report "$(awk "BEGIN { a = $(seconds_of one.out) / $(seconds_of two.out); exit !(a > 1.999999 && a < 2.000001) }" < /dev/null; echo $?)" \
    'a device of twice the figures takes half the time' "$(cat err one.out two.out)"
operations='4 * 1024 * (6 * (144 * 768 * 768 + 50257 * 768) + 144 * 768 * 1025 / 2)'
mfu=$(sed -n 's/.*"mfu":\([0-9.e+-]*\),.*/\1/p' one.out)
report "$(awk "BEGIN { a = $operations / $(seconds_of one.out) / 1e13 / $mfu; exit !(a > 0.999999 && a < 1.000001) }" < /dev/null; echo $?)" \
    "the share of a device's operations is that of the formula" "$(cat one.out)"
report "$(grep -q '"ranks"\|"pipelines"' one,two.json; echo $?)" 'a plan is found for devices that nobody measured' "$(cat err one,two.best)"
# What was found stays where the time is over before the line at its size is tried: a simulation of 1,000 devices takes longer than what is left.
echo '{"link":{"latency":"20ms","bandwidth":"1G"},"members":[{"count":125,"process":true,"link":{"latency":"5us","bandwidth":"200G"},"members":[
    {"device":"one","count":6},{"device":"two","count":2,"speed":0.3}]}]}' > thousand.json
thousand=(--hardware hardware.json --cluster thousand.json --model gpt2:124m)
"$plan" "${thousand[@]}" --micro-batches 64 --sequences 4 --length 512 --seconds 1 --json --out found.json > found 2> err
report $? 'a plan for 1,000 devices is found in about a second' "$(cat err)"
"$plan" "${thousand[@]}" --plan found.json --json > again 2>> err
report "$(awk "BEGIN { a = $(seconds_of again) / $(sed -n 's/^{"seconds":\([^,]*\),.*/\1/p' found); exit !(a > 0.9999999 && a < 1.0000001) }" < /dev/null
    echo $?)" 'and takes as long' "$(cut -c1-200 err found again)"
# A plan takes as long as the search said, on its own step, which is of other lengths and larger micro-batches than the options, and by options.
for shape in '16 1' '4 8'; do
    read -r batches sequences <<< "$shape"
    rm -f again options
    sized=(--hardware hardware.json --model gpt2:124m --devices wide,wide)
    "$plan" "${sized[@]}" --length 256 --micro-batches "$batches" --sequences "$sequences" --granule 1 --seconds 0.4 --json --out sized.json > found 2> err
    own=$(sed -n 's/.*"granules": \([0-9]*\),.*"micro_batch": \([0-9]*\).*/\1 \2/p' sized.json)
    "$plan" "${sized[@]}" --plan sized.json --json > again 2>> err
    [ $((${own% *} % ${own#* })) != 0 ] ||
        "$plan" "${sized[@]}" --plan sized.json --length 256 --micro-batches $((${own% *} / ${own#* })) --sequences "${own#* }" --json > options 2>> err
    for file in again options; do
        [ -s "$file" ] || continue
        report "$(awk "BEGIN { a = $(seconds_of "$file") / $(sed -n 's/^{"seconds":\([^,]*\),.*/\1/p' found); exit !(a > 0.9999999 && a < 1.0000001) }" \
            < /dev/null; echo $?)" "a plan found by figures takes as long $file ($shape, micro-batches of ${own#* })" "$(cat err found "$file")"
    done
done
"$plan" "${hardware[@]}" --ranks 1 --plan dp --simulate 1f1b --ops > ops
report "$(grep -q '^two  *head  *F  *linear .* operations$' ops; echo $?)" '--ops says what bounds each op' "$(head -n 5 ops)"
sed 's/"name":"two"/"name":"t\\"wo"/' hardware.json > named.json
gives '*,{"device":"t\"wo","unit":' --hardware named.json --model gpt2:124m --micro-batches 4 --ranks 1 --plan dp --simulate 1f1b --ops
"$plan" "${hardware[@]}" --devices one,two --seconds 0.2 --front 3 --json > out 2> err
report "$(python3 -c 'import json
front = json.load(open("out"))["front"]
assert len(front) > 1 and all(a["bytes"] > b["bytes"] and a["seconds"] < b["seconds"] for a, b in zip(front, front[1:]))' 2>> err
    echo $?)" 'and a front of them' "$(cat err out)"
# Limits that nothing meets leave the best plan as it is; of one device nothing is divided.
echo '{"devices":[{"name":"slow","f32":"3G","bandwidth":"20G","launch":"5us"}]}' > slow.json
for limit in '' /1T; do
    "$plan" --hardware slow.json --devices "slow$limit,slow$limit" --model llama:layers=1,width=64,heads=2,context=16 --micro-batches 2 --granule 1 \
        --schedules 1f1b --seconds 5 --json > "slow${limit#/}" 2>> err
done
report "$(python3 -c 'import json
free, limited = (json.load(open(name)) for name in ("slow", "slow1T"))
assert free["exhaustive"] and limited["exhaustive"] and free["seconds"] == limited["seconds"] and free["found"][0]["shard"] == "weights"' 2>> err
    echo $?)" 'no limit is needed to find the fastest plan' "$(cat err slow slow1T)"
for seed in 0 1 2 3; do
    "$plan" --hardware slow.json --devices slow@1e-6,slow --model gpt2:layers=1,width=32,heads=2,context=16 --micro-batches 2 --seconds 5 --json \
        --schedules greedy,1f1b,gpipe,zb-h1 --seed "$seed"
done > one-slow 2> err
report "$(python3 -c 'import json
for line in open("one-slow"):
    assert all(found["shard"] == "state" for found in json.loads(line)["found"] if found["stages"] == 1)' 2>> err; echo $?)" \
    'one device divides nothing' "$(cat err one-slow)"
refuses '--devices tiny|needs at least|more than' "${hardware[@]}" --devices tiny
refuses 'smallest|of 1024 tokens|device 0 (small)|takes 512' "${hardware[@]}" --devices small
refuses '--hardware|--profile' --profile tokens.json "${hardware[@]}"
refuses '--hardware none.json|No such file' --hardware none.json --model gpt2:124m --ranks 1 --micro-batches 4
refuses '--hardware hardware.json|--model' --hardware hardware.json --ranks 1 --micro-batches 4
refuses '--ops|without --hardware' --profile tokens.json --devices fast --length 128 --micro-batches 2 --ops
refuses_hardware() { # refuses_hardware WORDS JSON
    echo "$2" > bad.json
    refuses "--hardware bad.json|$1" --hardware bad.json --model gpt2:124m --ranks 1 --micro-batches 4
}
refuses_hardware 'devices|there are none' '{"devices":[]}'
refuses_hardware 'devices|is missing' '{}'
refuses_hardware 'speed|no such key: name, latency, bandwidth' "{\"devices\":[$one],\"links\":[{\"name\":\"a\",\"speed\":1}]}"
refuses_hardware 'byte|bandwidth|is missing' '{"devices":[{"name":"a","f32":"1T"}]}'
refuses_hardware 'byte|f32|above 0' '{"devices":[{"name":"a","f32":0,"bandwidth":1}]}'
refuses_hardware 'byte|f32|1X|K, M, G or T' '{"devices":[{"name":"a","f32":"1X","bandwidth":1}]}'
refuses_hardware 'flops|no such key: name, f32, bf16, bandwidth, memory, launch' '{"devices":[{"name":"a","flops":1}]}'
refuses_hardware 'one|comes twice' "{\"devices\":[$one,$one]}"
refuses_hardware 'wire|comes twice' "{\"devices\":[$one],\"links\":[{\"name\":\"wire\",\"latency\":1},{\"name\":\"wire\",\"latency\":2}]}"
echo '{"devices":[{"name":"a","f32":1e-300,"bandwidth":1}]}' > bad.json
refuses '--ranks 1: a time of unit kind' --hardware bad.json --model gpt2:124m --ranks 1 --micro-batches 4
sed 's/"links": \[\(.*\)\]/"links": [\1, \1]/' tokens.json > wires.json
refuses '--profile wires.json|wire|comes twice' $model --profile wires.json --devices fast --micro-batches 2
refuses_hardware 'byte' '{"devices":[{"name":"a","f32":1,"bandwidth":1}'

# ---- what would be ignored ----
profiled=(--profile tokens.json --devices fast --length 128)
refuses '--cost F=1,B=1|--profile' $model --cost F=1,B=1 --profile tokens.json --simulate 1f1b --micro-batches 2
refuses '--profile tokens.json|--model|--length|--plan' --profile tokens.json --devices fast --micro-batches 2
for idle in '--devices fast' '--sequences 2' '--length 9' --alone; do refuses "${idle%% *}|without --profile" --simulate 1f1b "${base[@]}" $idle; done
for idle in '--schedules gpipe' '--seconds 2' '--seed 3' '--granule 1' '--front 3' '--out x.json'; do
    refuses "${idle%% *}|no plan is looked for" --simulate 1f1b "${base[@]}" $idle
    refuses "${idle%% *}|no plan is looked for" "${profiled[@]}" --plan dp --micro-batches 2 $idle
done
for idle in '--link 2' '--unit ms' '--units 4' '--micro-batch-scale 1,1' --complete; do
    refuses "${idle%% *}|--profile" "${profiled[@]}" --simulate 1f1b --micro-batches 2 $idle
done
for idle in '--chunks 2' '--memory-limit 2'; do refuses "${idle%% *}|looked for" "${profiled[@]}" --micro-batches 2 $idle; done
refuses '--memory-limit|greedy' --simulate 1f1b "${base[@]}" --memory-limit 2
refuses '--chunks|interleaved' --simulate 1f1b "${base[@]}" --chunks 3
refuses '--chunks|lists' --simulate two.csv --cost F=2,B=3 --chunks 3
refuses '--units|without --plan' --simulate 1f1b "${base[@]}" --units 9
for link in '' '--link 2'; do refuses '--cost|bytes= has no effect without bandwidth=' --simulate 1f1b --ranks 2 --micro-batches 4 --cost F=1,B=2,bytes=5 $link; done
gives '{"makespan":14,"span":14,' --simulate gpipe --ranks 2 --micro-batches 1 --cost F=2,B=3,bytes=8 --link 0:4
refuses '--cost|bandwidth= has no effect without bytes=' --simulate 1f1b --ranks 2 --micro-batches 4 --cost F=1,B=2,bandwidth=5
refuses '--slices|lists' --simulate two.csv --cost F=2,B=3 --slices 3
refuses '--unit|--svg' --simulate 1f1b "${base[@]}" --unit ms
refuses '--title|--svg' --simulate 1f1b "${base[@]}" --title x
refuses '--dark|--svg' --simulate 1f1b "${base[@]}" --dark
refuses '--sequences|--micro-batches' --profile tokens.json --devices fast,slow --plan step.json --sequences 2
cat > heads.json <<'PLAN'
{"pipelines": [{"stages": [{"rank": 0, "units": [0, 26]}]}], "teams": [{"ranks": [0, 1], "shares": [5, 3], "split": "columns", "heads": [[5, 3]]}]}
PLAN
for simulate in '--simulate gpipe' ''; do
    refuses 'the team of rank 0: group 0 has 8 key/value heads, unit 1 (attention) has 12' --hardware hardware.json --model gpt2:124m \
        --devices one,two --plan heads.json --micro-batches 2 $simulate
done
refuses '--slices 2|step.json|1' --profile tokens.json --devices fast,slow --plan step.json --slices 2

# ---- a plan's file says how many ranks, units and micro-batches there are ----
cat > named.json <<'PLAN'
{"pipelines": [{"stages": [{"rank": 0, "units": [0, 3]}, {"rank": 2, "units": [3, 5]}]}], "keepers": [3],
 "step": {"granules": 7, "sequences": 1, "length": 8, "micro_batch": 2}}
PLAN
gives '{"makespan":25,"span":25,' --plan named.json --simulate 1f1b --cost F=2,B=3
gives '{"makespan":25,"span":25,' --plan named.json --simulate 1f1b --cost F=2,B=3 --ranks 4 --units 5 --micro-batches 4
gives '{"makespan":30,"span":30,' --plan named.json --simulate 1f1b --cost F=2,B=3 --micro-batches 5
refuses '--plan named.json|3 ranks' --plan named.json --simulate 1f1b --cost F=2,B=3 --ranks 3
sed 's/"keepers": .3/"keepers": [4999/' named.json > many.json
refuses '--plan many.json: 5000 ranks, more than 4096' --plan many.json --simulate 1f1b --cost F=2,B=3
sed 's/, *$/,/; s/"step.*}}/"slices": 1}/' named.json > stepless.json
refuses '--micro-batches: how many?' --plan stepless.json --simulate 1f1b --cost F=2,B=3
refuses '--ranks: how many?|dp' --plan dp --simulate 1f1b --cost F=2,B=3 --micro-batches 2
printf '{"pipelines": [{"stages": [{"rank": 0, "units": [0, 3' > cut.json
refuses '--plan cut.json|byte' --plan cut.json --simulate 1f1b --cost F=2,B=3
printf '{"pipelines": [{"stages": [{"rank": 99999999999999999999, "units": [0, 3]}]}]}' > far.json
refuses '--plan far.json|byte' --plan far.json --simulate 1f1b --cost F=2,B=3
printf '{"pipelines": [{"stages": [{"rank": -2, "units": [-3, -1]}]}]}' > below.json
refuses '--plan below.json|rank' --plan below.json --simulate 1f1b --cost F=2,B=3
# ---- more than can be waited for ----
refuses '--micro-batches 65536|4000 stages|524288000|20000000' --simulate 1f1b --ranks 4000 --micro-batches 65536 --cost F=1,B=2
refuses '--micro-batches 5000|1000000|200000' --simulate timed --ranks 100 --micro-batches 5000 --cost F=1,B=1,W=1
refuses '--cost F=1,B=2,F=3|F= comes twice' --simulate 1f1b --ranks 2 --micro-batches 2 --cost F=1,B=2,F=3
finish

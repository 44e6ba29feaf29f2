#!/bin/bash
# train --power: what the step log says of counters that grow by 50 W, of memory that takes 5 W, and of clocks; nothing is written there.
. "$(dirname "$0")/common.sh"
zone=root/sys/class/powercap
mkdir -p $zone/intel-rapl:{0,0:0,0:1} root/sys/devices/system/cpu/cpu{0,1}/cpufreq
echo package-0 > $zone/intel-rapl:0/name && echo core > $zone/intel-rapl:0:0/name && echo dram > $zone/intel-rapl:0:1/name
for folder in $zone/*; do echo 20000000 > "$folder/max_energy_range_uj"; done # 20 J: it begins again every 400 ms
for folder in root/sys/devices/system/cpu/*; do echo 2100000 > "$folder/cpufreq/scaling_cur_freq"; done
count() { # microjoules: nanoseconds times watts over 1000
    local now=${EPOCHREALTIME/./}
    echo $((now * 50 % 20000000)) > next && mv next $zone/intel-rapl:0/energy_uj
    echo $((now * 5 % 20000000)) > next && mv next $zone/intel-rapl:0:1/energy_uj
}
count && echo 7 > $zone/intel-rapl:0:0/energy_uj
while sleep 0.002; do count; done &
counting=$!
trap 'kill $counting; rm -rf "$work"' EXIT
does out train --data "$text" --model llama:layers=2,width=64,heads=2,context=64,vocab=256 --sequences 8 --steps 30 --devices cpu:1@0.1 --quiet \
    --evaluate-every 0 --power root --log log.jsonl
watts=$(median log.jsonl watts 5 30) per=$(median log.jsonl tokens_per_joule 5 30)
mhz=$(sed -n 's/.*"mhz":\[\([0-9.]*\)\].*/\1/p' log.jsonl | sort -u)
ms=$(median log.jsonl step_ms 5 30)
[ "$mhz" = 2100.0 ] || short "MHz: $mhz"
is "$watts > 35 && $watts < 75" || short "$watts W of 55, steps of $ms ms"
is "$per * $watts * $ms / 512000 > 0.7 && $per * $watts * $ms / 512000 < 1.4" || short "$per tokens a joule, 512 tokens in $ms ms at $watts W"
works "the step log has $watts W of counters that grow by 55, $per tokens a joule, $mhz MHz"

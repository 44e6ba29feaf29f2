#!/bin/bash
# A link changes while a run goes on: the run goes over to another plan and back, and trains the bits of one device.
# usage: tests/systems/adapt.sh latency|bandwidth
. "$(dirname "$0")/common.sh"
T=(--data "$text" --model llama:layers=4,width=64,heads=2,context=64,vocab=256 --sequences 1 --micro-batches 16 --granule 1 --quiet --hash)
two=cpu:1@0.4,cpu:1@0.4
case $1 in
latency) # CrossPipe's and SpanTrain's case: ten times the latency between two stages
    does one train "${T[@]}" --steps 50 --devices cpu:2
    does moved train "${T[@]}" --steps 50 --devices $two --links 0-1:3ms --plan pp --adapt 1.5 --slow 15:0-1:30ms --log moved.jsonl
    does known train "${T[@]}" --steps 25 --devices $two --links 0-1:30ms --plan auto --plan-seconds 3 --log known.jsonl
    after=$(median moved.jsonl step_ms 36 50) best=$(median known.jsonl step_ms 8 25) slow=$(median moved.jsonl step_ms 15 16) fast=$(median moved.jsonl step_ms 5 14)
    said=$(grep '"event":"replan"' moved.jsonl | tail -n 1 | sed 's/.*"before_step":\([0-9]*\),"micro_batches":\([0-9]*\).*"schedule":"\([^"]*\)".*/before step \1: \3, \2 micro-batches/')
    [ "$(hash_of one)" = "$(hash_of moved)" ] || short 'other weights than one device'
    [ -n "$said" ] || short "no other plan was taken: steps of $fast, $slow, $after ms"
    is "$best / $after >= 0.8" || short "steps of $fast ms, $slow ms at ten times the latency, $after ms after $said; $best ms where the latency was known"
    works "steps of $fast ms, $slow ms at ten times the latency, $after ms with another plan ($said), $best ms where the latency was known; one device's weights" ;;
bandwidth) # from data parallelism to a pipeline and back: two micro-batches in 1f1b, so that a pipeline is idle for a third where links are fast
    T+=(--sequences 4 --micro-batches 2 --granule 4 --schedule 1f1b)
    does one train "${T[@]}" --steps 56 --devices cpu:2
    does moved train "${T[@]}" --steps 56 --devices cpu:1@0.06,cpu:1@0.06 --links 0-1:50us:400M --plan dp --adapt 2 --slow 12:0-1:50us:2M,34:0-1:50us:400M --log moved.jsonl
    plans=$(grep '"event":"replan"' moved.jsonl | sed 's/.*"before_step":\([0-9]*\),.*; \(a step of [^"]*\)".*/before step \1: \2/' | paste -sd ';' | sed 's/;/; /g')
    [ "$(hash_of one)" = "$(hash_of moved)" ] || short 'other weights than one device'
    grep '"event":"replan"' moved.jsonl | grep -q '1 pipelines' || short "no pipeline was taken: $plans"
    grep '"event":"replan"' moved.jsonl | tail -n 1 | grep -q '2 pipelines, 2 stages' || short "data parallelism did not come back: $plans"
    works "steps of $(median moved.jsonl step_ms 5 11) ms, $(median moved.jsonl step_ms 12 13) ms on the narrow link, $(median moved.jsonl step_ms 24 33) ms as a pipeline,"\
 "$(median moved.jsonl step_ms 48 56) ms in the end; one device's weights. $plans" ;;
esac

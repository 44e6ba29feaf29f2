#!/bin/bash
# Models as a user meets them: text trained and continued with a tokenizer, generation with and without kept keys and values and on several ranks,
# evaluation, low-rank adapters trained, resumed and merged, fine-tuning. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
programs=$PWD/${BUILD:-build}/checked
oracle=$PWD/tests/oracle/data/adapter
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

same() { # same NAME FILE FILE
    cmp -s "$2" "$3"
    report $? "$1" "$(cmp "$2" "$3" 2>&1)"
}

number() { sed -n "s/.*\"$1\":\\([-0-9.e]*\\).*/\\1/p" out; } # number KEY of the line of JSON in out
near() { awk -v a="$2" -v b="$3" -v c="$4" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= c) }'; report $? "$1" "$2 and $3, $4 allowed"; }

for i in $(seq 50); do echo "line $i: größer, the quick brown fox jumps over the lazy dog, $((i * i)) times"; done > text
run=(--sequences 2 --length 16 --evaluate-every 0 --evaluate-batches 1 --warmup 0 --quiet)

# ---- a tokenizer in training, generation and evaluation ----
does 'a tokenizer of 330 ids' tokenize --train 330 --text text --tokenizer tok.json
does 'training on text with it' train --data text --tokenizer tok.json --model llama:layers=2,width=32,heads=2,context=24 --steps 12 --lr 0.01 --out t "${run[@]}"
same 'the tokenizer is copied, byte by byte' tok.json t/tokenizer.json
grep -q '"vocab_size": 330' t/config.json
report $? 'the vocabulary is the tokenizer'"'"'s'
does 'a token file of the same text' tokenize --tokenizer tok.json --text text --out text.tok
does 'training on that file' train --data text.tok --model llama:layers=2,width=32,heads=2,context=24,vocab=330 --steps 12 --lr 0.01 --out t2 "${run[@]}"
same 'the same weights' t/model.safetensors t2/model.safetensors
does 'a run that is stopped' train --data text --tokenizer tok.json --model llama:layers=2,width=32,heads=2,context=24 --steps 12 --lr 0.01 --out t3 --checkpoint-every 6 "${run[@]}"
rm -r t3/*.safetensors t3/step-00000012
does 'and resumed, with the tokenizer of its directory' train --resume t3 --quiet
same 'has the same weights' t/model.safetensors t3/model.safetensors
does 'a checkpoint finds the tokenizer above it' generate --init t3/step-00000006 --tokens 2
refuses '--tokenizer|330 ids|256' train --data text --tokenizer tok.json --model llama:vocab=256,layers=1 "${run[@]}"
refuses 'nothere.json' generate --init t --tokenizer nothere.json
cp -r "$oracle/llama" more && cp tok.json more
mv more/tok.json more/tokenizer.json
refuses '--init more/tokenizer.json: 330 ids, the model' train --data text --init more "${run[@]}"
refuses '--init more/tokenizer.json: 330 ids, the model' generate --init more --tokens 1
refuses '--tokenizer tok.json: 330 ids, the model' evaluate --init "$oracle/llama" --data text --tokenizer tok.json
mkdir -p odd/model.safetensors && cp t/config.json odd
refuses '--init odd/model.safetensors: is a directory' generate --init odd --tokens 1
refuses 'needs a tokenizer' generate --init t2 --tokens 3
refuses '--tokenizer|330 ids|40' generate --init "$oracle/llama" --tokenizer tok.json

# ---- a tokenizer of a kind that is not supported: tokens and weights do without, and it stays with the model ----
cp -r t unread && sed 's/"type": *"ByteLevel"/"type":"Metaspace"/' tok.json > unread/tokenizer.json
refuses '--data text: is text|unread/tokenizer.json|Metaspace' train --init unread --data text --steps 1 --out unread_2 "${run[@]}"
does 'tokens train' train --init unread --data text.tok --steps 2 --lora 2 --out unread_2 "${run[@]}"
does 'are evaluated' evaluate --init unread --data text.tok --length 16
does 'factors are merged' merge --init unread --adapter unread_2 --out unread_3
does 'weights are converted' convert --init unread --out unread_4
for out in unread_2 unread_3 unread_4; do same "$out has it" unread/tokenizer.json $out/tokenizer.json; done
does 'and training goes on' train --resume unread_2 --steps 3 --schedule-lr constant --force-resume --quiet
refuses 'unread/tokenizer.json|Metaspace' generate --init unread --tokens 1
refuses 'unread/tokenizer.json|Metaspace' convert --init unread --gguf o.gguf
refuses 'unread/tokenizer.json|Metaspace' train --init t --tokenizer unread/tokenizer.json --data text.tok --steps 1 "${run[@]}"

does 'a context of one token' train --data text --model gpt2:layers=1,width=8,heads=1,context=1 --steps 2 --length 1 --quiet --out one
does 'continues a longer text' generate --init one --prompt ab --tokens 3

draw=(--prompt 'line 7: größ' --tokens 60 --temperature 0.9 --top-k 40 --top-p 0.95 --seed 5 --ignore-end)
does 'generation' generate --init t "${draw[@]}" --ids
mv out ids
[ "$(wc -l < ids)" = 60 ]
report $? '60 ids, more than the context holds'
does 'all tokens anew every time' generate --init t "${draw[@]}" --ids --no-cache
same 'the same ids' ids out
does 'on three ranks' generate --init t "${draw[@]}" --ids --devices cpu:1,cpu:2,cpu:1 --plan 'pp:0-1|2-2|3-5'
same 'the same ids' ids out
does 'another seed' generate --init t "${draw[@]}" --ids --seed 6
! cmp -s ids out
report $? 'other ids'
does 'as text' generate --init t "${draw[@]}"
mv out shown
"$programs/generate" --init t "${draw[@]}" --ids 2> /dev/null | while read -r id; do printf "\\x$(printf %02x $((id & 255)))\\x$(printf %02x $((id >> 8)))"; done > ids.bin
{ printf 'line 7: größ'; "$programs/tokenize" --tokenizer tok.json --decode ids.bin; echo; } > decoded
same 'the text of these ids behind the prompt' decoded shown
first=$(head -n 1 ids)
cp -r t ends && echo "{\"eos_token_id\": [$first, 329]}" > ends/generation_config.json
"$programs/generate" --init ends --prompt 'line 7: größ' --tokens 60 --temperature 0.9 --top-k 40 --top-p 0.95 --seed 5 > out 2> err
[ "$(cat out)" = 'line 7: größ' ] && grep -q '^1 tokens' err
report $? 'the token that ends a text ends it' "$(cat out err)"

# ---- evaluation ----
does 'evaluation of a text' evaluate --init t --data text --json
loss=$(number loss) bits=$(number bits_per_byte) bytes=$(number bytes) tokens=$(number tokens)
[ "$bytes" -lt "$(wc -c < text)" ] && [ "$bytes" -gt $(($(wc -c < text) - 9)) ]
report $? 'bits are of all bytes but the first token'"'"'s' "$bytes"
near 'bits per byte are nats a token in other units' "$bits" "$(awk -v l="$loss" -v t="$tokens" -v b="$bytes" 'BEGIN { printf "%.12f", l * t / b / log(2) }')" 1e-8
does 'of its token file' evaluate --init t --data text.tok --json
near 'the same loss' "$(number loss)" "$loss" 0
does 'on two ranks, other windows at once' evaluate --init t --data text --json --devices cpu:1,cpu:1 --plan pp --sequences 7
near 'the same loss' "$(number loss)" "$loss" 1e-12
for ranks in 'cpu:1,cpu:1' 'cpu:2,cpu:1,cpu:1' 'cpu:1,cpu:1,cpu:1,cpu:1 --plan dp2xpp2 --schedule gpipe'; do
    # shellcheck disable=SC2086
    does "on $ranks" evaluate --init t --data text --json --devices $ranks
    near 'the same bits' "$(number loss)" "$loss" 0
done
does 'with weights in bf16' evaluate --init t --data text --json --weights bf16
near 'nearly the same loss' "$(number loss)" "$loss" 1e-2
report "$([ "$(number loss)" != "$loss" ]; echo $?)" 'but not the same'
does 'with weights in int8' evaluate --init t --data text --json --weights int8
near 'nearly the same loss' "$(number loss)" "$loss" 2e-2
report "$([ "$(number loss)" != "$loss" ]; echo $?)" 'but not the same'
does 'windows that overlap' evaluate --init t --data text --json --stride 5
near 'predict as many tokens' "$(number tokens)" "$tokens" 0
does 'short windows' evaluate --init t --data text --json --length 4
near 'predict as many tokens' "$(number tokens)" "$tokens" 0
refuses '--length 25|24' evaluate --init t --data text --length 25
refuses '--stride 9|8' evaluate --init t --data text --length 8 --stride 9
refuses '--data or --choices' evaluate --init t
: > empty
refuses '0 tokens' evaluate --init t --data empty
printf '\001\001\377\377' > bad.bin
refuses 'token 65535 at offset 2|330' evaluate --init t --data bad.bin
{ printf '\210\330\064\001\002\000\000\000\000\000\000\000'; head -c 1012 /dev/zero; } > old.tok # 20240520, version 2
refuses 'version 2 at offset 4' evaluate --init t --data old.tok

# Questions whose right answer is the greedy continuation: all of them must be right. Numbers are 16 bits.
words() { local w; for w in "$@"; do printf "\\x$(printf %02x $((w & 255)))\\x$(printf %02x $((w >> 8 & 255)))"; done; }
mapfile -t greedy < <("$programs/generate" --init t --prompt 'line' --tokens 3 --temperature 0 --ids --ignore-end 2> /dev/null)
printf line > line
"$programs/tokenize" --tokenizer tok.json --text line --out line.tok > /dev/null
prompt=$(tail -c +1025 line.tok | od -A n -t u2 -v | tr -s ' \n' ' ')
# shellcheck disable=SC2086
set -- $prompt
item() { words 65535 $((2 * (5 + 1 + $# - 2 + 2 * 3))) "$1" "$2" 2 $(($# - 2)) "${@:3}"; }
{
    words 55434 308 1 0 2 0 $((2 * (12 + $#))) 0
    head -c 1008 /dev/zero
    item 0 1 "$@"; words 2 7 9 2 "${greedy[0]}" "${greedy[1]}"
    item 1 0 "$@"; words 2 "${greedy[0]}" "${greedy[1]}" 2 9 7
} > quiz.bin
does 'multiple choice' evaluate --init t --choices quiz.bin --json
near 'greedy answers are right' "$(number right)$(number right_normalized)" 22 0
does 'multiple choice on two ranks' evaluate --init t --choices quiz.bin --json --devices cpu:1,cpu:1 --plan pp
near 'the same' "$(number accuracy)" 1 0
refuses 'byte 0|20240522' evaluate --init t --choices text.tok
refuses 'token|vocabulary' evaluate --init "$oracle/llama" --choices quiz.bin

# ---- low-rank adapters ----
lora=(train --data text --init t --lora 3 --lora-alpha 5 --lora-target q,v,down --steps 8 --lr 0.05 "${run[@]}" --hash)
does 'factors are trained' "${lora[@]}" --out l
mv out hash
[ ! -e l/model.safetensors ] && [ -s l/adapter_model.safetensors ] && [ -s l/tokenizer.json ] && grep -q '"r": 3' l/adapter_config.json
report $? 'saved in two files, with the tokenizer'
grep -q lora l/config.json
report $((1 - $?)) 'config.json is the base'"'"'s'
does 'on three ranks, sharded' "${lora[@]}" --out l2 --devices cpu:1,cpu:1,cpu:1 --plan 'pp:0-1|2-3|4-5' --schedule zb-h1 --shard-gradients
same 'the same hash' hash out
same 'the same factors' l/adapter_model.safetensors l2/adapter_model.safetensors
does 'data-parallel, recomputed, in slices' "${lora[@]}" --out l2 --overwrite --devices cpu:1,cpu:2 --plan dp --recompute --slices 2 --backward split --granule 1 --micro-batches 1
does 'the same on one' "${lora[@]}" --out l3 --granule 1
same 'the same factors' l2/adapter_model.safetensors l3/adapter_model.safetensors
does 'a run of factors that is stopped' "${lora[@]}" --out l4 --checkpoint-every 4
rm -r l4/*.safetensors l4/step-00000008
does 'and resumed on two ranks' train --resume l4 --quiet --devices cpu:1,cpu:1 --plan pp --hash
same 'has the same hash' hash out
does 'factors beside a base of int8' "${lora[@]}" --out l7 --weights int8 --checkpoint-every 4
mv out hash8
report "$(cmp -s hash hash8; echo $((1 - $?)))" 'have other bits'
rm -r l7/*.safetensors l7/step-00000008
does 'and resumed on two ranks that divide it' train --resume l7 --quiet --devices cpu:1,cpu:1 --plan dp --shard weights --hash
same 'has the same hash' hash8 out
does 'one more step with nothing learned' train --data text --init t --init-adapter l --steps 1 --lr 1e-12 --out l5 "${run[@]}"
does 'evaluation with the adapter' evaluate --init t --adapter l --data text --json
adapted=$(number loss)
does 'and with that of one step more' evaluate --init t --adapter l5 --data text --json
near 'it began with these factors' "$(number loss)" "$adapted" 1e-8
near 'the adapter does something' "$(awk -v a="$adapted" -v b="$loss" 'BEGIN { print (a - b > 1e-3 || b - a > 1e-3) }')" 1 0
does 'merged' merge --init t --adapter l --out m
does 'evaluation of the merged model' evaluate --init m --data text --json
near 'the same loss' "$(number loss)" "$adapted" 1e-5
does 'generation with factors' generate --init t --adapter l --prompt line --tokens 20 --temperature 0 --ids --ignore-end
mv out ids
does 'generation with merged weights' generate --init m --prompt line --tokens 20 --temperature 0 --ids --ignore-end
same 'the same ids' ids out
for family in llama qwen3 gpt2 neox; do
    does "what PEFT wrote for $family, merged" merge --init "$oracle/$family" --adapter "$oracle/$family" --out "m_$family"
    [ -s "m_$family/model.safetensors" ] && [ "$(wc -c < "m_$family/config.json")" -gt 100 ]
    report $? "is a whole model"
done
refuses '--lora-target|w' train --data text --init t --lora 2 --lora-target q,w "${run[@]}"
refuses '--lora-target|--lora' train --data text --init t --lora-target q "${run[@]}"
refuses '--lora-alpha|--lora' train --data text --init t --lora-alpha 2 "${run[@]}"
does 'a GPT-2' train --data text --model gpt2:layers=1,width=32,heads=2,context=24 --steps 1 --out g "${run[@]}"
refuses '--lora-target q: |q, k and v' train --data text --init g --lora 2 --lora-target q "${run[@]}"
does 'factors of q and v, unasked' train --data text --init t --lora 2 --steps 1 --out unasked "${run[@]}"
refuses '--lora-target q: the saved run has q,v|--force-resume' train --resume unasked --lora-target q --quiet
does 'which may be said' train --resume unasked --lora-target q,v --quiet
refuses '--lora|--init FILE|DIR' train --data text --model llama:layers=1,width=32 --lora 2 "${run[@]}"
refuses '--init-adapter|--init' train --data text --init-adapter l "${run[@]}"
refuses '--init-adapter|--lora' train --data text --init t --init-adapter l --lora 3 "${run[@]}"
refuses '--adapter|adapter_config.json' generate --init t --adapter t
refuses '--init l/model.safetensors: No such file|it holds low-rank factors, for --adapter' generate --init l
refuses '--adapter|self_attn.q_proj|family' generate --init "$oracle/gpt2" --adapter l --tokenizer tok.json
refuses '--adapter' merge --init t --out m
cp -r l cut && head -c 2000 l/adapter_model.safetensors > cut/adapter_model.safetensors
refuses '--adapter|cut/adapter_model.safetensors' generate --init t --adapter cut

# ---- weights that are not finite ----
poke() { # poke FILE TENSOR ELEMENT VALUE
    python3 - "$@" << 'END'
import json, struct, sys
path, tensor, element, value = sys.argv[1:]
with open(path, "r+b") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    begin = json.loads(f.read(size))[tensor]["data_offsets"][0]
    f.seek(8 + size + begin + 4 * int(element))
    f.write(struct.pack("<f", float(value)))
END
}
cp -r t bad && poke bad/model.safetensors model.layers.1.mlp.up_proj.weight 77 nan
words='bad/model.safetensors|model.layers.1.mlp.up_proj.weight|element 77 is nan|--allow-nonfinite'
refuses "$words" generate --init bad --prompt line --tokens 3
refuses "$words" evaluate --init bad --data text
refuses "$words" convert --init bad --out c
refuses "$words" merge --init bad --adapter l --out c
refuses "$words" train --data text --init bad --steps 1 "${run[@]}"
[ ! -e c ]
report $? 'and nothing is written'
does 'an option allows them' evaluate --init bad --data text --json --allow-nonfinite
python3 -c 'import json, sys; j = json.loads(sys.stdin.read(), parse_constant=sys.exit); assert j["loss"] is j["perplexity"] is j["bits_per_byte"] is None' < out
report $? 'what is not a number is null in JSON' "$(cat out)"
refuses '--choices quiz.bin: question 0: log p of answer 0 is nan' evaluate --init bad --choices quiz.bin --allow-nonfinite
does 'in generation' generate --init bad --prompt line --tokens 3 --allow-nonfinite
does 'in conversion' convert --init bad --out c --allow-nonfinite
cp -r l badl && poke badl/adapter_model.safetensors base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight 5 -inf
refuses 'badl/adapter_model.safetensors|layers.0.self_attn.q_proj.lora_B.weight|element 5 is -inf|--allow-nonfinite' generate --init t --adapter badl
refuses 'badl/adapter_model.safetensors|element 5 is -inf|--allow-nonfinite' train --data text --init t --init-adapter badl --steps 1 "${run[@]}"
cp -r t far && poke far/model.safetensors lm_head.weight 5 1e6
does 'a model that is as wrong as can be' evaluate --init far --data text --json
python3 -c 'import json, sys; j = json.loads(sys.stdin.read(), parse_constant=sys.exit); assert j["loss"] > 1e3 and j["perplexity"] is None' < out
report $? 'an infinite perplexity is null in JSON' "$(cat out)"

# ---- a config.json that asks for more than the weights have ----
hostile() { # hostile WORDS SED
    rm -rf h && cp -r t h && sed -i "$2" h/config.json
    refuses "--init|$1" train --data text --init h --steps 1 "${run[@]}"
    refuses "--init|$1" generate --init h --tokens 3
    refuses "--init|$1" evaluate --init h --data text
    refuses "--init|$1" convert --init h --gguf h.gguf
    refuses "--init|$1" merge --init h --adapter l --out c2
    refuses "config.json|$1" inspect h
}
hostile 'vocab_size 16000000|lm_head.weight|[330, 32]' 's/"vocab_size": 330/"vocab_size": 16000000/'
hostile 'num_hidden_layers 60000|self_attn.q_proj.weight|2 layers' 's/"num_hidden_layers": 2/"num_hidden_layers": 60000/'
hostile 'hidden_size 32000|[330, 32]' 's/"hidden_size": 32/"hidden_size": 32000/'
hostile 'intermediate_size 10000000|down_proj.weight|[32, 96]' 's/"intermediate_size": 96/"intermediate_size": 10000000/'
hostile 'num_attention_heads 4 of size 16|proj.weight|has shape [32, 32]' 's/"num_attention_heads": 2/"num_attention_heads": 4/'
rm -rf h && cp -r t h && sed -i 's/"max_position_embeddings": 24/"max_position_embeddings": 16000000/' h/config.json
if (ulimit -d 400000; "$programs/generate" --version) > /dev/null 2>&1; then
    (ulimit -d 400000; exec "$programs/generate" --init h --tokens 3) > out 2> err
    report $? 'a context of 16,000,000 takes no memory before it is used' "$(cat err)"
else
    leave_out 'a context of 16,000,000: the program alone takes more memory than that (a sanitizer)'
fi
"$programs/convert" --init t --out s --shard 9000 --save-dtype f32 > out 2>&1 && sed -i 's/"vocab_size": 330/"vocab_size": 16000000/' s/config.json
refuses '--init|vocab_size 16000000|[330, 32]' generate --init s --tokens 3
refuses 'config.json|vocab_size 16000000' inspect s
refuses '--init|vocab_size 500|[330, 32]' generate --init t --model llama:layers=2,width=32,heads=2,context=24,vocab=500 --tokenizer tok.json

# ---- what belongs to a model stays with it: where its texts end, how it generates, its tokenizer ----
cp -r t base && rm -r base/step-*
python3 - << 'END'
import json
c = json.load(open("base/config.json"))
c.update(bos_token_id=1, eos_token_id=[2, 7], pad_token_id=3, transformers_version="4.40.0", task_specific_params={"text-generation": {"do_sample": True}},
         logit_scale=1.0, torch_dtype="bfloat16", hidden_act="silu", resid_pdrop=0.5, use_cache=False)
json.dump(c, open("base/config.json", "w"), indent=2)
json.dump({"bos_token_id": 1, "eos_token_id": [2, 7, 50256], "pad_token_id": 3, "do_sample": True}, open("base/generation_config.json", "w"))
json.dump({"eos_token": "<|endoftext|>", "chat_template": "{{ x }}"}, open("base/tokenizer_config.json", "w"))
json.dump({"eos_token": "<|endoftext|>"}, open("base/special_tokens_map.json", "w"))
END
kept() { # kept DIR FILES...   eos and the like in DIR/config.json, what is the model's own as it is, and FILES byte by byte
    local dir=$1 file
    shift
    for file in generation_config.json tokenizer_config.json special_tokens_map.json tokenizer.json; do same "$dir/$file" "base/$file" "$dir/$file"; done
    python3 - "$dir" << 'END'
import json, sys
a, b = json.load(open("base/config.json")), json.load(open(sys.argv[1] + "/config.json"))
for key in "bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "task_specific_params", "logit_scale", "vocab_size", "model_type":
    assert a[key] == b[key], key
assert b["torch_dtype"] == "float32" and b["use_cache"] is True and "resid_pdrop" not in b
text = open(sys.argv[1] + "/config.json").read()
assert all(text.count('"%s":' % key) == 1 for key in b if key not in ("text-generation", "do_sample"))
END
    report $? "$dir/config.json keeps what is not the model's"
}
does 'converted' convert --init base --out c3 --save-dtype f32
kept c3
mkdir x3
does 'trained, saved and exported' train --data text --init base --steps 2 --checkpoint-every 1 --out o3 --export x3 "${run[@]}"
kept o3; kept o3/step-00000001; kept x3
rm -r o3/step-00000002 o3/*.json o3/*.safetensors
does 'resumed' train --resume o3 --quiet
kept o3; kept o3/step-00000002
does 'factors trained' train --data text --init base --lora 2 --steps 1 --out l6 "${run[@]}"
kept l6
does 'merged' merge --init base --adapter l6 --out m3
kept m3
does 'converted with factors' convert --init base --adapter l6 --out c4 --save-dtype f32
kept c4
same 'factors added by convert or by merge: the same weights' m3/model.safetensors c4/model.safetensors
does 'from shards' convert --init base --out c5 --shard 9000 --save-dtype f32
kept c5
rm c5/tokenizer.json
does 'without a tokenizer.json' convert --init c5 --out c6 --save-dtype f32
same 'generation settings stay' base/generation_config.json c6/generation_config.json

broken() { # broken WORDS TEXT
    rm -rf br && cp -r base br && printf '%s' "$2" > br/generation_config.json
    refuses "br/generation_config.json|$1" generate --init br --tokens 3
    refuses "br/generation_config.json|$1" convert --init br --gguf br.gguf
    refuses "br/generation_config.json|$1" convert --init br --out c7
    refuses "br/generation_config.json|$1" merge --init br --adapter l6 --out c7
    refuses "br/generation_config.json|$1" train --data text --init br --steps 1 --out c7 "${run[@]}"
}
broken 'byte 0' ''
broken 'byte 18' '{"eos_token_id": 2'
broken 'byte 17' '{"eos_token_id": "2"}'
broken 'byte 17' '{"eos_token_id": 2.5}'
broken 'byte 18' '{"eos_token_id": [true]}'
broken 'eos_token_id occurs twice' '{"eos_token_id": 2, "eos_token_id": 3}'
broken 'byte 0' '[2]'
[ ! -e c7 ] && [ ! -e br.gguf ]
report $? 'and nothing is written' "$(ls -d c7 br.gguf 2> /dev/null)"
printf '{"eos_token_id": -1, "do_sample": true}' > br/generation_config.json
does 'ids that no token has end no text' generate --init br --tokens 3

# ---- fine-tuning in one command ----
BUILD=$programs "$root/programs/finetune.sh" t text f --steps 3 --quiet > out 2> err
report $? 'fine-tuning of all weights' "$(tail -n 2 err)"
[ -s f/model.safetensors ] && [ -s f/config.json ] && cmp -s f/tokenizer.json tok.json
report $? 'leaves a whole directory'
BUILD=$programs "$root/programs/finetune.sh" t text fl --steps 3 --lora 2 --quiet > out 2> err
report $? 'fine-tuning of factors' "$(tail -n 2 err)"
does 'leaves a merged model' generate --init fl/merged --prompt line --tokens 3
mkdir -p tree/programs tree/build && cp "$root/programs/finetune.sh" tree/programs && ln -s "$programs/train" "$programs/merge" tree/build
env -u BUILD tree/programs/finetune.sh t text fo --steps 3 --quiet > out 2> err
report $? 'from any directory, with the programs built beside it' "$(tail -n 2 err)"
"$root/programs/finetune.sh" t 2> err
[ $? = 2 ] && grep -q 'MODEL TEXT OUT' err
report $? 'without arguments it says how'
finish

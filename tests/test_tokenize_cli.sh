#!/bin/bash
# build/tokenize as a user meets it: tokenizers trained, token files of each format, text that comes back, and bad options and files, which give exit
# status 2 and one line that names the option, file, offset or value. Prints TAP.
cd "$(dirname "$0")/.." || exit 2
. tests/tools/tap.sh
root=$PWD
tokenize=$PWD/${BUILD:-build}/checked/tokenize
data=$root/tests/oracle/data/tokenizer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

# refuses WORDS ARGUMENTS...   WORDS: what the line must hold, separated by |
refuses() {
    local words=$1
    shift
    refusal "$words" "$tokenize" "$@"
    [ -s out ] && bad="$bad; something on standard output"
    [ -e never.bin ] && bad="$bad; a file was written"
    ls ./*.tmp > /dev/null 2>&1 && bad="$bad; a temporary file was left"
    report "$([ -z "$bad" ]; echo $?)" "refuses $words" "$*" "$bad" "$line"
}

does() { # does NAME ARGUMENTS...
    local name=$1
    shift
    "$tokenize" "$@" > out 2> err < /dev/null
    report $? "$name: $(tail -n 1 out | cut -c1-100)" "$(cat err)"
}

same() { # same NAME FILE FILE
    cmp -s "$2" "$3"
    report $? "$1" "$(cmp "$2" "$3" 2>&1)"
}

numbers() { od -A n -t "u$1" -v "$2" | tr -s ' \n' ' '; } # numbers BYTES FILE

# ---- there and back ----
text=$data/train.txt
for split in gpt2 llama3 qwen2; do
    does "trains $split" --train 900 --split $split --text "$text" --tokenizer $split.json
    does "encodes with it" --tokenizer $split.json --text "$text" --out $split.bin
    does "decodes it" --tokenizer $split.json --decode $split.bin --out $split.txt
    same "$split: the text came back" "$text" $split.txt
done
"$tokenize" --tokenizer gpt2.json --decode gpt2.bin | cmp -s - "$text"
report $? 'decodes to standard output'
bytes=$(wc -c < gpt2.bin)
case $(numbers 4 gpt2.bin) in " 20240520 1 $(((bytes - 1024) / 2)) 0 "*) report 0 'header of 16-bit tokens' ;; *) report 1 'header of 16-bit tokens' ;; esac
does 'nanoGPT' --tokenizer gpt2.json --text "$text" --out nano.bin --format nanogpt
tail -c +1025 gpt2.bin > rest
same 'nanoGPT is the tokens alone' rest nano.bin
does 'decodes nanoGPT' --tokenizer gpt2.json --decode nano.bin --out nano.txt
same 'nanoGPT: the text came back' "$text" nano.txt

byte_level='{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}'
model='"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":65537},"merges":[]}'
token='"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true'
template='{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[3]}}}'
echo "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",$token}],\"pre_tokenizer\":$byte_level,\"post_processor\":$template,\"decoder\":$byte_level,$model}" > wide.json
printf 'ab<s>c' > abc.txt
does '32-bit tokens' --tokenizer wide.json --text abc.txt --out wide.bin
case $(numbers 4 wide.bin) in " 20240801 7 4 0 "*" 0 1 3 65537 ") report 0 'header of 32-bit tokens' ;; *) report 1 'header of 32-bit tokens' "$(numbers 4 wide.bin)" ;; esac
does 'with beginning and end' --tokenizer wide.json --text abc.txt --out wrapped.bin --wrap yes
case $(numbers 4 wrapped.bin) in " 20240801 7 5 0 "*" 3 0 1 3 65537 ") report 0 'the beginning is there' ;; *) report 1 'the beginning is there' "$(numbers 4 wrapped.bin)" ;; esac
does 'decodes 32-bit tokens' --tokenizer wide.json --decode wide.bin --out wide.txt
same '32 bits: the text came back' abc.txt wide.txt
: > empty.txt
does 'an empty text' --tokenizer gpt2.json --text empty.txt --out empty.bin
[ "$(wc -c < empty.bin)" = 1024 ]
report $? 'is a header'
"$tokenize" --help > out
report $? "--help: $(grep -c -- '^  --' out) options"

# ---- what is refused ----
refuses '--tokenizer is missing'
refuses '--text /dev/zero|not a file' --tokenizer gpt2.json --text /dev/zero --out never.bin
refuses '--wings|no such option' --wings
refuses '--text FILE or --decode FILE' --tokenizer gpt2.json
refuses '--out FILE is missing' --tokenizer gpt2.json --text "$text"
refuses '--decode goes with neither' --tokenizer gpt2.json --text "$text" --decode gpt2.bin
refuses '--train writes --tokenizer' --tokenizer x.json --text "$text" --train 300 --out never.bin
refuses '--out abc.txt: is the file of --text' --tokenizer gpt2.json --text abc.txt --out abc.txt
refuses '--out gpt2.json: is the file of --tokenizer' --tokenizer gpt2.json --text abc.txt --out gpt2.json
refuses '--tokenizer abc.txt: is the file of --text' --tokenizer abc.txt --text abc.txt --train 300
refuses '--train 12|257' --tokenizer x.json --text "$text" --train 12
refuses '--train: no pair of bytes comes twice in the 0 of --text empty.txt' --tokenizer never.bin --text empty.txt --train 258
refuses '--train: no pair of bytes comes twice in the 6 of --text abc.txt' --tokenizer never.bin --text abc.txt --train 300
does 'bytes alone, of no text' --tokenizer bytes.json --text empty.txt --train 257
printf 'aaaaaaaa' > alike.txt
does 'one letter over and over' --tokenizer alike.json --text alike.txt --train 300
grep -q '259 ids, 2 merges; the text has no more pairs' out
report $? 'says what it found' "$(cat out)"
refuses '--format elf|llmc|nanogpt' --tokenizer gpt2.json --text "$text" --out never.bin --format elf
refuses '--wrap yes|gpt2.json|nothing before or behind' --tokenizer gpt2.json --text "$text" --out never.bin --wrap yes
refuses '--format nanogpt|65537' --tokenizer wide.json --text abc.txt --out never.bin --format nanogpt
refuses '--text none.txt|No such file' --tokenizer gpt2.json --text none.txt --out never.bin
refuses '--tokenizer none.json|No such file' --tokenizer none.json --text abc.txt --out never.bin
refuses '--tokenizer abc.txt|byte 0' --tokenizer abc.txt --text abc.txt --out never.bin
refuses '--text abc.txt|byte 60' --tokenizer wide.json --text abc.txt --out never.bin --special no
refuses '--text .|is a directory' --tokenizer gpt2.json --text . --out never.bin
refuses '--out none/x|No such file' --tokenizer gpt2.json --text abc.txt --out none/x
refuses '--tokenizer none/x|No such file' --train 300 --text "$text" --tokenizer none/x
refuses '--decode wide.bin|token 3 is 65537' --tokenizer gpt2.json --decode wide.bin --out never.bin
head -c 1027 wide.bin > short.bin
refuses '--decode short.bin|4 tokens|3 bytes' --tokenizer wide.json --decode short.bin
head -c 1000 wide.bin > short.bin
refuses '--decode short.bin|1000 bytes are too few for the header of 1024' --tokenizer wide.json --decode short.bin
for version in 1 2; do # in place of 7
    { head -c 4 wide.bin; printf "\\$version\0\0\0"; tail -c +9 wide.bin; } > versions.bin
    refuses "--decode versions.bin|version $version at offset 4, where magic 20240801 has version 7" --tokenizer wide.json --decode versions.bin
done
printf 'abc' > odd.bin
refuses '--decode odd.bin|3 bytes' --tokenizer wide.json --decode odd.bin
sed 's/"ByteLevel"/"Whitespace"/' wide.json > other.json
refuses 'other.json|byte 163|pre_tokenizer|"Whitespace"' --tokenizer other.json --text abc.txt --out never.bin
refuses 'special|gpt2.json' --tokenizer gpt2.json --decode none.bin --special gpt2.json

finish

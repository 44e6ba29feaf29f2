# For the rows of docs/systems.md that are programs, to be sourced. Leaves the row in a folder of its own, with the data in $text.
cd "$(dirname "$0")/../.." || exit 2
programs=$PWD/${BUILD:-build}
text=$PWD/tests/data/shakespeare.txt
[ -x "$programs/train" ] || programs=$programs/checked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

works() { echo "works: $*"; }
short() { echo "short: $*"; exit 1; }
does() { # does OUT PROGRAM ARGUMENTS...
    local out=$1 program=$2
    shift 2
    "$programs/$program" "$@" > "$out" 2>&1 < /dev/null && return
    tail -n 5 "$out"
    short "$program $*: $(tail -n 1 "$out")"
}
hash_of() { sed -n 's/^weights //p' "$1"; }
# median LOG KEY FROM TO: of the numbers of steps FROM to TO
median() {
    sed -n 's/.*"step":\([0-9]*\),.*"'"$2"'":\([0-9.e+-]*\).*/\1 \2/p' "$1" | awk -v a="$3" -v b="$4" '$1 >= a && $1 <= b { print $2 }' | sort -g |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
is() { awk "BEGIN { exit !($1) }"; } # is 'EXPRESSION'

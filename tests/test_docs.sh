#!/bin/bash
# What README, docs/ and the headers refer to is there: files of this repository, chapters, sections, functions. What they repeat is what they
# repeat: the program, the option lists. Prints TAP.
cd "$(dirname "$0")/.." || exit 1
source tests/tools/tap.sh
pages=(README.md CHANGELOG.md docs/*.md)
sources=("${pages[@]}" CMakeLists.txt hetrain*.* util/* programs/* examples/* tests/*/README.md tests/bench/*.md)

missing=$(grep -noHE '\b(util|programs|examples|tests|docs)/[A-Za-z0-9_./-]+\.(c|h|cpp|cu|sh|md|py|svg|txt)\b' "${sources[@]}" | while IFS=: read -r file line path; do
    grep -q 'ggml-org\|xxHash' <<< "$(sed -n "${line}p" "$file")" && continue # a page of another project
    [ -e "$path" ] || echo "$file:$line: $path"
done)
report "$([ -z "$missing" ]; echo $?)" 'files named in README, docs and sources are in the repository' "$missing"

missing=$(grep -noHE '\]\([^)# ]+\)' "${pages[@]}" | tr -d '()]' | while IFS=: read -r file line path; do
    case $path in http*) ;; *) [ -e "$(dirname "$file")/$path" ] || echo "$file:$line: $path" ;; esac
done)
report "$([ -z "$missing" ]; echo $?)" 'so are the files they link to' "$missing"

missing=$(grep -noHE '\]\([^) ]*#[a-z-]+\)' "${pages[@]}" | tr -d '()]' | while IFS=: read -r file line link; do
    to=${link%%#*}
    sed -n 's/^##* //p' "${to:+$(dirname "$file")/}${to:-$file}" | tr 'A-Z ' 'a-z-' | tr -d '?,.:`' | grep -qxF -- "${link#*#}" || echo "$file:$line: $link"
done)
report "$([ -z "$missing" ]; echo $?)" 'chapters are there under the names they are linked by' "$missing"

missing=$(for page in docs/*.md; do grep -qF "]($page)" README.md || echo "$page"; done)
report "$([ -z "$missing" ]; echo $?)" 'README links to every page of docs/' "$missing"

missing=$(for file in hetrain*.* util/*; do grep -q "^| \`$file\` |" README.md || echo "$file"; done)
report "$([ -z "$missing" ]; echo $?)" 'README says of every file of the engine when to copy it' "$missing"

missing=$(for file in examples/*.c examples/*.cpp programs/*.c; do
    name=${file#programs/}
    [ "$name" = "$file" ] || name=build/${name%.c}
    grep -q "^| \`$name\` |" docs/programs.md || echo "$name"
done)
report "$([ -z "$missing" ]; echo $?)" 'docs/programs.md says what every program and example is for' "$missing"

missing=$(sed -n '/^static void log_number/,/^static int evaluate(/p' programs/train.c | grep -oE 'log_number\(j->log, "[a-z_]+"|\\"[a-z_]+\\":' | grep -oE '[a-z_]{2,}\\?"' |
    tr -d '\\"' | sort -u | while read -r key; do grep -q "\`$key\`" docs/files.md || echo "$key"; done)
report "$([ -z "$missing" ]; echo $?)" 'docs/files.md has every key of the log' "$missing"

long=$(awk '/^```/ { code = !code } !code && !/^\|/ && !/^!\[/ && length($0) > 100 { print FILENAME ":" FNR }' "${pages[@]}")
report "$([ -z "$long" ]; echo $?)" 'lines of prose have at most 100 columns' "$long"

report "$(sed -n '/^```c$/,/^```$/p' README.md | sed '1d; $d' | diff - examples/minimal.c > /dev/null; echo $?)" "README's program is examples/minimal.c"

programs=${BUILD:-build}/checked
if [ -x "$programs/inspect" ]; then
    lists=$(mktemp -d)
    bash tests/tools/docs.sh "$programs" "$lists"
    report "$([ "$(cat docs/*.md | grep -c '^<!-- build/.* --help -->$')" = 9 ] && diff -r -x "*.svg" -x difference docs "$lists" > "$lists/difference"; echo $?)" \
        'option lists are what programs print (make docs writes them)' "$(head -n 8 "$lists/difference")"
    rm -r "$lists"
else
    leave_out 'programs are not built: option lists were not compared'
fi

missing=$(grep -hoE '>>[a-z_]+' "${pages[@]}" hetrain*.h util/*.h programs/*.[ch] examples/*.[ch] | sort -u | while read -r tag; do
    grep -qE "^ +$tag |---- $tag" hetrain*.h util/*.h || echo "$tag"
done)
report "$([ -z "$missing" ]; echo $?)" 'every >>tag that is named is a section' "$missing"

missing=$(grep -hoE '`het_[a-z_0-9]+`' README.md docs/*.md | tr -d '`' | sort -u | while read -r name; do grep -qw "$name" hetrain*.* util/* || echo "$name"; done)
report "$([ -z "$missing" ]; echo $?)" 'every function that README and docs name is there' "$missing"

state=$(mktemp -d)
pieces=$(sed -n 's/^#   \([a-z]*\)  .*/\1/p' tests/tools/soak.sh | sort)
shown=$(BUILD=$state bash tests/tools/soak.sh --show 2>&1)
report "$([ $? = 0 ] && [ "$(sed -n 's/^soak: \([a-z]*\): 0 of .*/\1/p' <<< "$shown" | sort)" = "$pieces" ]; echo $?)" 'all pieces of the soak are known' "$pieces" "$shown"
rm -r "$state"

missing=$(grep -noHE '\b(DESIGN|STYLE|HOUSE)\b( section|\.md|:)' "${sources[@]}")
report "$([ -z "$missing" ]; echo $?)" 'no reference to pages that are not here' "$missing"
finish

#!/bin/bash
# What README and the headers refer to is there: files of this repository, chapters, sections, functions.
cd "$(dirname "$0")/.." || exit 1
source tests/tools/tap.sh
sources=(README.md hetrain*.* util/* programs/* examples/* tests/*/README.md tests/bench/*.md)

missing=$(grep -noHE '\b(util|programs|examples|tests|docs)/[A-Za-z0-9_./-]+\.(c|h|cpp|cu|sh|md|py|svg|txt)\b' "${sources[@]}" | while IFS=: read -r file line path; do
    grep -q 'ggml-org\|xxHash' <<< "$(sed -n "${line}p" "$file")" && continue # a page of another project
    [ -e "$path" ] || echo "$file:$line: $path"
done)
report "$([ -z "$missing" ]; echo $?)" 'files named in README and sources are in the repository' "$missing"

missing=$(grep -noE '\]\([^)# ]+\)' README.md | tr -d '()]' | while IFS=: read -r line path; do
    case $path in http*) ;; *) [ -e "$path" ] || echo "README.md:$line: $path" ;; esac
done)
report "$([ -z "$missing" ]; echo $?)" 'so are the files README links to' "$missing"

chapters=$(sed -n 's/^##* //p' README.md | tr 'A-Z ' 'a-z-' | tr -d '?,.`')
missing=$(grep -oE '\]\(#[a-z-]+\)' README.md | tr -d '])(#' | sort -u | grep -vxF "$chapters")
report "$([ -z "$missing" ]; echo $?)" 'its chapters are there under the names it links to' "$missing"

missing=$(grep -hoE '>>[a-z_]+' README.md hetrain*.h util/*.h programs/*.[ch] examples/*.[ch] | sort -u | while read -r tag; do
    grep -qE "^ +$tag |---- $tag" hetrain*.h util/*.h || echo "$tag"
done)
report "$([ -z "$missing" ]; echo $?)" 'every >>tag that is named is a section' "$missing"

missing=$(grep -hoE '`het_[a-z_0-9]+`' README.md | tr -d '`' | sort -u | while read -r name; do grep -qw "$name" hetrain*.* util/* || echo "$name"; done)
report "$([ -z "$missing" ]; echo $?)" 'every function README names is there' "$missing"

missing=$(grep -noHE '\b(DESIGN|STYLE|HOUSE)\b( section|\.md|:)' "${sources[@]}")
report "$([ -z "$missing" ]; echo $?)" 'no reference to pages that are not here' "$missing"
finish

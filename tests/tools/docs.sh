#!/bin/bash
# The option lists in docs/ are what programs print. In each page the fence below a line "<!-- build/NAME --help -->" gets NAME's --help anew.
# usage: tests/tools/docs.sh PROGRAMS [FOLDER]    PROGRAMS: where they are; FOLDER: gets the new pages, docs/ if not given
cd "$(dirname "$0")/../.." || exit 2
programs=$1 folder=${2:-docs}
for page in docs/*.md; do
    awk -v programs="$programs" '
        old { if (/^```$/) old = 0; next }
        marked { marked = 0; if (/^```$/) { old = 1; next } }
        { print }
        /^<!-- build\/[a-z]+ --help -->$/ {
            print "```"
            fflush()
            if (system(programs "/" substr($2, 7) " --help") != 0) exit 1
            print "```"
            marked = 1
        }' "$page" > "$folder/page.new" || { rm "$folder/page.new"; exit 1; }
    mv "$folder/page.new" "$folder/$(basename "$page")"
done

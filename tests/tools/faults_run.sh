# Sourced by the scripts that plant bugs, which define try(): it gets a directory and leaves there `wrong`, why the bug in it was not caught, or
# `caught`, by what. Tries all directories $work/NNN, as many at once as JOBS says or there are processors; prints TAP, and last "N faults, N caught".
shopt -s nullglob
for d in "$work"/[0-9]*; do
    try "$d" &
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ]; do wait -n; done
done
wait

number=0
failures=0
for d in "$work"/[0-9]*; do
    number=$((number + 1))
    if [ -f "$d/wrong" ]; then
        echo "not ok $number - $(cat "$d/name"): $(cat "$d/wrong")"
        failures=$((failures + 1))
    else
        echo "ok $number - $(cat "$d/name"): $(cat "$d/caught")"
    fi
done
echo "1..$number"
echo "$number faults, $((number - failures)) caught"
[ $failures = 0 ] && [ $number -gt 0 ]

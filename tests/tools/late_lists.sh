# Lists of several updates a step that no layout without them has, for suites of processes; to be sourced.
# late_lists PROGRAM: the hash of its threads, which `same PROCESSES OPTION...` of the suite expects in $hash, with ${run[@]}
late_lists() {
    local in_threads=$1 list
    for list in '2 --plan pp --schedule pipedream --updates 6' '3 --plan pp --schedule 2bw --updates 3' \
        '4 --plan dp2xpp2 --staleness 1 --feedback 1 --updates 3' '2 --plan dp --schedule hogbatch --updates 6'; do
        # shellcheck disable=SC2086
        set -- $list
        hash=$("$in_threads" "${run[@]}" --steps 8 --devices "cpu:1$(printf ',cpu:1%.0s' $(seq 2 "$1"))" "${@:2}" | grep '^weights')
        same "$1" --devices cpu:1 "${@:2}"
    done
}

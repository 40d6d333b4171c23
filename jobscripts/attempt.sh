#!/usr/bin/env bash
# jobscripts/attempt.sh [options] RANKS LAUNCH... -- QUADRILLE train INPUT [section.key=value ...]
#
# One attempt at a run, in a job or without: starts the trainer on RANKS ranks by the launch line and, when it has stopped on purpose (exit code 75),
# sees to it that the run goes on: in a Slurm job by `scontrol requeue`, elsewhere at once. A run that stopped again where it had stopped before is
# not tried a third time. SIGUSR1, SIGTERM and SIGINT to this script make the trainer save and stop; after the latter two, and outside of Slurm after
# any of them, it is not gone on with.
#
#   --here            not a Slurm job of its own, though there may be one around it
#   --run DIR         keep DIR/state.json, DIR/log.txt and DIR/lock (jobscripts/README.md); where another attempt is under way, exit code 11 at once
#   --after N         of such a run, likewise where other than N attempts have been made
#   --time SECONDS    outside of Slurm, the time of one attempt (train.time_limit); a Slurm job's own limit counts in it
#
# Ends with the trainer's exit code, or the launcher's, whatever becomes of state.json; where that cannot be written, nothing is begun (exit code 5),
# nor begun again or queued again.
set -uo pipefail

child='' asked=''
pass_on() { asked=$1; [[ -z $child ]] || kill -USR1 "$child" 2>/dev/null; }
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM INT

# The bare number of an array's first job is the whole array's.
run='' limit='' after='' job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-${SLURM_JOB_ID:-}}
while [[ ${1:-} == --* ]]; do
    case $1 in
        --here) job='' && shift && continue ;;
        --run) run=$2 ;;
        --after) after=$2 ;;
        --time) limit=$2 ;;
        *) echo "attempt.sh: unknown option $1; see the top of $0" >&2 && exit 2 ;;
    esac
    shift 2
done
ranks=${1:-} launch=()
shift
while [[ $# -gt 0 && $1 != -- ]]; do launch+=("$1") && shift; done
if [[ ! $ranks =~ ^[1-9][0-9]*$ || ${#launch[@]} -eq 0 || $# -lt 4 || $3 != train ]]; then
    echo "usage: attempt.sh [options] RANKS LAUNCH... -- QUADRILLE train INPUT [section.key=value ...]" >&2
    exit 2
fi
shift
quadrille=$1 command=("$@") inputs=("${@:3}")
if [[ -n $limit && -z $job ]]; then command+=("train.time_limit=$limit"); fi

# ---- where the run stands ------------------------------------------------------------------------------------------------

number() { [[ ! -e $run/state.json ]] || sed -n "s/^ *\"$1\": \\([0-9.]\\+\\),*\$/\\1/p" "$run/state.json"; }
text() { if [[ -n $1 ]]; then printf '"%s"' "$(tr -d '\000-\037' <<<"$1" | sed 's/[\\"]/\\&/g')"; else printf null; fi; }
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# Which of its states a run is in; one whose state.json is damaged may run, for all that anybody can tell. Its record knows more.
state_of_run() {
    [[ -e $run/state.json ]] || return
    local said
    said=$(tr -d '\000' <"$run/state.json" | sed -n 's/^ "state": "\(running\|stopped\|done\|failed\)",$/\1/p')
    if [[ -n $said && -n $(number attempts) && -n $(number seconds) && $(tail -n 1 "$run/state.json" | tr -d '\000') == '}' ]]; then
        echo "$said"
    else
        echo damaged
    fi
}

# write_state STATE EXIT_CODE END REASON; says so where it cannot.
write_state() {
    [[ -n $run ]] || return 0
    local whole
    whole=$(printf '{\n "state": "%s",\n "exit_code": %s,\n "attempts": %s,\n' "$1" "${2:-null}" "$attempts"
        printf ' "begin": "%s",\n "end": %s,\n "seconds": %s,\n' "$begin" "$(text "$3")" "$seconds"
        printf ' "host": %s,\n "slurm_job_id": %s,\n "reason": %s\n}' "$(text "$(uname -n)")" "$(text "${SLURM_JOB_ID:-}")" "$(text "$4")")
    { printf '%s\n' "$whole" >"$run/state.json.new" && mv -f "$run/state.json.new" "$run/state.json"; } 2>/dev/null && return
    rm -f "$run/state.json.new" 2>/dev/null
    echo "attempt.sh: $run/state.json cannot be written: the run ${code:+ended with exit code $code and }is not begun${code:+ again}" >&2
    return 5
}

# finish STATE EXIT_CODE REASON: how an attempt ended is for its exit code to say, also where the state cannot.
finish() {
    write_state "$1" "$2" "$(now)" "$3"
    exit "$2"
}

# The value of a key that holds a path, from the input as resolved: path_of SECTION KEY
path_of() {
    sed -n "/^$1:/,/^[^ ]/s/^  $2: \"\\(.*\\)\"\$/\\1/p" <<<"$resolved" | sed 's/\\\([\\"]\)/\1/g'
}
newest_step() { ls "$checkpoints" 2>/dev/null | grep -E '^step-[0-9]+$' | sort -V | tail -n 1; }

record_says() { [[ -n $output ]] && "$quadrille" inspect "$output" 2>/dev/null | grep -q "$1"; }

# A launcher that ends all ranks because one has left may tell of that kill instead of their exit code: the record knows it.
stopped_on_purpose() {
    [[ $1 -eq 75 ]] && return
    [[ $1 -gt 128 && -n $(find "$output" -maxdepth 1 -name 'run*.h5' -newermt "@$began" 2>/dev/null) ]] && record_says 'exit code 75'
}

code='' state=''
if [[ -n $run ]]; then
    exec 9>>"$run/lock" || exit 5
    if command -v flock >/dev/null; then
        flock --timeout 2 --conflict-exit-code 11 9  # who only looks whether it is held, holds it for a moment
        held=$?
        if [[ $held -eq 11 ]]; then echo "attempt.sh: $run: another attempt is under way" >&2 && exit 11; fi
    fi
    state=$(state_of_run)
    if [[ $state == done ]]; then echo "attempt.sh: $run: is done" >&2 && exit 0; fi
    if [[ ${held:-1} -ne 0 ]]; then  # without locks only the job that says it runs, which its Slurm has begun again, knows that it does not
        if [[ $state =~ ^(running|damaged)$ ]] && ! { [[ -n $job ]] && grep -q "^ \"slurm_job_id\": \"$SLURM_JOB_ID\"" "$run/state.json"; }; then
            echo "attempt.sh: $run: says that it runs, and without locks nobody can tell; if it does not, remove $run/state.json" >&2 && exit 11
        fi
        echo "attempt.sh: $run: no locks here: nothing keeps an attempt away that begins at the same time" >&2
    fi
fi
attempts=$(number attempts) seconds=$(number seconds)
: "${attempts:=0}" "${seconds:=0}"
if [[ -n $after && $after != "$attempts" ]]; then echo "attempt.sh: $run: another attempt has just ended" >&2 && exit 11; fi
if [[ -n $run ]]; then exec >>"$run/log.txt" 2>&1 || exit 5; fi
resolved=$("$quadrille" plan "${inputs[@]}" --ranks "$ranks" --resolved 2>/dev/null)
output=$(path_of output directory) checkpoints=$(path_of checkpoint directory)

# Slurms of some age do not tell a job its end.
if [[ -n $job && -z ${SLURM_JOB_END_TIME:-} ]] && command -v squeue >/dev/null; then
    end=$(squeue --noheader --job "$job" --format %e 2>/dev/null)  # no answer is no date, though `date` takes it for one
    [[ $end == *T* ]] && end=$(date -d "$end" +%s 2>/dev/null) && export SLURM_JOB_END_TIME=$end
fi
# Checkpoints need no locks of HDF5's; where a file system has none, HDF5 does without.
export HDF5_USE_FILE_LOCKING=${HDF5_USE_FILE_LOCKING:-BEST_EFFORT}

# ---- the attempt ---------------------------------------------------------------------------------------------------------

if [[ $state == damaged ]]; then echo "attempt.sh: $run/state.json is damaged: the run's record and checkpoints tell where it stands"; fi
if [[ $state == running || $state == damaged ]] && record_says ', complete, exit code 0'; then  # the last attempt was killed, but not the run
    begin=$(tr -d '\000' <"$run/state.json" | sed -n 's/^ "begin": "\([-0-9T:Z]*\)",$/\1/p')
    begin=${begin:-$(now)}
    finish done 0 ''
fi
while :; do
    attempts=$((attempts + 1)) begin=$(now) started=$(date +%s) began=$(date +%s.%N)
    before=$(newest_step) reason='' said=$(stat -c %s "$run/log.txt" 2>/dev/null)
    write_state running '' '' '' || exit "${code:-5}"
    [[ -n $asked ]] || { "${launch[@]}" "${command[@]}" </dev/null & child=$!; }
    code=75
    if [[ -n $child ]]; then
        while :; do  # a signal ends the wait, not the child
            wait "$child"
            code=$?
            kill -0 "$child" 2>/dev/null || break
        done
        wait "$child" 2>/dev/null  # the last wait may have ended by a signal as well
        last=$? && [[ $last -eq 127 ]] || code=$last
    fi
    child='' seconds=$(awk "BEGIN { print $seconds + $(date +%s) - $started }")
    if stopped_on_purpose "$code"; then code=75; fi
    if [[ -n $run && $code -ne 0 ]]; then reason=$(tail -c +$((said + 1)) "$run/log.txt" | grep -a '^quadrille: ' | tail -n 1); fi
    if [[ -n $asked && $code -eq $((128 + $(kill -l USR1))) ]]; then  # the launcher was asked before it could pass signals on
        code=75 reason='stopped before it had begun'
    fi
    case $code in
        0) finish done 0 '' ;;
        75) ;;
        *) finish failed "$code" "$reason" ;;
    esac
    after_it=$(newest_step)  # an attempt that does not begin with the newest checkpoint may end before it, too
    if [[ -z $asked && -n $before && 10#0${after_it#step-} -le 10#0${before#step-} ]]; then
        reason="stopped at ${after_it:-no checkpoint}, no further than ${before} before it: a job's time is too short for a step"
        if [[ $after_it != "$before" ]]; then reason="${reason%:*}: checkpoint.resume makes each attempt begin anew"; fi
        echo "attempt.sh: $reason; it is not begun again" >&2
        finish stopped 75 "$reason"
    fi
    write_state stopped 75 "$(now)" "$reason" || exit 75
    if [[ -n $job && $asked != TERM ]]; then scontrol requeue "$job"; fi
    if [[ -n $job || -n $asked ]]; then exit 75; fi
done

#!/usr/bin/env bash
# tests/fuzz/run.sh FUZZER CORPUS RUNS   gives RUNS inputs to a fuzzer, the same ones each time, beginning with the corpus.
#
# With FUZZ_SECONDS in the environment it runs for so long instead, with other inputs each time, and goes on from those that it has kept in ./found.
# An input that is a finding stays here as NAME-crash-..., NAME-oom-... or NAME-timeout-...; FUZZER FILE reads it again. Once it is mended it belongs
# into the corpus, and a unit test says what was wrong.
set -euo pipefail
fuzzer=$1 corpus=$2 runs=$3 here=$PWD  # a fuzzer may go to a folder of its own
name=$(basename "$corpus")

# Most of the time would else go into files on a disk.
memory=/dev/shm
[[ -w $memory ]] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$memory/quadrille-fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

options=(-rss_limit_mb=1024 -timeout=120 -len_control=0 -print_final_stats=1 "-artifact_prefix=$here/$name-")
dictionary=$(dirname "$corpus")/$name.dict
[[ ! -e $dictionary ]] || options+=("-dict=$dictionary")
if [[ -n ${FUZZ_SECONDS:-} ]]; then
    found=$here/found/$name
    options+=("-max_total_time=$FUZZ_SECONDS")
else
    found=$TMPDIR/found
    options+=("-runs=$runs" -seed=1)
fi
mkdir -p "$found"
"$fuzzer" "${options[@]}" "$found" "$corpus"

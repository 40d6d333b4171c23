#!/usr/bin/env bash
# tests/run.sh [options] [ctest arguments]   installs what is missing, builds, and runs every test that this machine can run.
#
#   --label LABEL         only tests with this label (unit, kernels, mpi, same_loss, golden, fault, report, jobs, fuzz, bench, threads)
#   --sanitize address    AddressSanitizer and UBSan, in build-address; default labels: unit and mpi
#   --sanitize thread     ThreadSanitizer with clang, one compute thread, in build-thread; default label: threads
#   --fuzz [SECONDS]      libFuzzer with clang, AddressSanitizer and UBSan, in build-fuzz; label: fuzz. A fixed number of inputs, the same each time;
#                         with SECONDS each fuzzer runs for so long, and goes on from what it has found before
#
# QUADRILLE_FULL=ON in the environment runs whole crosses of cases, where usually so many run that every two values meet, and under a sanitizer all
# subjects and numbers of ranks too.
# Without --sanitize it builds on what the quickstart has built. With QUADRILLE_WERROR=ON in the environment, as in .ci/run, warnings are errors;
# CUDAARCHS="80;90" says for which GPUs, to a build folder that is new.
# A test that cannot run here is skipped and says why in its output (ctest -V shows it), but for want of packages that QUADRILLE_NEEDED lists it
# fails. ctest's summary comes last.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

label='' sanitize='' fuzz='' ctest_arguments=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --label) label=$2 && shift ;;
        --sanitize) sanitize=$2 && shift ;;
        --fuzz)
            fuzz=yes
            if [[ ${2:-} =~ ^[0-9]+$ ]]; then export FUZZ_SECONDS=$2 && shift; fi
            ;;
        -h | --help) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit 0 ;;
        *) ctest_arguments+=("$1") ;;
    esac
    shift
done

if [[ -n $fuzz && -n $label$sanitize ]]; then
    echo "run.sh: --fuzz has a build and a label of its own: neither --label nor --sanitize goes with it" >&2 && exit 2
fi

build=build setup=(--tests "-DQUADRILLE_FULL=${QUADRILLE_FULL:-OFF}") labels=("$label")
case ${fuzz:+--fuzz}$sanitize in
    '') ;;
    address)
        build=build-address
        setup+=(-DQUADRILLE_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O1")
        [[ -n $label ]] || labels=(unit mpi)
        # MPI's own leaks at exit are not ours to mend.
        export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
        export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
        ;;
    thread)
        build=build-thread
        setup+=(-DQUADRILLE_SANITIZE=thread -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O1")
        [[ -n $label ]] || labels=(threads)
        export CC=clang CXX=clang++ OMP_NUM_THREADS=1
        # No suppressions, which would hide races of ours too: what the MPI library does by itself is left out by the first option, and with
        # one compute thread there is no OpenMP team, whose locks ThreadSanitizer does not know.
        export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1
        ;;
    --fuzz)
        build=build-fuzz
        setup+=(-DQUADRILLE_SANITIZE=fuzzer-no-link,address,undefined -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O1")
        labels=(fuzz)
        export CC=clang CXX=clang++
        export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
        export ASAN_OPTIONS=quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
        ;;
    *) echo "run.sh: --sanitize '$sanitize' is neither address nor thread" >&2 && exit 2 ;;
esac
for one in "${labels[@]}"; do
    [[ -z $one ]] || setup+=(--target "tests_$one")
done
jobscripts/setup.sh --build "$build" "${setup[@]}"

# A label stands for itself alone: -L takes a regular expression.
[[ -z ${labels[0]} ]] || ctest_arguments+=(-L "^($(IFS='|' && echo "${labels[*]}"))\$")
exec ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$((2 * $(nproc)))" "${ctest_arguments[@]}"

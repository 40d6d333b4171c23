#!/usr/bin/env bash
# jobscripts/launch.sh RANKS COMMAND...   runs COMMAND on RANKS MPI ranks, whatever the MPI: srun inside a Slurm allocation, else
# mpirun. Ranks may outnumber the cores, and are not bound (mpirun would bind one or two of them to a single core each, with all their threads)
# unless MPIRUN_FLAGS says so. MPIRUN names another mpirun (e.g. mpirun.mpich), MPIRUN_FLAGS adds flags, of srun too; SLURM_MPI_TYPE chooses srun's
# --mpi.
set -euo pipefail

if [[ $# -lt 2 || ! $1 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: jobscripts/launch.sh RANKS COMMAND [ARGUMENT...]" >&2
    exit 2
fi
ranks=$1
shift
# Checkpoints need no locks of HDF5's; where a file system has none, HDF5 does without (FALSE: never locks).
export HDF5_USE_FILE_LOCKING=${HDF5_USE_FILE_LOCKING:-BEST_EFFORT}
read -ra extra <<<"${MPIRUN_FLAGS:-}"

if [[ -n ${SLURM_JOB_ID:-} && -z ${MPIRUN:-} ]] && command -v srun >/dev/null; then
    # srun no longer inherits --cpus-per-task from sbatch (Slurm 22.05).
    exec srun --kill-on-bad-exit=1 --cpu-bind=none --ntasks="$ranks" ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} "${extra[@]}" "$@"
fi

mpirun=${MPIRUN:-mpirun}
if ! command -v "$mpirun" >/dev/null; then
    echo "launch.sh: no $mpirun in PATH; jobscripts/setup.sh installs one, or names the package and module to load" >&2
    exit 2
fi
version=$("$mpirun" --version 2>&1 || true)
case $version in
    *"Open MPI"* | *OpenRTE* | *PRRTE* | *prterun*)
        flags=(--bind-to none --oversubscribe)
        if [[ $EUID -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
        ;;
    *"Intel(R) MPI"*)
        export I_MPI_PIN=off
        flags=()
        ;;
    *HYDRA* | *MPICH* | *mpich*) flags=(-bind-to none) ;;
    *) flags=() ;;
esac
exec "$mpirun" "${flags[@]}" "${extra[@]}" -n "$ranks" "$@"

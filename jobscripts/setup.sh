#!/usr/bin/env bash
# jobscripts/setup.sh [options] [-DNAME=VALUE...]   installs what is missing, configures and builds; a second call is quick.
#
#   --tests          also what the tests need, and build them
#   --reports        also what postproc/ needs
#   --build DIR      build folder (default: build)
#   --machine NAME   cache file jobscripts/machines/NAME.cmake (default: by what is seen here; most machines need none)
#   --target NAME    build this target (repeatable; default: quadrille, with --tests everything)
#   --no-install     never install, only say what is missing
#
# Packages are installed with apt as root or with passwordless sudo; else the script prints what to install and exits 2.
# CC, CXX, MPICC, CMAKE_PREFIX_PATH and every QUADRILLE_* variable of the environment are passed on to CMake.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=OFF reports=no build=build machine=${QUADRILLE_MACHINE:-} install=yes
targets=() cmake_flags=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --tests) tests=ON ;;
        --reports) reports=yes ;;
        --build) build=$2 && shift ;;
        --machine) machine=$2 && shift ;;
        --target) targets+=("$2") && shift ;;
        --no-install) install=no ;;
        -D?*) cmake_flags+=("$1") ;;
        -h | --help) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit 0 ;;
        *) echo "setup.sh: unknown argument '$1'; see jobscripts/setup.sh --help" >&2 && exit 2 ;;
    esac
    shift
done

# ---- the machine -------------------------------------------------------------------------------------------------------

guess_machine() {
    if [[ -n ${CRAYPE_VERSION:-} ]]; then echo cray
    elif [[ ${MPICC:-} == *.mpich && -e /etc/debian_version ]]; then echo debian-mpich
    fi
}
[[ -n $machine ]] || machine=$(guess_machine)
cache=jobscripts/machines/$machine.cmake
if [[ -n $machine && ! -e $cache ]]; then
    echo "setup.sh: no machine '$machine'; there are: $(cd jobscripts/machines && echo *.cmake | sed 's/\.cmake//g')" >&2
    exit 2
fi
if [[ $machine == cray ]]; then : "${CXX:=CC}" "${CC:=cc}" "${MPICC:=cc}"; fi
if [[ $machine == debian-mpich ]]; then : "${MPICC:=mpicc.mpich}"; fi

# The first C++ compiler that knows C++20: $CXX where the user chose, else the plainest name.
find_compiler() {
    local name
    for name in ${CXX:-g++ g++-14 g++-13 g++-12 clang++}; do
        command -v "$name" >/dev/null || continue
        echo '#if !defined(__clang__) && defined(__GNUC__) && __GNUC__ < 12
              #error too old
              #endif' | "$name" -std=c++20 -E -x c++ - >/dev/null 2>&1 && echo "$name" && return
    done
    return 1
}

# ---- what is needed ----------------------------------------------------------------------------------------------------
# One row each: probe : what it is : apt packages : spack package : usual module name. `wishes` are installed where that is allowed and
# else done without.

mpi_apt="libopenmpi-dev openmpi-bin" hdf5_apt=libhdf5-openmpi-dev
if [[ $machine == debian-mpich ]]; then mpi_apt="libmpich-dev mpich" hdf5_apt=libhdf5-mpich-dev; fi
compiler="C++20 compiler (g++ 12 or newer):g++ g++-12:gcc@12:gcc/12"
if [[ ${CXX:-} == clang++ ]]; then compiler="clang 14 or newer:clang:llvm:llvm"; fi
needs=(
    "find_compiler:$compiler"
    "command -v ${CC:-cc}:C compiler (CMake finds MPI and HDF5 with it):gcc:gcc@12:gcc/12"
    "command -v cmake:CMake 3.20 or newer:cmake:cmake:cmake"
    "command -v ninja:Ninja:ninja-build:ninja:ninja"
    "command -v ${MPICC:-mpicc}:MPI:$mpi_apt:openmpi:openmpi"
    "has_hdf5:HDF5:$hdf5_apt:hdf5+mpi:hdf5"
    "has_header yaml-cpp/yaml.h:yaml-cpp:libyaml-cpp-dev:yaml-cpp:yaml-cpp"
    "has_header oneapi/dnnl/dnnl.hpp:oneDNN:libdnnl-dev:onednn+cpu_openmp:onednn"
    "has_header fmt/core.h:fmt:libfmt-dev:fmt:fmt"
    "has_header xxhash.h:xxHash:libxxhash-dev:xxhash:xxhash"
    "has_header nlohmann/json.hpp:JSON for Modern C++:nlohmann-json3-dev:nlohmann-json:nlohmann-json"
)
wishes=(
    "has_header liburing.h:liburing (without it threads read and write the NVMe tier):liburing-dev:liburing:liburing"
    "has_header hwloc.h:hwloc (without it grid.order auto does not tell sockets apart):libhwloc-dev:hwloc:hwloc"
)
browser=()  # on its own: not every system has a package of it
if [[ $tests == ON ]]; then
    test_apt="python3 python3-h5py python3-numpy python3-yaml" test_spack="py-h5py py-numpy py-pyyaml"
    needs+=(
        "has_header doctest/doctest.h:doctest:doctest-dev:doctest:doctest"
        "has_python h5py, numpy, yaml:Python 3 with h5py, numpy and PyYAML:$test_apt:$test_spack:python h5py"
    )
    wishes+=("has_slurm:Slurm (without it the tests of jobs in a Slurm are skipped):slurm-wlm:slurm:slurm")
    if [[ ${#targets[@]} -eq 0 || " ${targets[*]} " == *" tests_report "* ]]; then
        reports=yes browser=("has_browser:Chromium (without it no test looks at reports):chromium:chromium:chromium")
    fi
fi
if [[ $reports == yes ]]; then
    report_apt="python3 python3-h5py python3-matplotlib python3-yaml" report_spack="py-h5py py-matplotlib py-pyyaml"
    wishes+=("has_python h5py, matplotlib, yaml:Python 3 with h5py, matplotlib and PyYAML (without them no reports):$report_apt:$report_spack:python")
fi
if [[ ${CXX:-} == clang++ ]]; then  # asked for by tests/run.sh --sanitize thread, or by the user
    needs+=("has_clang_tsan:clang's sanitizers and OpenMP:libclang-rt-dev libomp-dev:llvm:llvm")
fi

# Looks where the compiler does, and where CMake will.
has_header() {
    local dir flags=()
    for dir in $(tr ':;' '  ' <<<"${CMAKE_PREFIX_PATH:-}") ; do flags+=("-I$dir/include"); done
    echo "#include <$1>" | "$(find_compiler || echo c++)" "${flags[@]}" -std=c++20 -E -x c++ - >/dev/null 2>&1
}
has_hdf5() {
    local wrapper
    for wrapper in h5pcc h5cc h5pcc.openmpi h5pcc.mpich; do
        [[ $machine == debian-mpich && $wrapper != h5pcc.mpich ]] && continue
        command -v $wrapper >/dev/null && return
    done
    [[ $machine != debian-mpich ]] && { [[ -n ${HDF5_ROOT:-} ]] || has_header hdf5.h; }
}
has_python() { "${QUADRILLE_PYTHON:-/usr/bin/python3}" -c "import $*" 2>/dev/null || python3 -c "import $*" 2>/dev/null; }
has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
has_slurm() { PATH=$PATH:/usr/sbin && command -v slurmctld && command -v slurmd && command -v munged && command -v srun; }
has_clang_tsan() {
    echo 'int main() {}' | clang++ -fsanitize=thread -fopenmp -x c++ - -o /dev/null 2>/dev/null
}

find_missing() {
    missing=()
    local need
    for need in "$@"; do
        ${need%%:*} >/dev/null 2>&1 || missing+=("$need")
    done
}
column() { local need; for need in "${missing[@]}"; do cut -d: -f"$1" <<<"$need"; done; }
words_of() { column "$1" | xargs -n 1 | awk '!seen[$0]++' | xargs; }

say_missing() {
    {
        echo "setup.sh: missing here:"
        column 2 | sed 's/^/    /'
        echo "Install them in one of these ways and call again:"
        echo "    Debian, Ubuntu:  sudo apt-get install $(words_of 3)"
        echo "    Spack:           spack install $(words_of 4) && spack load $(words_of 4)"
        echo "    modules:         module load $(words_of 5)    (names differ from site to site: module avail)"
        echo "CMAKE_PREFIX_PATH=DIR1:DIR2 names folders where libraries are installed."
    } >&2
}

apt_install() {
    local sudo=()
    [[ $EUID -eq 0 ]] || sudo=(sudo -n)
    echo "setup.sh: installing $*"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null
}
may_install() {
    [[ $install == yes ]] && command -v apt-get >/dev/null || return 1
    [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null
}

install_missing() {
    find_missing "$@"
    [[ ${#missing[@]} -gt 0 ]] && may_install || return 0
    read -ra packages <<<"$(words_of 3)"
    apt_install "${packages[@]}" || echo "setup.sh: apt could not install them; looks at what there is" >&2
    hash -r
}

install_missing "${needs[@]}" "${wishes[@]}"
install_missing "${browser[@]}"
find_missing "${wishes[@]}" "${browser[@]}"
[[ ${#missing[@]} -eq 0 ]] || echo "setup.sh: goes on without $(column 2)"
find_missing "${needs[@]}"
if [[ ${#missing[@]} -gt 0 ]]; then
    say_missing
    exit 2
fi

# ---- configure and build -----------------------------------------------------------------------------------------------

if [[ ${#targets[@]} -eq 0 ]]; then
    if [[ $tests == ON ]]; then targets=(all); else targets=(quadrille); fi
fi
# A folder that has been configured with the tests keeps them.
if grep -qs '^QUADRILLE_TESTS:BOOL=ON' "$build/CMakeCache.txt"; then tests=ON; fi
arguments=(-S . -B "$build" -G Ninja "-DQUADRILLE_TESTS=$tests")
[[ -z $machine ]] || arguments+=(-C "$cache")
[[ -z ${MPICC:-} ]] || arguments+=(-DMPI_C_COMPILER="$MPICC")
if command -v ccache >/dev/null; then arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
while IFS='=' read -r name value; do
    [[ $name == QUADRILLE_MACHINE ]] || arguments+=("-D$name=$value")
done < <(env | grep '^QUADRILLE_' || true)
arguments+=("${cmake_flags[@]}")

CXX=$(find_compiler)
export CXX
# CMake configures again only if something that it was told has changed; ninja sees the rest.
stamp=$build/setup-arguments
wanted=$(printf '%s\n' "$CXX" "${CC:-}" "${CMAKE_PREFIX_PATH:-}" "${arguments[@]}")
if [[ ! -e $build/build.ninja || ! -e $stamp || $wanted != "$(<"$stamp")" ]]; then
    cmake "${arguments[@]}"
    printf '%s\n' "$wanted" >"$stamp"
fi
cmake --build "$build" --target "${targets[@]}"

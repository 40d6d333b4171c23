#!/usr/bin/env bash
# jobscripts/quickstart.sh [section.key=value ...]   from nothing to a trained model: installs what is missing when it may, builds,
# trains inputs/quickstart.yaml on 4 ranks, summarises the run's record and writes its report, a page for any browser. The text is this project's
# own sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobscripts/setup.sh --reports
jobscripts/launch.sh 4 build/quadrille train inputs/quickstart.yaml output.directory=runs/quickstart output.overwrite=true "$@"
build/quadrille inspect runs/quickstart/run.h5
for python in "${QUADRILLE_PYTHON:-/usr/bin/python3}" python3; do
    if "$python" -c 'import h5py, matplotlib, yaml' 2>/dev/null; then
        exec "$python" postproc/report.py runs/quickstart
    fi
done
echo "quickstart.sh: no report: there is no python3 with h5py, matplotlib and PyYAML here"

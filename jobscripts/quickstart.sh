#!/usr/bin/env bash
# jobscripts/quickstart.sh [section.key=value ...]   from nothing to a trained model: installs what is missing when it may, builds,
# trains inputs/quickstart.yaml on 4 ranks and summarises the run's record. The text is this project's own sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobscripts/setup.sh
jobscripts/launch.sh 4 build/quadrille train inputs/quickstart.yaml output.directory=runs/quickstart output.overwrite=true "$@"
build/quadrille inspect runs/quickstart/run.h5

#!/usr/bin/env bash
# prerequisites.sh: install what a fresh Debian lacks to build aiokq: venv with ensurepip, Python.h
# and a C compiler. If it may not install them, it prints the command to type.
set -u
python=${PYTHON:-python3}

command -v "$python" >/dev/null || { echo "aiokq needs Python 3.11 or newer: '$python' is not there." >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "aiokq needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1). Try: make PYTHON=python3.11" >&2
    exit 1
}

missing=()
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("python$version-venv")
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    missing+=("python$version-dev")
command -v gcc >/dev/null || command -v cc >/dev/null || missing+=("gcc")

[ ${#missing[@]} -eq 0 ] && exit 0
bash "$(dirname "$0")/install_debian.sh" "" "${missing[@]}"
# Without a compiler or Python.h, aiokq runs with the pure Python core. Without ensurepip there is
# no virtual environment.
"$python" -c 'import ensurepip, venv' 2>/dev/null || {
    echo "aiokq: cannot make a virtual environment. Type:  sudo apt-get install ${missing[*]}" >&2
    exit 1
}
exit 0

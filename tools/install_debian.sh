#!/usr/bin/env bash
# install_debian.sh COMMAND PACKAGE...: install Debian packages unless COMMAND is there already.
# Never fails: if it may not or cannot install them, it prints the command to type.
set -u
command=$1
shift
[ -n "$command" ] && command -v "$command" >/dev/null && exit 0
# Only one apt-get at a time: the others would fail.
command -v flock >/dev/null && exec 9>"${TMPDIR:-/tmp}/aiokq-apt-$(id -u).lock" && flock 9
if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ]; then
        run=(env DEBIAN_FRONTEND=noninteractive)
    elif sudo -n true 2>/dev/null; then
        run=(sudo -n env DEBIAN_FRONTEND=noninteractive)
    else
        echo "aiokq: $* missing. Type:  sudo apt-get install $*" >&2
        exit 0
    fi
    echo "aiokq: installing $* ..."
    "${run[@]}" apt-get install -y -qq "$@" >/dev/null 2>&1 && exit 0
    "${run[@]}" apt-get update -qq >/dev/null 2>&1
    "${run[@]}" apt-get install -y -qq "$@" >/dev/null 2>&1 && exit 0
fi
echo "aiokq: could not install $*: install it by hand (Debian: sudo apt-get install $*)" >&2
exit 0

#!/usr/bin/env bash
# with_progress.sh COMMAND...: run a command, and print the progress of a build of aiokq inside it,
# because pip hides what a build prints.
set -u
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkfifo "$directory/progress"
cat "$directory/progress" &
exec 3>"$directory/progress"
AIOKQ_BUILD_PROGRESS="$directory/progress" "$@" 3>&-
status=$?
exec 3>&-
wait
exit "$status"

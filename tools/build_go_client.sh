#!/usr/bin/env bash
# build_go_client.sh FILE: build the tests' client of franz-go (tests/peers/go_client) as FILE.
# Go is Debian's, or any newer one. Never fails: without Go or its modules it says so, and the tests
# that need the client are skipped.
set -u
file=$1
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../tests/peers/go_client
[ -x "$file" ] && [ -z "$(find "$source" -newer "$file" -type f)" ] && exit 0

bash "$here/install_debian.sh" go golang-go
if ! command -v go >/dev/null; then
    echo "aiokq: no Go: the tests with franz-go will be SKIPPED" >&2
    exit 0
fi
echo "aiokq: building the client of franz-go ..."
mkdir -p "$(dirname "$file")"
file=$(cd "$(dirname "$file")" && pwd)/$(basename "$file")
if ! (cd "$source" && CGO_ENABLED=0 go build -trimpath -o "$file.new" . && mv "$file.new" "$file"); then
    echo "aiokq: the modules of franz-go cannot be fetched or built: the tests with franz-go will be SKIPPED" >&2
fi
exit 0

#!/usr/bin/env bash
# fetch_connector.sh DIR: fetch Spark's own Kafka connector and its dependencies from Maven Central
# into DIR. The Spark tests compare aiokq with it. Version 4.2.0 works with PySpark 4.3.
# Never fails: without the connector it says so, and the tests that need the connector are skipped.
set -u
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
[ -f "$dir/.complete" ] && exit 0

bash "$here/install_debian.sh" mvn maven
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    echo "aiokq: no Java or Maven: the tests beside Spark's own connector will be SKIPPED" >&2
    exit 0
fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# Only one Maven at a time: they share a directory of downloads.
command -v flock >/dev/null && exec 8>"${TMPDIR:-/tmp}/aiokq-maven-$(id -u).lock" && flock 8
echo "aiokq: fetching Spark's Kafka connector from Maven Central ..."
for artifact in \
    org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
    org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0 \
    org.apache.kafka:kafka-clients:3.9.1 \
    org.apache.commons:commons-pool2:2.12.0; do
    if ! mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$dir"; then
        echo "aiokq: Maven Central does not answer: the tests beside Spark's own connector will be SKIPPED" >&2
        exit 0
    fi
done
touch "$dir/.complete"
exit 0

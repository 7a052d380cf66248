#!/usr/bin/env bash
# fetch_kafka.sh DIR: Apache Kafka and the older clients' jar from Maven Central into DIR.
# Never fails: the tests that need them skip with a loud line.
set -u
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
old=${KAFKA_OLD_CLIENTS:-3.9.1}
stamp="$dir/.complete"
[ -f "$stamp" ] && command -v java >/dev/null && exit 0

bash "$here/install_debian.sh" java openjdk-17-jre-headless
bash "$here/install_debian.sh" mvn maven
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    echo "aiokq: no Java or Maven: the tests against Apache Kafka will be SKIPPED" >&2
    exit 0
fi
[ -f "$stamp" ] && exit 0
echo "aiokq: fetching Apache Kafka from Maven Central ..."
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if mvn -q -B -f "$here/../tests/interop/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir" &&
    mvn -q -B dependency:copy -Dartifact="org.apache.kafka:kafka-clients:$old" -DoutputDirectory="$dir/../old"; then
    touch "$stamp"
else
    echo "aiokq: Maven Central does not answer: the tests against Apache Kafka will be SKIPPED" >&2
fi
exit 0

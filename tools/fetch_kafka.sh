#!/usr/bin/env bash
# fetch_kafka.sh DIR: fetch Apache Kafka from Maven Central into DIR, and into the directories `old`,
# `earlier`, `shell`, `streams` and `zookeeper` beside DIR the jar of the older clients, Kafka's own
# jars of earlier releases, Kafka's metadata shell, Kafka Streams with Connect's file connectors, and
# ZooKeeper.
# Never fails: if something is missing, it says so, and the tests that need it are skipped.
set -u
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
old=${KAFKA_OLD_CLIENTS:-3.9.1}
releases=${KAFKA_EARLIER-4.0.0 4.1.1}
stamp="$dir/.complete"
earlier="$dir/../earlier"
shell="$dir/../shell"
streams="$dir/../streams"
zookeeper="$dir/../zookeeper"
missing=
for release in $releases; do
    [ -f "$earlier/$release/.complete" ] || missing="$missing $release"
done
[ -f "$stamp" ] && [ -z "$missing" ] && [ -f "$shell/.complete" ] && [ -f "$streams/.complete" ] && [ -f "$zookeeper/.complete" ] &&
    command -v java >/dev/null && command -v javac >/dev/null && exit 0

bash "$here/find_java.sh"
# The tests compile small programs that use Kafka's classes.
bash "$here/install_debian.sh" javac openjdk-17-jdk-headless 2>/dev/null
bash "$here/install_debian.sh" javac default-jdk-headless
bash "$here/install_debian.sh" mvn maven
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    echo "aiokq: no Java or Maven: the tests against Apache Kafka will be SKIPPED" >&2
    exit 0
fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# Only one Maven at a time: they share a directory of downloads.
command -v flock >/dev/null && exec 8>"${TMPDIR:-/tmp}/aiokq-maven-$(id -u).lock" && flock 8
if [ ! -f "$stamp" ]; then
    echo "aiokq: fetching Apache Kafka from Maven Central ..."
    if mvn -q -B -f "$here/../tests/interop/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir" &&
        mvn -q -B dependency:copy -Dartifact="org.apache.kafka:kafka-clients:$old" -DoutputDirectory="$dir/../old"; then
        touch "$stamp"
    else
        echo "aiokq: Maven Central does not answer: the tests against Apache Kafka will be SKIPPED" >&2
    fi
fi
for release in $missing; do
    mkdir -p "$earlier/$release"
    earlier=$(cd "$earlier" && pwd)
    if mvn -q -B -f "$here/../tests/interop/kafka_earlier/pom.xml" dependency:copy -Drelease="$release" -DoutputDirectory="$earlier/$release"; then
        touch "$earlier/$release/.complete"
    else
        echo "aiokq: Maven Central does not answer: the tests with Apache Kafka $release will be SKIPPED" >&2
    fi
done
if [ ! -f "$shell/.complete" ]; then
    mkdir -p "$shell"
    shell=$(cd "$shell" && pwd)
    if mvn -q -B -f "$here/../tests/interop/kafka_shell/pom.xml" dependency:copy-dependencies -DincludeArtifactIds=kafka-shell,jline -DoutputDirectory="$shell"; then
        touch "$shell/.complete"
    else
        echo "aiokq: Maven Central does not answer: the tests with Kafka's metadata shell will be SKIPPED" >&2
    fi
fi
if [ ! -f "$streams/.complete" ]; then
    mkdir -p "$streams"
    streams=$(cd "$streams" && pwd)
    if mvn -q -B -f "$here/../tests/interop/kafka_streams/pom.xml" dependency:copy-dependencies -DincludeArtifactIds=kafka-streams,rocksdbjni,connect-file -DoutputDirectory="$streams"; then
        touch "$streams/.complete"
    else
        echo "aiokq: Maven Central does not answer: the tests with Kafka Streams and Kafka Connect will be SKIPPED" >&2
    fi
fi
if [ ! -f "$zookeeper/.complete" ]; then
    mkdir -p "$zookeeper"
    zookeeper=$(cd "$zookeeper" && pwd)
    if mvn -q -B -f "$here/../tests/interop/zookeeper/pom.xml" dependency:copy-dependencies -DoutputDirectory="$zookeeper"; then
        touch "$zookeeper/.complete"
    else
        echo "aiokq: Maven Central does not answer: the tests against ZooKeeper will be SKIPPED" >&2
    fi
fi
exit 0

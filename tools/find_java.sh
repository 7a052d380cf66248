#!/usr/bin/env bash
# find_java.sh: make sure that Java 17 or newer is there for Spark and Apache Kafka: in JAVA_HOME,
# on the PATH, or installed from Debian. Never fails: without such a Java, it prints what to do.
set -u
here=$(cd "$(dirname "$0")" && pwd)

recent() {
    local major
    major=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
    command -v "$java" >/dev/null && recent "$java" && exit 0
done
# Debian 12 and older have a package for Java 17. In newer releases the default package is newer.
bash "$here/install_debian.sh" "" openjdk-17-jre-headless 2>/dev/null
command -v java >/dev/null && recent java && exit 0
bash "$here/install_debian.sh" "" default-jre-headless 2>/dev/null
command -v java >/dev/null && recent java && exit 0
echo "aiokq: Spark and Apache Kafka need Java 17 or newer: install it (Debian: sudo apt-get install default-jre-headless) or set JAVA_HOME" >&2
exit 0

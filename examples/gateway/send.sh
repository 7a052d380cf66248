#!/usr/bin/env bash
# The shell writes to a TCP port of the gateway: `send.sh PORT COUNT`. It needs bash alone.
# For single messages there is `aiokq gateway send visits VALUE --tcp PORT`.
set -eu
LC_ALL=C # so that ${#text} counts bytes

# big_endian NAME BYTES NUMBER: sets the variable NAME to NUMBER as escapes for printf.
big_endian() {
    local text='' byte i
    for ((i = $2 - 1; i >= 0; i--)); do
        printf -v byte '\\x%02x' $((($3 >> (8 * i)) & 255))
        text+=$byte
    done
    printf -v "$1" '%s' "$text"
}

# send TOPIC KEY VALUE: writes a message to descriptor 3. The gateway chooses the partition.
send() {
    local topic=$1 key=$2 value=$3 size topic_size time key_size value_size
    big_endian size 4 $((28 + ${#topic} + ${#key} + ${#value}))
    big_endian topic_size 2 ${#topic}
    big_endian time 8 $((${EPOCHREALTIME/[.,]/} / 1000))
    big_endian key_size 4 ${#key}
    big_endian value_size 4 ${#value}
    # 0x0100 is the ApiKey; version and flags are 0.
    printf '%b%s%b%s%b%s' "$size\x01\x00\x00\x00\x00\x00$topic_size" "$topic" \
        "$time$key_size" "$key" "$value_size" "$value" >&3
}

exec 3>"/dev/tcp/127.0.0.1/$1"
for ((n = 0; n < $2; n++)); do
    send visits shell "{\"n\": $n, \"from\": \"the shell\"}"
done

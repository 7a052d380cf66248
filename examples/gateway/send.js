// Node writes to a UNIX stream socket of the gateway: `node send.js PATH COUNT`.
//
// It needs no package. Node has no UNIX datagram sockets; a TCP port works in the same way.
"use strict";

const net = require("node:net");

// Returns a message. Without a partition key, the gateway chooses the partition.
function encode(topic, value, { key = "", partitionKey = null, timestamp = Date.now() } = {}) {
  const [topicBytes, keyBytes, valueBytes] = [topic, key, value].map((part) => Buffer.from(part));
  const head = Buffer.alloc(partitionKey === null ? 12 : 16);
  head.writeInt16BE(partitionKey === null ? 256 : 257, 4); // version and flags stay 0
  if (partitionKey !== null) head.writeUInt32BE(partitionKey >>> 0, 10);
  head.writeInt16BE(topicBytes.length, head.length - 2);
  const middle = Buffer.alloc(12);
  middle.writeBigInt64BE(BigInt(timestamp), 0);
  middle.writeInt32BE(keyBytes.length, 8);
  const size = Buffer.alloc(4);
  size.writeInt32BE(valueBytes.length, 0);
  const message = Buffer.concat([head, topicBytes, middle, keyBytes, size, valueBytes]);
  message.writeInt32BE(message.length, 0);
  return message;
}

const [path, count] = [process.argv[2], Number(process.argv[3])];
const socket = net.createConnection(path, () => {
  for (let n = 0; n < count; n++) {
    socket.write(encode("visits", JSON.stringify({ n, from: "Node" }), { key: "node" }));
  }
  socket.end();
});
socket.on("error", (error) => {
  console.error(`cannot send: ${error.message}`);
  process.exitCode = 1;
});

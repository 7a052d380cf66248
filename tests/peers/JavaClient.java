// Java's own producer and consumer for the tests; records are lines of text, bytes hexadecimal:
//   java -cp '.cache/kafka/libs/*' tests/peers/JavaClient.java HOST:PORT COMMAND...
// with the commands
//   write TOPIC CODEC          what standard input holds, into partition 0
//   read TOPIC COUNT           so many records of partition 0, from the beginning
//   partitions TOPIC           what the default partitioner gives each key of standard input
// A record is "timestamp key value [header=value ...]", absent bytes are "null".

import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaClient {
    static String hex(byte[] bytes) {
        return bytes == null ? "null" : "x" + HexFormat.of().formatHex(bytes);
    }

    static byte[] bytes(String text) {
        return text.equals("null") ? null : HexFormat.of().parseHex(text.substring(1));
    }

    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, String line) {
        String[] parts = line.split(" ");
        List<Header> headers = new ArrayList<>();
        for (int i = 3; i < parts.length; i++) {
            String[] header = parts[i].split("=");
            headers.add(new RecordHeader(header[0], bytes(header[1])));
        }
        return new ProducerRecord<>(
            topic, partition, Long.parseLong(parts[0]), bytes(parts[1]), bytes(parts[2]), headers);
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String codec) {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 100,
            "batch.size", 1 << 20);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void write(String bootstrap, String topic, String codec, List<String> lines) throws Exception {
        List<Future<RecordMetadata>> acknowledged = new ArrayList<>();
        try (var producer = producer(bootstrap, codec)) {
            for (String line : lines) acknowledged.add(producer.send(record(topic, 0, line)));
            for (var each : acknowledged) each.get();
        }
    }

    static void partitions(String bootstrap, String topic, List<String> lines) throws Exception {
        List<Future<RecordMetadata>> acknowledged = new ArrayList<>();
        try (var producer = producer(bootstrap, "none")) {
            for (String line : lines) acknowledged.add(producer.send(record(topic, null, line)));
            for (var each : acknowledged) System.out.println(each.get().partition());
        }
    }

    static void read(String bootstrap, String topic, int count) {
        Map<String, Object> properties = Map.of("bootstrap.servers", bootstrap, "check.crcs", true);
        long deadline = System.currentTimeMillis() + 30_000;
        int found = 0;
        System.out.println("topic " + topic);
        try (var consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (found < count) {
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("only " + found + " records of " + topic);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    StringBuilder line = new StringBuilder();
                    line.append(record.timestamp()).append(' ').append(hex(record.key()))
                        .append(' ').append(hex(record.value()));
                    for (Header header : record.headers())
                        line.append(' ').append(header.key()).append('=').append(hex(header.value()));
                    System.out.println(line);
                    found++;
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        List<String> lines = null;
        for (int i = 1; i < args.length; ) {
            String command = args[i];
            if (!command.equals("read") && lines == null)
                lines = new String(System.in.readAllBytes(), "UTF-8").lines().toList();
            switch (command) {
                case "write" -> {
                    write(args[0], args[i + 1], args[i + 2], lines);
                    i += 3;
                }
                case "read" -> {
                    read(args[0], args[i + 1], Integer.parseInt(args[i + 2]));
                    i += 3;
                }
                case "partitions" -> {
                    partitions(args[0], args[i + 1], lines);
                    i += 2;
                }
                default -> throw new IllegalArgumentException(command);
            }
        }
    }
}
